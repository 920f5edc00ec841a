package loadview

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/warmroute/router"
)

var (
	ok      = router.Outcome{Stage: router.Finished, Status: 200}
	refused = router.Outcome{Stage: router.Failed, Err: errors.New("connection refused")}
)

const a = "vllm-0"

func fail(t *testing.T, v *View, n int) {
	t.Helper()
	for range n {
		send(t, v, a).Done(refused)
	}
}

func wantState(t *testing.T, v *View, want router.State) {
	t.Helper()
	if got := status(t, v, a).Target.State; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// readyIn is until a is to be Ready, and proves it.
func readyIn(t *testing.T, v *View) time.Duration {
	t.Helper()
	d := status(t, v, a).ReadyIn
	if d > 0 {
		time.Sleep(d - 1)
		wantState(t, v, router.Cooling)
		time.Sleep(time.Nanosecond)
	}
	wantState(t, v, router.Ready)
	return d
}

func TestCoolDownDoubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{Jitter: -1}, 2)
		fail(t, v, DefaultCoolAfter-1)
		wantState(t, v, router.Ready)
		var got []time.Duration
		for range 9 {
			fail(t, v, 1)
			got = append(got, readyIn(t, v)/time.Second)
		}
		want := []time.Duration{5, 10, 20, 40, 80, 160, 300, 300, 300}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("cool-downs in seconds (-want +got):\n%s", diff)
		}
		send(t, v, a).Done(ok)
		fail(t, v, DefaultCoolAfter-1)
		wantState(t, v, router.Ready)
		fail(t, v, 1)
		if d := readyIn(t, v); d != 5*time.Second {
			t.Errorf("after a success the first cool-down is %v", d)
		}
	})
}

func TestJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r uint64
		for _, c := range []struct {
			rand uint64
			want time.Duration
		}{{0, 5 * time.Second}, {1 << 63, 4500 * time.Millisecond}, {1<<64 - 1, 4 * time.Second}} {
			r = c.rand
			v := newView(t, Config{Rand: func() uint64 { return r }}, 1)
			fail(t, v, DefaultCoolAfter)
			if d := readyIn(t, v); (d - c.want).Abs() > time.Microsecond {
				t.Errorf("rand %d: %v, want %v", c.rand, d, c.want)
			}
		}
	})
}

// A crash fails all that is in flight; that is one event, however late it is
// reported.
func TestOneCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{Jitter: -1}, 2)
		var burst []router.Flight
		for range 60 {
			burst = append(burst, send(t, v, a))
		}
		for _, f := range burst[:50] {
			f.Done(refused)
		}
		if d := readyIn(t, v); d != 5*time.Second {
			t.Errorf("50 failures at once cool for %v", d)
		}
		for _, f := range burst[50:] { // sent before the cool-down, found out after it
			f.Done(refused)
		}
		wantState(t, v, router.Ready)
		during := func() router.Flight { fail(t, v, 1); return send(t, v, a) }()
		if d := readyIn(t, v); d != 10*time.Second {
			t.Errorf("the next cool-down is %v", d)
		}
		during.Done(refused)
		wantState(t, v, router.Ready)
		fail(t, v, 1)
		wantState(t, v, router.Cooling)
	})
}

func TestSuccessEndsCoolDown(t *testing.T) {
	v := newView(t, Config{}, 2)
	late := send(t, v, a)
	fail(t, v, DefaultCoolAfter)
	other := send(t, v, a) // another program chose it
	wantState(t, v, router.Cooling)
	other.Done(ok)
	wantState(t, v, router.Ready)
	for range 3 {
		late.Done(refused)
	}
	if n := status(t, v, a).Failures; n != 0 {
		t.Errorf("a request of before the recovery counts as %d failures", n)
	}
}

// A full engine turns new requests down while old streams finish one by one:
// those do not bring it back.
func TestOldStreamsDoNotClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{Jitter: -1, Breaker: true, FullFor: -1}, 2)
		var old []router.Flight
		for range 20 {
			old = append(old, send(t, v, a))
		}
		full := router.Outcome{Stage: router.Failed, Status: 503}
		for i := range DefaultCoolAfter {
			send(t, v, a).Done(full)
			old[i].Done(ok)
		}
		wantState(t, v, router.Cooling)
		old[10].Done(ok)
		wantState(t, v, router.Cooling)
		if d := readyIn(t, v); d != 5*time.Second {
			t.Errorf("cooled for %v", d)
		}
		old[11].Done(ok)
		send(t, v, a).Done(full)
		if d := readyIn(t, v); d != 10*time.Second {
			t.Errorf("and on trial for %v", d)
		}
		send(t, v, a).Done(full) // five in a row: the breaker too
		wantState(t, v, router.Tripped)
		old[12].Done(ok)
		time.Sleep(DefaultBreakerOpen)
		probe := send(t, v, a)
		probe.FirstToken()
		wantState(t, v, router.Ready) // the stream goes on
		if n := status(t, v, a).Failures; n != 0 {
			t.Errorf("%d failures", n)
		}
		probe.Done(refused)
		if n := status(t, v, a).Failures; n != 1 {
			t.Errorf("a stream that broke is %d failures", n)
		}
	})
}

func TestWhatIsAFailure(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     router.Outcome
		want  router.State
		clear bool
	}{
		{"no status", refused, router.Cooling, false},
		{"500", router.Outcome{Stage: router.Failed, Status: 500}, router.Cooling, false},
		{"502, stage derived", router.Outcome{Status: 502}, router.Cooling, false},
		{"error, stage derived", router.Outcome{Err: errors.New("EOF")}, router.Cooling, false},
		{"408", router.Outcome{Status: 408}, router.Cooling, false},
		{"429", router.Outcome{Status: 429}, router.Full, false},
		{"503", router.Outcome{Status: 503}, router.Full, false},
		{"529", router.Outcome{Status: 529}, router.Full, false},
		{"404", router.Outcome{Status: 404}, router.Ready, false},
		{"400", router.Outcome{Stage: router.Failed, Status: 400}, router.Ready, false},
		{"canceled", router.Outcome{Stage: router.Canceled, Err: errors.New("gone")}, router.Ready, false},
		{"canceled, stage derived", router.Outcome{Err: context.Canceled}, router.Ready, false},
		{"not sent", router.Outcome{Stage: router.Failed, NotSent: true}, router.Ready, false},
		{"not sent, stage derived", router.Outcome{NotSent: true, Err: errors.New("no connection")}, router.Ready, false},
		{"an unknown stage", router.Outcome{Stage: 200}, router.Ready, true},
		{"finished", ok, router.Ready, true},
		{"finished, whatever the status", router.Outcome{Stage: router.Finished, Status: 500}, router.Ready, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newView(t, Config{CoolAfter: 2}, 1)
			fail(t, v, 1)
			send(t, v, a).Done(c.o)
			wantState(t, v, c.want)
			if got := status(t, v, a).Failures; (got == 0) != c.clear {
				t.Errorf("%d failures", got)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	after := func(status int, d time.Duration) router.Outcome {
		return router.Outcome{Stage: router.Failed, Status: status, RetryAfter: d}
	}
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{FullFor: -1}, 1)
		for range 4 { // it does not double
			send(t, v, a).Done(after(429, 7*time.Second))
			if d := readyIn(t, v); d != 7*time.Second {
				t.Errorf("429 with 7 s cools for %v", d)
			}
		}
		if n := status(t, v, a).Failures; n != 0 {
			t.Errorf("a 429 with a Retry-After counts as %d failures", n)
		}
		send(t, v, a).Done(after(503, time.Hour))
		if d := readyIn(t, v); d != DefaultRetryAfterMax {
			t.Errorf("an hour is obeyed for %v", d)
		}
		if n := status(t, v, a).Failures; n != 1 {
			t.Errorf("a 503 with a Retry-After counts as %d failures", n)
		}
		running := send(t, v, a)
		send(t, v, a).Done(after(429, 9*time.Second))
		time.Sleep(time.Second)
		send(t, v, a).Done(after(429, time.Second)) // a shorter one takes nothing back
		running.Done(ok)
		if d := readyIn(t, v); d != 8*time.Second {
			t.Errorf("after a success and a shorter Retry-After: %v left of 8 s", d)
		}
		send(t, v, a).Done(after(404, time.Minute)) // the client's own fault
		send(t, v, a).Done(after(429, -time.Minute))
		wantState(t, v, router.Ready)
	})
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{RetryAfterMax: -1, FullFor: -1}, 1)
		send(t, v, a).Done(after(429, time.Minute))
		wantState(t, v, router.Ready)
		if n := status(t, v, a).Failures; n != 1 {
			t.Errorf("%d failures", n)
		}
	})
}

func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{Breaker: true, CoolAfter: -1}, 2)
		early := send(t, v, a)
		trip := func() {
			t.Helper()
			fail(t, v, DefaultBreakerFailures-1)
			wantState(t, v, router.Ready)
			fail(t, v, 1)
			wantState(t, v, router.Tripped)
		}
		trip()
		early.Done(ok) // only what half-open lets through decides
		assigned := send(t, v, a)
		wantState(t, v, router.Tripped)
		if d := status(t, v, a).ReadyIn; d != DefaultBreakerOpen {
			t.Errorf("open for %v", d)
		}
		time.Sleep(DefaultBreakerOpen)

		look := func(want router.State) {
			t.Helper()
			for range 3 {
				wantState(t, v, want)
				_, f, err := v.Choose(t.Context(), func(ts []router.Target) (router.Decision, error) {
					if ts[0].State != want {
						t.Errorf("offered as %v, want %v", ts[0].State, want)
					}
					return router.Decision{Target: ts[1]}, nil
				})
				if err != nil {
					t.Fatal(err)
				}
				f.Done(ok)
			}
		}
		look(router.Ready)
		probe := send(t, v, a)
		look(router.Tripped)
		if d := status(t, v, a).ReadyIn; d != 0 {
			t.Errorf("nobody knows how long a request takes: %v", d)
		}
		assigned.Done(refused)
		send(t, v, a).Done(ok)
		look(router.Tripped)
		for _, o := range []router.Outcome{{Stage: router.Canceled}, {Status: 404}} {
			probe.Done(o)
			look(router.Ready)
			probe = send(t, v, a)
			look(router.Tripped)
		}
		probe.Done(refused)
		look(router.Tripped)
		time.Sleep(DefaultBreakerOpen - 1)
		look(router.Tripped)
		time.Sleep(time.Nanosecond)
		before := send(t, v, a) // the probe
		also := send(t, v, a)
		before.Done(ok)
		look(router.Ready)
		also.Done(refused) // sent before the recovery
		trip()             // so five more are needed
	})
}

func TestBreakerLetsOneThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{Breaker: true, CoolAfter: -1}, 1)
		fail(t, v, DefaultBreakerFailures)
		time.Sleep(DefaultBreakerOpen)
		passed := make(chan router.Flight, 200)
		for range 200 {
			go func() {
				if _, f, err := v.Choose(t.Context(), leastLoaded); err == nil {
					passed <- f
				} else if !errors.Is(err, router.ErrNoTarget) {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		if len(passed) != 1 {
			t.Fatalf("half-open let %d through", len(passed))
		}
		(<-passed).Done(ok)
		wantState(t, v, router.Ready)
	})
}

func TestBreakerOffByDefault(t *testing.T) {
	v := newView(t, Config{CoolAfter: -1}, 1)
	fail(t, v, 1000)
	wantState(t, v, router.Ready)
}

func TestStatesSideBySide(t *testing.T) {
	v := newView(t, Config{}, 1)
	flag := func(f func(string, bool) error, on bool) {
		t.Helper()
		if err := f(a, on); err != nil {
			t.Fatal(err)
		}
	}
	busy := send(t, v, a)
	fail(t, v, DefaultCoolAfter)
	flag(v.SetUnhealthy, true)
	wantState(t, v, router.Unhealthy)
	flag(v.SetDraining, true)
	wantState(t, v, router.Draining)
	if err := v.Set([]Member{{ID: a}}); err != nil {
		t.Fatal(err)
	}
	wantState(t, v, router.Draining) // Set takes back only what Set said
	if s := status(t, v, a); s.Target.Load.InFlight != 1 || s.ReadyIn != 0 {
		t.Errorf("%+v", s)
	}
	flag(v.SetUnhealthy, false)
	flag(v.SetDraining, false)
	wantState(t, v, router.Cooling)
	busy.Done(ok)
	wantState(t, v, router.Cooling) // it was sent before the failures
	send(t, v, a).Done(ok)
	wantState(t, v, router.Ready)
	if err := v.SetDraining("nobody", true); !errors.Is(err, ErrUnknown) {
		t.Errorf("SetDraining of nobody: %v", err)
	}
}
