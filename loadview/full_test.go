package loadview

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warmroute/router"
)

var full = router.Outcome{Stage: router.Failed, Status: 503}

// A refusal is no failure: it never cools and never trips, however often it comes.
func TestFullIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		v := newView(t, Config{Breaker: true, Jitter: -1, Trace: Trace{StateChanged: func(id string, from, to router.State) {
			told = append(told, fmt.Sprint(id, from, to))
		}}}, 1)
		for range 100 {
			send(t, v, a).Done(full)
			wantState(t, v, router.Full)
			time.Sleep(emptyPause)
			wantState(t, v, router.Ready) // for one
			one := send(t, v, a)
			wantState(t, v, router.Full)
			if s := status(t, v, a); s.Failures != 0 || s.ReadyIn <= 0 || s.ReadyIn > DefaultFullFor {
				t.Fatalf("%+v", s)
			}
			one.Done(full)
		}
		send(t, v, a)
		wantState(t, v, router.Full)
		time.Sleep(DefaultFullFor)
		wantState(t, v, router.Ready)
		// Idle, and asked to wait: until then.
		v = newView(t, Config{Jitter: -1}, 1)
		send(t, v, a).Done(router.Outcome{Status: 429, RetryAfter: time.Minute})
		wantState(t, v, router.Full)
		if d := status(t, v, a).ReadyIn; d != time.Minute {
			t.Errorf("ready in %v", d)
		}
		time.Sleep(time.Minute)
		wantState(t, v, router.Ready)
		if len(told) != 0 {
			t.Errorf("StateChanged: %v", told)
		}
	})
}

// The requests in flight at a refusal are the limit. The end of one frees the
// member, whatever Retry-After says, and its successes raise the limit.
func TestFullUntilOneEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{Jitter: -1}, 1)
		var live []router.Flight
		for range 4 {
			live = append(live, send(t, v, a))
		}
		changed := v.Changed()
		send(t, v, a).Done(router.Outcome{Stage: router.Failed, Status: 429, RetryAfter: time.Minute})
		wantState(t, v, router.Full)
		time.Sleep(DefaultFullFor + time.Second)
		wantState(t, v, router.Full) // it asked for a minute
		if d := status(t, v, a).ReadyIn; d > DefaultFullFor || d <= 0 {
			t.Errorf("ready in %v, but one of four may end at any time", d)
		}
		if closed(changed) {
			t.Error("changed while it is full")
		}
		live[0].Done(router.Outcome{Stage: router.Canceled})
		wantState(t, v, router.Ready)
		if !closed(changed) {
			t.Error("nobody who waits is woken")
		}
		live[0] = send(t, v, a)
		wantState(t, v, router.Full)
		for i := range 4 { // as many successes as the limit
			live[i].Done(ok)
			live[i] = send(t, v, a)
		}
		wantState(t, v, router.Ready) // a fifth is tried
		send(t, v, a).Done(full)
		wantState(t, v, router.Full)
		time.Sleep(time.Minute)
		wantState(t, v, router.Ready)
	})
}

// Refusals of a burst come in any order; the least number counts.
func TestFullBurst(t *testing.T) {
	v := newView(t, Config{Jitter: -1}, 1)
	var live []router.Flight
	for range 24 {
		live = append(live, send(t, v, a))
	}
	for _, f := range live[8:] {
		f.Done(full)
	}
	wantState(t, v, router.Full)
	live[0].Done(ok)
	wantState(t, v, router.Ready)
	send(t, v, a)
	wantState(t, v, router.Full)
}

// The half-open breaker's request may meet a full member: the next one tries.
func TestFullAndBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{Breaker: true, BreakerFailures: 1, CoolAfter: -1, Jitter: -1}, 1)
		send(t, v, a).Done(refused)
		time.Sleep(DefaultBreakerOpen)
		send(t, v, a).Done(full)
		wantState(t, v, router.Full)
		time.Sleep(emptyPause)
		wantState(t, v, router.Ready)
		send(t, v, a).Done(ok)
		wantState(t, v, router.Ready)
		if v.byID[a].has(tripped) {
			t.Error("the breaker is not closed")
		}
	})
}

// engine is a replica that serves places requests at once, each for took, and
// answers refusal to more.
type limitedEngine struct {
	mu      sync.Mutex
	busy    int
	places  int
	took    time.Duration
	refusal router.Outcome
}

func (e *limitedEngine) serve(ctx context.Context) (router.Outcome, error) {
	e.mu.Lock()
	if e.busy >= e.places {
		e.mu.Unlock()
		time.Sleep(time.Millisecond)
		return e.refusal, nil
	}
	e.busy++
	e.mu.Unlock()
	select {
	case <-time.After(e.took):
	case <-ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy--
	return router.Outcome{Status: 200}, ctx.Err()
}

// goodput returns the requests a second that clients in a closed loop get served.
func goodput(t *testing.T, engines, clients int, refusal router.Outcome, cfg Config) (rate float64) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, cfg, engines)
		byID := map[string]*limitedEngine{}
		for _, id := range ids(v) {
			byID[id] = &limitedEngine{places: 8, took: 50 * time.Millisecond, refusal: refusal}
		}
		r := router.New(pickLeast{}, v, router.Options{})
		const during = 8 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), during)
		defer cancel()
		var wg sync.WaitGroup
		var mu sync.Mutex
		served := 0
		for range clients {
			wg.Go(func() {
				for ctx.Err() == nil {
					err := r.Do(ctx, router.Prompt{}, func(ctx context.Context, l *router.Lease) (router.Outcome, error) {
						return byID[l.Decision().Target.ID].serve(ctx)
					})
					if err == nil {
						mu.Lock()
						served++
						mu.Unlock()
						continue
					}
					time.Sleep(5 * time.Millisecond) // the client asks again at once
				}
			})
		}
		wg.Wait()
		for _, s := range v.Snapshot() {
			if s.Target.Load != (router.Load{Known: true}) {
				t.Errorf("%+v is left", s.Target)
			}
		}
		rate = float64(served) / during.Seconds()
	})
	return rate
}

// pickLeast is leastLoaded as a Strategy.
type pickLeast struct{}

func (pickLeast) Pick(_ context.Context, p router.Prompt, ts []router.Target) (router.Decision, error) {
	d, err := leastLoaded(ts)
	d.Prompt, d.Length = p, 0
	return d, err
}

func (pickLeast) Record(router.Decision, router.Outcome) {}

// TestGoodputUnderOverload holds a fleet of engines that refuse what is beyond
// their places to nine tenths of its throughput just below them.
func TestGoodputUnderOverload(t *testing.T) {
	for _, engines := range []int{2, 8} {
		fits := 8 * engines
		below := goodput(t, engines, fits-1, full, Config{})
		for name, refusal := range map[string]router.Outcome{
			"503": full, "429": {Status: 429}, "429 with Retry-After": {Status: 429, RetryAfter: 5 * time.Second},
			"503 with Retry-After": {Status: 503, RetryAfter: time.Second},
		} {
			for _, over := range []float64{1, 1.03, 1.25, 1.5, 2} {
				got := goodput(t, engines, int(float64(fits)*over), refusal, Config{})
				t.Logf("%d engines, %s, %.2f of what fits: %.0f a second, %.2f of that just below", engines, name, over,
					got, got/below)
				if got < 0.9*below {
					t.Errorf("%d engines, %s, %.2f of what fits: %.0f a second; just below %.0f", engines, name, over, got, below)
				}
			}
		}
	}
	if before := goodput(t, 2, 24, full, Config{FullFor: -1, PanicThreshold: -1}); before > 100 {
		t.Errorf("%.0f a second where a refusal is a failure: this test proves nothing", before)
	}
}

// An engine that takes less than before, and more again.
func TestFullFollowsTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{}, 1)
		e := &limitedEngine{places: 2, took: 50 * time.Millisecond, refusal: full}
		r := router.New(pickLeast{}, v, router.Options{Attempts: 1})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for ctx.Err() == nil {
					err := r.Do(ctx, router.Prompt{}, func(ctx context.Context, _ *router.Lease) (router.Outcome, error) {
						return e.serve(ctx)
					})
					if err != nil && !errors.Is(err, context.Canceled) {
						time.Sleep(5 * time.Millisecond)
					}
				}
			})
		}
		time.Sleep(3 * time.Second)
		e.mu.Lock()
		e.places = 16
		e.mu.Unlock()
		time.Sleep(time.Second)
		e.mu.Lock()
		busy := e.busy
		e.mu.Unlock()
		if busy < 14 {
			t.Errorf("%d of 16 places are taken a second after the engine grew", busy)
		}
		cancel()
		wg.Wait()
	})
}
