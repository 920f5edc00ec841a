package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/share"
	"github.com/warmroute/router/strategy/leastwork"
)

// countingBus is the bus of a gateway of which only the frames are wanted.
type countingBus struct {
	share.Bus
	frames [][]byte
	bytes  int
}

func (b *countingBus) Publish(_ string, data []byte) error {
	b.bytes += len(data)
	b.frames = append(b.frames, slices.Clone(data))
	return nil
}

// sharing is a gateway that shares, or not, on its own clock.
type sharing struct {
	now    time.Time
	bus    countingBus
	share  *share.Share // nil: it does not
	router *router.Router
}

func newSharing(n int, on bool) (*sharing, error) {
	s := &sharing{now: time.Unix(1_700_000_000, 0), bus: countingBus{Bus: share.NewMemory()}}
	clock := func() time.Time { return s.now }
	if on {
		var err error
		s.share, err = share.New(share.Config{Bus: &s.bus, Secret: "the secret of a budget", Now: clock})
		if err != nil {
			return nil, err
		}
	}
	v, err := loadview.New(loadview.Config{Share: s.share})
	if err != nil {
		return nil, err
	}
	members := make([]loadview.Member, n)
	for i := range members {
		members[i].ID = fmt.Sprintf("replica-%d", i)
	}
	if err := v.Set(members); err != nil {
		return nil, err
	}
	w, err := leastwork.New(leastwork.Config{Share: s.share})
	if err != nil {
		return nil, err
	}
	s.router = router.New(w, v, router.Options{})
	return s, nil
}

// step lets 10 ms pass, in which the gateway publishes.
func (s *sharing) step() {
	if s.share != nil {
		s.now = s.now.Add(10 * time.Millisecond)
		s.share.Poll()
	}
}

// shareRows measures a gateway that shares: the bytes and the time of a request, of a frame and of a mark.
func shareRows(t *table, o *options) error {
	t.say("sharing")
	const size = 14 << 10
	var texts []string
	for _, text := range o.chat.last {
		if len(text) >= size {
			texts = append(texts, text[:size])
		}
	}
	if len(texts) < 100 {
		return fmt.Errorf("only %d prompts of %d bytes", len(texts), size)
	}
	plain, err := newSharing(8, false)
	if err != nil {
		return err
	}
	one, err := newSharing(8, true)
	if err != nil {
		return err
	}
	one.step()
	before := one.bus.bytes
	ctx := context.Background()
	reply := strings.Repeat("a reply of a few hundred tokens ", 38)
	for _, text := range texts { // each event of a request in a frame of its own
		l, err := one.router.Route(ctx, router.Prompt{Model: scope, Text: text})
		if err != nil {
			return err
		}
		one.step()
		l.FirstToken()
		one.step()
		l.Done(router.Outcome{Stage: router.Finished, Status: 200, Reply: reply})
		one.step()
		if err := roundTrip(ctx, plain.router, text); err != nil {
			return err
		}
	}
	hellos := len(texts) * 3 / 25 * 64 // four a second, which a gateway sends anyhow
	per := (one.bus.bytes - before - hellos) / len(texts)
	t.check("bytes on the bus a request of 14 KB, each event in a frame of its own", "<= 200", per <= 200, "%d", per)

	took := func(s *sharing) time.Duration {
		best := time.Hour
		for range o.reps {
			d := newSamples(len(texts))
			for _, text := range texts {
				start := time.Now()
				l, err := s.router.Route(ctx, router.Prompt{Model: scope, Text: text})
				d.add(time.Since(start))
				if err != nil {
					continue
				}
				l.Done(router.Outcome{Stage: router.Finished, Status: 200})
				s.step()
			}
			best = min(best, d.p(0.5))
		}
		return best
	}
	without, with := took(plain), took(one)
	t.check("Route of such a prompt, 8 targets, beyond that without sharing", "<= 3 us",
		with-without <= 3*time.Microsecond,
		"%v (%v with, %v without)", (with - without).Round(10*time.Nanosecond), with, without)

	// Another gateway takes all of it in.
	bus := countingBus{Bus: share.NewMemory()}
	hear := hearing{countingBus: &bus}
	other, err := share.New(share.Config{Bus: &hear, Secret: "the secret of a budget"})
	if err != nil {
		return err
	}
	if _, err := other.Open(); err != nil {
		return err
	}
	start := time.Now()
	for _, f := range one.bus.frames {
		hear.receive(f)
	}
	took1 := time.Since(start) / time.Duration(len(one.bus.frames))
	t.check("a frame taken in", "<= 1 us a fact", took1 <= time.Microsecond, "%v a frame, of %d", took1,
		len(one.bus.frames))

	full, err := newSharing(8, true)
	if err != nil {
		return err
	}
	for i := 0; full.share.State().Evicted == 0 && i < 1<<16; i++ {
		text := fmt.Sprintf("%08d", i) + o.chat.last[i%len(o.chat.last)]
		if err := roundTrip(ctx, full.router, text); err != nil {
			return err
		}
		if i%16 == 0 {
			full.step()
		}
	}
	s := full.share.State()
	bytes := float64(s.Memory) / float64(max(s.Marks, 1))
	t.check("memory a mark, at the bound", "<= 40 bytes", bytes <= 40, "%.1f bytes, of %d marks", bytes, s.Marks)
	return nil
}

// hearing is a countingBus of which the subscriber is at hand.
type hearing struct {
	*countingBus
	receive func([]byte)
}

func (h *hearing) Subscribe(_ string, f func([]byte)) (func(), error) {
	h.receive = f
	return func() {}, nil
}
