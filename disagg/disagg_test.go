package disagg_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/disagg"
	"github.com/warmroute/router/vllmtest"
)

// alone returns the reply of one replica that does everything itself.
func alone(t *testing.T, b []byte) answer {
	t.Helper()
	f := newFleet(t, disagg.NIXL, 0, 1, disagg.Config{})
	a, err := f.ask(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestProtocols: the prompt comes by transfer, the text is one replica's own, both are counted.
func TestProtocols(t *testing.T) {
	b := body("hello", 4000)
	want := alone(t, b)
	for _, protocol := range []disagg.Protocol{disagg.NIXL, disagg.Stored, disagg.SGLang} {
		t.Run(string(protocol), func(t *testing.T) {
			f := newFleet(t, protocol, 2, 1, disagg.Config{Strict: protocol == disagg.SGLang})
			got, err := f.ask(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			if got.text != want.text {
				t.Errorf("the text is %q, not %q", got.text, want.text)
			}
			d := f.at["d0"].Stats()
			if share := float64(d.ExternalTokens) / float64(d.PromptTokens); share < 0.99 {
				t.Errorf("%v of the prompt came by transfer: %+v", share, d)
			}
			if n := f.at["p0"].Stats().Finished + f.at["p1"].Stats().Finished; n != 1 {
				t.Errorf("%d prefills", n)
			}
			if st := f.split.Stats(); st.Split != 1 || st.Stranded != 0 || st.PrefillFailed != 0 {
				t.Errorf("%+v", st)
			}
			if n := f.hub.Pinned(); n != 0 {
				t.Errorf("%d prompts are pinned", n)
			}
			f.idle()
		})
	}
}

// TestCounting: while the prefill target works, the decode target has the request in flight and no
// prefill; and afterwards the prefill target has nothing.
func TestCounting(t *testing.T) {
	f := newFleet(t, disagg.NIXL, 1, 1, disagg.Config{})
	loads := func() (p, d router.Load) {
		for _, s := range f.view.Snapshot() {
			if f.names[s.Target.ID] == "p0" {
				p = s.Target.Load
			} else {
				d = s.Target.Load
			}
		}
		return p, d
	}
	f.fault("p0", vllmtest.Faults{Hang: true})
	f.fault("d0", vllmtest.Faults{Hang: true})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := f.ask(ctx, body("x", 4000))
		ended <- err
	}()
	eventually(t, "both are counted", func() bool {
		p, d := loads()
		return p.InFlight == 1 && p.Prefill > 3000 && d.InFlight == 1 && d.Prefill == 0
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	f.idle()

	f.fault("p0", vllmtest.Faults{})
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, err := f.ask(ctx, body("y", 4000))
		ended <- err
	}()
	eventually(t, "decode alone is counted", func() bool {
		p, d := loads()
		return f.hub.Pinned() == 1 && p.InFlight == 0 && p.Prefill == 0 && d.InFlight == 1 && d.Prefill == 0
	})
	cancel()
	<-ended
	f.idle()
	if st := f.split.Stats(); st.Stranded != 1 {
		t.Errorf("%+v", st)
	}
}

// TestSkipped: if it does not pay, decode computes the prompt.
func TestSkipped(t *testing.T) {
	for _, c := range []struct {
		name            string
		cfg             disagg.Config
		prefill, tokens int
		fault           vllmtest.Faults
		want            disagg.Skip
	}{
		{"short", disagg.Config{}, 1, 100, vllmtest.Faults{}, disagg.SkipShort},
		{"idle", disagg.Config{MinInFlight: 1}, 1, 4000, vllmtest.Faults{}, disagg.SkipIdle},
		{"no target", disagg.Config{}, 0, 4000, vllmtest.Faults{}, disagg.SkipNoTarget},
		{"failed", disagg.Config{}, 1, 4000, vllmtest.Faults{Status: 500}, disagg.SkipFailed},
		{"refuses", disagg.Config{}, 1, 4000, vllmtest.Faults{Refuse: true}, disagg.SkipFailed},
		{"hangs", disagg.Config{PrefillTimeout: time.Millisecond}, 1, 4000, vllmtest.Faults{Hang: true}, disagg.SkipFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFleet(t, disagg.NIXL, c.prefill, 1, c.cfg)
			if c.prefill > 0 {
				f.fault("p0", c.fault)
			}
			if _, err := f.ask(t.Context(), body("x", c.tokens)); err != nil {
				t.Fatal(err)
			}
			st := f.split.Stats()
			if st.Skipped[c.want] != 1 || st.Split != 0 {
				t.Errorf("%+v", st)
			}
			f.idle()
		})
	}
}

// TestCached: a decode target with the conversation computes the little that is new.
func TestCached(t *testing.T) {
	f := newFleet(t, disagg.NIXL, 1, 2, disagg.Config{})
	for range 3 {
		if _, err := f.ask(t.Context(), body("x", 4000)); err != nil {
			t.Fatal(err)
		}
	}
	if st := f.split.Stats(); st.Split != 1 || st.Skipped[disagg.SkipShort] != 2 {
		t.Errorf("%+v", st)
	}
}

func TestStrict(t *testing.T) {
	f := newFleet(t, disagg.NIXL, 1, 1, disagg.Config{Strict: true})
	if _, err := f.ask(t.Context(), body("x", 10)); err != nil {
		t.Fatal(err)
	}
	f.fault("p0", vllmtest.Faults{Status: 500})
	if _, err := f.ask(t.Context(), body("y", 10)); !errors.Is(err, disagg.ErrPrefill) {
		t.Errorf("the error is %v", err)
	}
	f.fault("p0", vllmtest.Faults{Status: 422})
	var e *disagg.PrefillError
	if _, err := f.ask(t.Context(), body("z", 10)); !errors.As(err, &e) || e.Status != 422 || len(e.Body) == 0 {
		t.Errorf("the error is %v", err)
	}
	if n := f.at["d0"].Stats().Requests; n != 1 {
		t.Errorf("decode got %d requests", n)
	}
	b := []byte(`{"model":"m","prompt":"x","n":2}`)
	err := f.split.Do(t.Context(), router.Prompt{}, disagg.Request{Path: path, Body: b}, nil)
	if !errors.Is(err, disagg.ErrUnsupported) {
		t.Errorf("the error is %v", err)
	}
	f.idle()
}

// TestGone: a decode target that cannot fetch the blocks gets them once more.
func TestGone(t *testing.T) {
	f := newFleet(t, disagg.NIXL, 1, 1, disagg.Config{})
	f.fault("d0", vllmtest.Faults{Status: 500, Next: 1})
	a, err := f.ask(t.Context(), body("x", 4000))
	if err != nil || a.tries != 2 {
		t.Fatal(a, err)
	}
	if st := f.split.Stats(); st.Again != 1 || st.Split != 2 {
		t.Errorf("%+v", st)
	}
	f.idle()
}

// TestReused: a decode target that fails before its first token is followed by another, with the same
// parameters if it was not reached, and else with those of a second prefill at the same target.
func TestReused(t *testing.T) {
	for _, fault := range []vllmtest.Faults{{Refuse: true}, {Hang: true}, {Status: 503}} {
		var f *fleet
		cfg := disagg.Config{DecodeTimeout: time.Minute}
		if fault.Hang {
			cfg.DecodeTimeout = 2 * time.Second // which the other target must not meet
		}
		var at []string
		cfg.Trace.Prefilled = func(_ context.Context, p, d router.Decision, _ time.Duration) {
			if at = append(at, p.Target.ID); len(at) == 1 {
				f.fault(f.names[d.Target.ID], fault) // the one that was chosen
			}
		}
		f = newFleet(t, disagg.NIXL, 2, 2, cfg)
		a, err := f.ask(t.Context(), body("x", 4000))
		if err != nil || a.tries != 2 {
			t.Fatalf("%+v: %+v, %v", fault, a, err)
		}
		st := f.split.Stats()
		again := uint64(1)
		if fault.Refuse {
			again = 0
		}
		if st.Reused != 1-again || st.Split != 1+again || st.Again != again || st.Stranded != again ||
			(st.Silent == 1) != fault.Hang || at[0] != at[len(at)-1] {
			t.Errorf("%+v: %+v", fault, st)
		}
		if n := f.at[a.from].Stats().ExternalTokens; n < 3900 {
			t.Errorf("%+v: %d tokens came by transfer", fault, n)
		}
		f.idle()
	}
}

// TestExpired: parameters of blocks that are no more are not sent.
func TestExpired(t *testing.T) {
	var f *fleet
	cfg := disagg.Config{PinnedFor: time.Nanosecond}
	cfg.Trace.Prefilled = func(_ context.Context, _, d router.Decision, _ time.Duration) {
		if f.split.Stats().Split == 1 {
			f.fault(f.names[d.Target.ID], vllmtest.Faults{Refuse: true})
		}
	}
	f = newFleet(t, disagg.NIXL, 2, 2, cfg)
	if a, err := f.ask(t.Context(), body("x", 4000)); err != nil || a.tries != 2 {
		t.Fatal(a, err)
	}
	if st := f.split.Stats(); st.Expired != 1 || st.Split != 2 || st.Reused != 0 {
		t.Errorf("%+v", st)
	}
	if a, b := f.at["p0"].Stats().Requests, f.at["p1"].Stats().Requests; a*b != 0 {
		t.Errorf("the second prefill was not at the first one's target: %d and %d", a, b)
	}
}

func TestHostile(t *testing.T) {
	f := newFleet(t, disagg.NIXL, 1, 1, disagg.Config{})
	b := []byte(`{"model":"m","messages":[],"kv_transf\u0065r_params":{"do_remote_prefill":true}}`)
	if err := f.split.Do(t.Context(), router.Prompt{}, disagg.Request{Path: path, Body: b}, nil); err == nil {
		t.Error("no error")
	}
	if n := f.at["d0"].Stats().Restarts; n != 0 {
		t.Errorf("the engine died %d times", n)
	}
}
