package vllmtest

import (
	"strings"
	"testing"
	"time"

	"github.com/warmroute/router/kvindex"
)

// What is published is what the pool holds: an index that is fed with it has as
// many blocks.
func TestEventsTellThePool(t *testing.T) {
	for _, e := range []Events{{}, {Arrays: true}, {Bytes: true}} {
		p, err := NewPublisher(e)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		cfg, err := Config{Blocks: 20}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		m := newCounters(time.Now())
		c := &scheduler{cfg: &cfg, pool: newPool(cfg.Blocks), m: &m}
		c.pool.log = &eventLog{cfg: &p.cfg, out: p}
		x, err := kvindex.New(kvindex.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 40 {
			s := newSeq(rootKey("", ""), promptOf(100+i, uint32(i%5)), 2, cfg.BlockSize, func(int) uint32 { return 7 })
			if err := c.submit(s, time.Now()); err != nil {
				t.Fatal(err)
			}
			drain(c)
			c.pool.log.flush(time.Now())
			b, err := kvindex.Decode(p.buffer[len(p.buffer)-1].payload)
			if err != nil {
				t.Fatal(err)
			}
			if b.UnknownEvents+b.UnknownKeys+b.UnknownTokens > 0 || b.Rank != 0 {
				t.Fatalf("%+v", b)
			}
			if err := x.Apply("a", uint64(i), b); err != nil {
				t.Fatal(err)
			}
			st, _ := x.Target("a")
			if got, want := st.Blocks+st.Orphans, len(c.pool.cached); got != want {
				t.Fatalf("%+v, request %d: %d blocks, the pool has %d", e, i, got, want)
			}
		}
	}
}

func TestEventsConfig(t *testing.T) {
	for _, c := range []Config{{Events: &Events{}, Instant: true}, {Events: &Events{Rank: -1}},
		{Events: &Events{Buffer: -1}}, {Events: &Events{HighWater: -1}}, {Events: &Events{Addr: "nowhere"}}} {
		if s, err := New(c); err == nil || !strings.Contains(err.Error(), "Events") {
			if s != nil {
				s.Close()
			}
			t.Errorf("%+v: %v", c.Events, err)
		}
	}
}
