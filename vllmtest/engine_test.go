package vllmtest

import (
	"testing"
	"testing/synctest"
	"time"
)

func testConfig(t *testing.T, c Config) *Config {
	t.Helper()
	c, err := c.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return &c
}

func promptOf(n int, salt uint32) []uint32 {
	p := make([]uint32, n)
	for i := range p {
		p[i] = uint32(i)<<8 | salt
	}
	return p
}

func testSeq(cfg *Config, prompt []uint32, want int) *seq {
	return newSeq(rootKey("", ""), prompt, want, cfg.BlockSize, func(i int) uint32 { return uint32(1e6 + i) })
}

// await returns when s has n tokens.
func await(e *engine, s *seq, n int) {
	for {
		if got, _, ended := e.progress(s); got >= n || ended {
			return
		}
		<-s.wake
	}
}

// near compares times up to the rounding of the cost formula.
func near(a, b time.Duration) bool { return max(a-b, b-a) <= time.Microsecond }

func TestStepTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t, Config{})
		e := startEngine(cfg, nil)
		defer e.close()
		run := func(prompt []uint32) (first, second time.Duration, cached int) {
			start := time.Now()
			s := testSeq(cfg, prompt, 2)
			if err := e.submit(s); err != nil {
				t.Fatal(err)
			}
			await(e, s, 1)
			first = time.Since(start)
			await(e, s, 2)
			_, cached, _ = e.progress(s)
			return first, time.Since(start) - first, cached
		}
		const us = time.Microsecond
		cold, decode, cached := run(promptOf(4096, 1))
		// 14 ms + 4096 * 46 us + 4096 * 2047.5 * 0.8 ns, then 14 ms + 4096 * 56 ns
		if want := 14000*us + 188416*us + 6709*us; !near(cold, want) || cached != 0 {
			t.Errorf("a miss of 4,096 tokens takes %v, want %v; %d cached", cold, want, cached)
		}
		if want := 14229 * us; !near(decode, want) {
			t.Errorf("a token takes %v, want %v", decode, want)
		}
		warm, _, cached := run(promptOf(4096, 1))
		// Its last block is computed again: 16 tokens with 4080 before them.
		if want := 14000*us + 736*us + 52*us; !near(warm, want) || cached != 4080 {
			t.Errorf("a hit takes %v, want %v; %d cached", warm, want, cached)
		}
		// 20,000 tokens take three steps: 8192, 8192 and 3616.
		long, _, _ := run(promptOf(20000, 2))
		want := 3*14000*us + 920000*us + time.Duration(0.8*20000*19999/2)
		if !near(long, want) {
			t.Errorf("20,000 tokens take %v, want %v", long, want)
		}
	})
}

// A long prefill makes everybody wait who decodes or queues behind it.
func TestBusyReplicaIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t, Config{})
		e := startEngine(cfg, nil)
		defer e.close()
		a := testSeq(cfg, promptOf(16, 1), 50)
		if err := e.submit(a); err != nil {
			t.Fatal(err)
		}
		await(e, a, 2)
		idle := time.Now()
		await(e, a, 3)
		alone := time.Since(idle)
		b, c := testSeq(cfg, promptOf(30000, 2), 1), testSeq(cfg, promptOf(16, 3), 1)
		start := time.Now()
		for _, s := range []*seq{b, c} {
			if err := e.submit(s); err != nil {
				t.Fatal(err)
			}
		}
		await(e, a, 5)
		if beside := time.Since(start); beside < 20*alone {
			t.Errorf("two tokens beside a prefill take %v, one alone %v", beside, alone)
		}
		await(e, c, 1)
		if ttft := time.Since(start); ttft < time.Second {
			t.Errorf("16 tokens behind 30,000 take %v", ttft)
		}
		if m := e.snapshot(); m.running+m.waiting == 0 {
			t.Error("nothing is running")
		}
	})
}

func TestTimeScaleAndSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took [2]time.Duration
		for i, slow := range []float64{0, 5} {
			cfg := testConfig(t, Config{TimeScale: 0.1})
			e := startEngine(cfg, nil)
			s := testSeq(cfg, promptOf(1000, 1), 10)
			s.slow = slow
			start := time.Now()
			if err := e.submit(s); err != nil {
				t.Fatal(err)
			}
			await(e, s, 10)
			took[i] = time.Since(start)
			e.close()
		}
		// 10 steps of 14 ms, 46 ms of prefill, and some attention, a tenth of it.
		if took[0] < 18*time.Millisecond || took[0] > 20*time.Millisecond || !near(took[1], 5*took[0]) {
			t.Errorf("%v, and %v where slow", took[0], took[1])
		}
	})
}

// What is aborted frees its blocks and leaves in the cache what it had computed.
func TestAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t, Config{MaxSeqs: 1})
		e := startEngine(cfg, nil)
		defer e.close()
		running, queued := testSeq(cfg, promptOf(1000, 1), 1000), testSeq(cfg, promptOf(1000, 2), 1000)
		for _, s := range []*seq{running, queued} {
			if err := e.submit(s); err != nil {
				t.Fatal(err)
			}
		}
		await(e, running, 1)
		if m := e.snapshot(); m.running != 1 || m.waiting != 1 || m.blocksUsed == 0 {
			t.Fatalf("%d running, %d waiting", m.running, m.waiting)
		}
		e.abort(queued)
		e.abort(running)
		e.abort(running)
		if m := e.snapshot(); m.running != 0 || m.waiting != 0 || m.blocksUsed != 0 || m.aborted != 2 {
			t.Fatalf("%+v", m)
		}
		again := testSeq(cfg, promptOf(1000, 1), 1)
		if err := e.submit(again); err != nil {
			t.Fatal(err)
		}
		await(e, again, 1)
		if _, cached, _ := e.progress(again); cached != 992 {
			t.Errorf("%d tokens cached, want 992", cached)
		}
	})
}
