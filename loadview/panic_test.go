package loadview

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/warmroute/router"
)

// states returns the states in which v offers its members, which Snapshot has too.
func states(t *testing.T, v *View) (all []router.State) {
	t.Helper()
	_, _, _ = v.Choose(t.Context(), func(ts []router.Target) (router.Decision, error) {
		for _, x := range ts {
			all = append(all, x.State)
		}
		return router.Decision{}, errLook
	})
	for i, s := range v.Snapshot() {
		if s.Target.State != all[i] {
			t.Errorf("Snapshot has %v, Choose offers %v", s.Target.State, all[i])
		}
	}
	return all
}

func wantStates(t *testing.T, v *View, want ...router.State) {
	t.Helper()
	if diff := cmp.Diff(want, states(t, v)); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}

// failAt lets a request fail as often on the member as cools it.
func failAt(t *testing.T, v *View, id int, o router.Outcome) {
	t.Helper()
	for range DefaultCoolAfter {
		send(t, v, fmt.Sprint("vllm-", id)).Done(o)
	}
}

// With n members, up to half may be out; beyond it nobody is.
func TestPanicThreshold(t *testing.T) {
	for n := 1; n <= 9; n++ {
		var told []bool
		v := newView(t, Config{Trace: Trace{PanicChanged: func(_ *View, on bool) { told = append(told, on) }}}, n)
		for out := 1; out <= n; out++ {
			failAt(t, v, out-1, refused)
			panics := n > 1 && 2*out > n
			for i, s := range v.Snapshot() {
				want := router.Ready
				if i < out && !panics {
					want = router.Cooling
				}
				if s.Target.State != want || (s.Judged == router.Cooling) != (i < out) {
					t.Errorf("%d of %d are out: %+v, want %v", out, n, s, want)
				}
			}
			states(t, v)
			if v.Panicking() != panics || panics != (len(told) == 1) {
				t.Errorf("%d of %d are out: panicking %v, told %v", out, n, v.Panicking(), told)
			}
		}
		if n == 1 {
			continue
		}
		for i := range n {
			send(t, v, fmt.Sprint("vllm-", i)).Done(ok)
		}
		if v.Panicking() || len(told) != 2 {
			t.Errorf("%d members: all serve, and it panics: %v", n, told)
		}
	}
}

func TestPanicThresholdConfig(t *testing.T) {
	v := newView(t, Config{PanicThreshold: -1}, 2)
	failAt(t, v, 0, refused)
	failAt(t, v, 1, refused)
	wantStates(t, v, router.Cooling, router.Cooling)
	changed := v.Changed()
	if err := v.SetConfig(Config{}); err != nil {
		t.Fatal(err)
	}
	wantStates(t, v, router.Ready, router.Ready)
	if !closed(changed) {
		t.Error("nobody who waits is woken")
	}
	if err := v.SetConfig(Config{PanicThreshold: 1}); err != nil {
		t.Fatal(err)
	}
	wantStates(t, v, router.Cooling, router.Cooling)
	var bad *router.ConfigError
	if _, err := New(Config{PanicThreshold: 1.1}); !errors.As(err, &bad) || bad.Field != "PanicThreshold" {
		t.Errorf("%v", err)
	}
}

// States by somebody's word are obeyed, and those members do not count; and so is a
// wish to be left alone.
func TestPanicObeysWords(t *testing.T) {
	v := newView(t, Config{FullFor: -1}, 5)
	if v.SetDraining("vllm-0", true) != nil || v.SetUnhealthy("vllm-1", true) != nil {
		t.Fatal("no member")
	}
	send(t, v, "vllm-2").Done(router.Outcome{Status: 429, RetryAfter: time.Minute})
	failAt(t, v, 2, refused)
	wantStates(t, v, router.Draining, router.Unhealthy, router.Cooling, router.Ready, router.Ready)
	failAt(t, v, 3, refused)
	wantStates(t, v, router.Draining, router.Unhealthy, router.Cooling, router.Ready, router.Ready)
	if !v.Panicking() {
		t.Error("two of the three that count are out")
	}
	if v.SetDraining("vllm-4", true) != nil || v.SetDraining("vllm-2", true) != nil {
		t.Fatal("no member")
	}
	// One is left, and alone it is out by its failures.
	wantStates(t, v, router.Draining, router.Unhealthy, router.Draining, router.Cooling, router.Draining)
}

// A member at which nothing listens is avoided while another one is reachable.
func TestPanicAvoidsUnreachable(t *testing.T) {
	dead := router.Outcome{Err: fmt.Errorf("sending: %w", errDial)}
	v := newView(t, Config{}, 3)
	failAt(t, v, 0, dead)
	failAt(t, v, 1, dead)
	wantStates(t, v, router.Cooling, router.Cooling, router.Ready)
	failAt(t, v, 2, crash)
	wantStates(t, v, router.Cooling, router.Cooling, router.Ready)
	send(t, v, "vllm-2").Done(dead) // nothing is reachable
	wantStates(t, v, router.Ready, router.Ready, router.Ready)
	send(t, v, "vllm-1").Done(router.Outcome{Status: 404}) // it listens
	wantStates(t, v, router.Cooling, router.Ready, router.Cooling)
}

// Live success in a panic ends what took the member out, its breaker too.
func TestPanicEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{CoolAfter: -1, Breaker: true, BreakerFailures: 1}, 2)
		for i := range 2 {
			send(t, v, fmt.Sprint("vllm-", i)).Done(refused)
		}
		wantStates(t, v, router.Ready, router.Ready)
		send(t, v, "vllm-0").FirstToken()
		if v.Panicking() {
			t.Error("one of two serves")
		}
		wantStates(t, v, router.Ready, router.Tripped)
	})
}

// An outage of the world, in which everything fails for a while: the first request
// after it is served.
func TestPanicServesAtOnceAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, cfg := range []Config{{}, {Breaker: true}} {
			v := newView(t, cfg, 4)
			r := router.New(pickLeast{}, v, router.Options{})
			for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
				err := r.Do(t.Context(), router.Prompt{}, func(context.Context, *router.Lease) (router.Outcome, error) {
					return router.Outcome{}, errDial
				})
				if errors.Is(err, router.ErrNoTarget) {
					t.Fatal(err)
				}
			}
			err := r.Do(t.Context(), router.Prompt{}, func(context.Context, *router.Lease) (router.Outcome, error) {
				return router.Outcome{Status: 200}, nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// Each View over a pool has its own fleet, and its own panic.
func TestPanicOfOneView(t *testing.T) {
	big := newView(t, Config{}, 5)
	small := big.Share()
	set(t, small, Member{ID: "vllm-0"}, Member{ID: "vllm-1"})
	failAt(t, big, 0, refused)
	failAt(t, big, 1, refused)
	wantStates(t, big, router.Cooling, router.Cooling, router.Ready, router.Ready, router.Ready)
	wantStates(t, small, router.Ready, router.Ready)
	big.Remove("vllm-4")
	big.Remove("vllm-3")
	wantStates(t, big, router.Ready, router.Ready, router.Ready)
	if err := big.Put(Member{ID: "vllm-9"}); err != nil {
		t.Fatal(err)
	}
	wantStates(t, big, router.Cooling, router.Cooling, router.Ready, router.Ready)
	small.Remove("vllm-0")
	wantStates(t, small, router.Cooling)
}

// A part of a View panics by its own census, and is tried when it is full, whatever
// the rest of the View does.
func TestPartOfAView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{Jitter: -1}, 5)
		part := func(n int) (all []router.State) {
			t.Helper()
			_, _, err := v.ChoosePart(t.Context(), router.Prompt{},
				func(ts []router.Target) []router.Target { return ts[:n] },
				func(ts []router.Target) (router.Decision, error) {
					for _, x := range ts {
						all = append(all, x.State)
					}
					return router.Decision{}, errLook
				})
			if err != errLook {
				t.Error(err)
			}
			return all
		}
		want := func(n int, want ...router.State) {
			t.Helper()
			if diff := cmp.Diff(want, part(n)); diff != "" {
				t.Errorf("%d of them (-want +got):\n%s", n, diff)
			}
		}
		failAt(t, v, 0, refused)
		want(1, router.Cooling)
		want(2, router.Cooling, router.Ready)
		failAt(t, v, 1, refused)
		want(2, router.Ready, router.Ready)
		want(4, router.Cooling, router.Cooling, router.Ready, router.Ready)
		failAt(t, v, 2, refused) // the whole View panics
		want(5, router.Ready, router.Ready, router.Ready, router.Ready, router.Ready)
		want(1, router.Cooling)
		for i := range 5 {
			send(t, v, fmt.Sprint("vllm-", i)).Done(ok)
		}
		send(t, v, "vllm-0").Done(router.Outcome{Status: 429, RetryAfter: time.Hour})
		want(1, router.Full)
		time.Sleep(emptyPause)
		want(1, router.Ready)
		want(2, router.Full, router.Ready)
	})
}
