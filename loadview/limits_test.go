package loadview

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmroute/router"
)

// ask routes one request of p with r and ends it with the Outcome that reply returns.
func ask(t *testing.T, r *router.Router, p router.Prompt, reply func(id string) router.Outcome) error {
	t.Helper()
	return r.Do(t.Context(), p, func(_ context.Context, l *router.Lease) (router.Outcome, error) {
		return reply(l.Decision().Target.ID), nil
	})
}

func served(string) router.Outcome { return router.Outcome{Status: 200} }

// Refusals that ask for an hour hold for their model and account alone; nor do they
// take a fleet away from good requests of the same.
func TestLimitHoldsForWhomItWasGiven(t *testing.T) {
	for _, status := range []int{429, 503} {
		synctest.Test(t, func(t *testing.T) {
			v := newView(t, Config{}, 4)
			r := router.New(pickLeast{}, v, router.Options{Backoff: -1, MaxRetryAfter: -1})
			slow := router.Prompt{Model: "slow", Account: "x"}
			others := []router.Prompt{{Model: "fast", Account: "x"}, {Model: "slow", Account: "y"}, {}}
			for range 5 {
				err := ask(t, r, slow, func(string) router.Outcome {
					return router.Outcome{Status: status, RetryAfter: time.Hour}
				})
				if err == nil {
					t.Fatal("it is served")
				}
				for range 1000 {
					for _, p := range others {
						first := true
						if err := ask(t, r, p, func(string) router.Outcome {
							if !first {
								t.Errorf("%+v is sent twice", p)
							}
							first = false
							return router.Outcome{Status: 200}
						}); err != nil {
							t.Fatalf("%+v: %v", p, err)
						}
					}
				}
				cs, err := r.Explain(t.Context(), slow)
				if err != nil {
					t.Fatal(err)
				}
				full := 0
				for _, c := range cs {
					if c.Target.State == router.Full {
						full++
					}
				}
				if full == 0 {
					t.Error("Explain has no full target for it")
				}
			}
			time.Sleep(DefaultFullFor)
			for i := range 4 {
				if err := ask(t, r, slow, served); err != nil {
					t.Errorf("a second after the overload, request %d: %v", i, err)
				}
			}
			for range 100 {
				if err := ask(t, r, slow, served); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// While another member serves, a Retry-After is obeyed to its end.
func TestRetryAfterIsObeyedBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{Jitter: -1}, 2)
		r := router.New(pickLeast{}, v, router.Options{})
		send(t, v, "vllm-0").Done(router.Outcome{Status: 429, RetryAfter: time.Minute})
		for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(time.Second) {
			if err := ask(t, r, router.Prompt{}, func(id string) router.Outcome {
				if id == "vllm-0" {
					t.Errorf("it was asked after %v", time.Since(start))
				}
				return router.Outcome{Status: 200}
			}); err != nil {
				t.Fatal(err)
			}
		}
		wantStates(t, v, router.Ready, router.Ready)
	})
}

// A fleet that refuses for long, whatever it asks for, is asked a few times a second,
// and serves within a second of the end.
func TestRecoveryAfterOverload(t *testing.T) {
	for _, retryAfter := range []time.Duration{0, time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			v := newView(t, Config{}, 4)
			r := router.New(pickLeast{}, v, router.Options{Backoff: -1, MaxRetryAfter: -1})
			asked, open := 0, false
			engine := func(string) router.Outcome {
				if open {
					return router.Outcome{Status: 200}
				}
				asked++
				return router.Outcome{Status: 503, RetryAfter: retryAfter}
			}
			const during = time.Minute
			for start := time.Now(); time.Since(start) < during; time.Sleep(time.Millisecond) {
				_ = ask(t, r, router.Prompt{Model: "m"}, engine)
			}
			if retryAfter > 0 && float64(asked) > 4*2*during.Seconds() {
				t.Errorf("Retry-After %v: the engines were asked %d times in %v", retryAfter, asked, during)
			}
			open = true
			end := time.Now()
			for ask(t, r, router.Prompt{Model: "m"}, engine) != nil {
				time.Sleep(time.Millisecond)
			}
			if d := time.Since(end); d > time.Second {
				t.Errorf("Retry-After %v: served %v after the end", retryAfter, d)
			}
			time.Sleep(DefaultFullFor)
			for range 4 {
				if err := ask(t, r, router.Prompt{Model: "m"}, engine); err != nil {
					t.Errorf("Retry-After %v: %v", retryAfter, err)
				}
			}
		})
	}
}

// The first token of a request that was tried frees the member; its stream goes on.
func TestFirstTokenLiftsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{Jitter: -1}, 1)
		send(t, v, a).Done(router.Outcome{Status: 503, RetryAfter: time.Hour})
		wantStates(t, v, router.Full)
		time.Sleep(emptyPause)
		_, f, err := v.ChoosePrompt(t.Context(), router.Prompt{}, leastLoaded)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := v.ChoosePrompt(t.Context(), router.Prompt{}, leastLoaded); err == nil {
			t.Error("a second one is tried")
		}
		f.FirstToken()
		wantStates(t, v, router.Ready)
		f.Done(router.Outcome{Status: 200})
	})
}

// The parties of a member are bounded, and their counts are right however many there
// are.
func TestLimitsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{}, 1)
		rng := rand.New(rand.NewPCG(1, 1))
		m := v.members[0]
		var live []router.Flight
		for range 20_000 {
			p := router.Prompt{Model: fmt.Sprint(rng.IntN(50)), Account: fmt.Sprint(rng.IntN(5))}
			_, f, err := v.ChoosePrompt(t.Context(), p, func(ts []router.Target) (router.Decision, error) {
				return router.Decision{Target: ts[0], Prompt: p}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			live = append(live, f)
			for len(live) > rng.IntN(200) {
				i := rng.IntN(len(live))
				live[i].Done([]router.Outcome{ok, full, {Status: 429, RetryAfter: time.Hour}, crash}[rng.IntN(4)])
				live[i] = live[len(live)-1]
				live = live[:len(live)-1]
			}
			if len(m.limits) > maxLimits+1 {
				t.Fatalf("%d limits", len(m.limits))
			}
			sum := int64(0)
			for _, l := range m.limits {
				sum += l.live
			}
			if sum != int64(len(live)) || sum != m.inFlight.Load() {
				t.Fatalf("the limits count %d, %d are in flight", sum, len(live))
			}
			time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
		}
		for _, f := range live {
			f.Done(ok)
		}
		time.Sleep(DefaultRetryAfterMax)
		wantStates(t, v, router.Ready)
		if v.full != 0 {
			t.Errorf("%d members are counted as full", v.full)
		}
	})
}

// Members that all refused a moment ago without a Retry-After are asked at once if
// no other one is left.
func TestRefusalOfAllLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{}, 2)
		r := router.New(pickLeast{}, v, router.Options{Backoff: -1})
		for range 100 {
			if ask(t, r, router.Prompt{}, func(string) router.Outcome { return full }) == nil {
				t.Fatal("it is served")
			}
			if err := ask(t, r, router.Prompt{}, served); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A request that waits because of a Retry-After is sent as soon as a place is free.
func TestRetryAfterEndsWithThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{}, 2)
		r := router.New(pickLeast{}, v, router.Options{})
		for range 2 { // both are full, with one of ours each
			l, err := r.Route(t.Context(), router.Prompt{})
			if err != nil {
				t.Fatal(err)
			}
			refused, err := r.Assign(t.Context(), router.Prompt{}, l.Decision().Target.ID)
			if err != nil {
				t.Fatal(err)
			}
			refused.Done(router.Outcome{Status: 503, RetryAfter: time.Minute})
			time.AfterFunc(150*time.Millisecond, func() { l.Done(router.Outcome{Status: 200}) })
		}
		third, err := r.Assign(t.Context(), router.Prompt{}, ids(v)[0])
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		next, err := third.Retry(t.Context(), router.Outcome{Status: 503, RetryAfter: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		next.Done(router.Outcome{Status: 200})
		if d := time.Since(start); d > 200*time.Millisecond {
			t.Errorf("it waited %v", d)
		}
	})
}
