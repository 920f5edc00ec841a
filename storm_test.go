package router_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
)

// TestStorm lets requests end in every way at once, some in several, while
// targets come and go and others look on. No count is ever below 0, all are 0 at
// the end, also on targets that left, and every decision was reported in order.
func TestStorm(t *testing.T) {
	for seed := range uint64(3) {
		storm(t, seed)
	}
}

func storm(t *testing.T, seed uint64) {
	all := ids(6)
	fleet := &tally{View: newView(t, loadview.Config{CoolAfter: 50, CoolBase: ms, Breaker: seed == 1,
		BreakerFailures: 40, BreakerOpen: ms}, all...)}
	var ends atomic.Int64 // what the hooks saw: Routed minus Done
	trace := router.Trace{
		Routed: func(context.Context, router.RouteInfo) { ends.Add(1) },
		Done: func(_ context.Context, _ router.Decision, o router.Outcome) {
			ends.Add(-1)
			if !o.Stage.Final() {
				t.Errorf("done at stage %v", o.Stage)
			}
		},
	}
	opts := router.Options{Attempts: 4, Backoff: 10 * time.Microsecond, MaxRetryAfter: 50 * time.Microsecond,
		FailOpen: true, Trace: trace}
	witnesses := []*witness{{Strategy: leastLoad(t), t: t}, {Strategy: cacheAware(t), t: t}}
	var routers []*router.Router
	for _, w := range witnesses {
		routers = append(routers, router.New(w, fleet, opts))
	}

	stop := make(chan struct{})
	var aside sync.WaitGroup
	aside.Go(func() { // targets leave and come back
		rng := rand.New(rand.NewPCG(seed, 7))
		for {
			select {
			case <-stop:
				return
			default:
			}
			rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			setMembers(t, fleet.View, all[:2+rng.IntN(len(all)-1)]...)
			runtime.Gosched()
		}
	})
	aside.Go(func() { // somebody looks
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, s := range fleet.Snapshot() {
				if s.Target.Load.InFlight < 0 || s.Target.Load.Prefill < 0 {
					t.Errorf("%s: %+v", s.Target.ID, s.Target.Load)
				}
			}
			if _, err := routers[0].Explain(t.Context(), prompt); err != nil {
				t.Error(err)
			}
		}
	})
	var wg sync.WaitGroup
	for worker := range 12 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(100+worker)))
			for range 150 {
				// A goroutine of its own, which it may exit.
				var one sync.WaitGroup
				one.Go(func() { request(t, routers[rng.IntN(2)], rng) })
				one.Wait()
			}
		})
	}
	wg.Wait()
	close(stop)
	aside.Wait()
	// The ends of the last contexts may still be on their way.
	for ends.Load() != 0 {
		runtime.Gosched()
	}
	wantIdle(t, fleet.View)
	fleet.check(t)
	decisions := 0
	for _, w := range witnesses {
		w.check()
		decisions += len(w.stories)
	}
	if decisions < 12*150 {
		t.Errorf("%d decisions are no storm", decisions)
	}
}

// request sends one request by a random way to a random end.
func request(t *testing.T, r *router.Router, rng *rand.Rand) {
	outcomes := []router.Outcome{
		{Status: 200}, {Reply: "Rayleigh."}, {Err: errRefused}, {Status: 500}, {Status: 429, RetryAfter: time.Millisecond},
		{Status: 404}, {Stage: router.Canceled}, {Stage: router.FirstToken, Err: errRefused}, {},
	}
	o := outcomes[rng.IntN(len(outcomes))]
	how, early, token := rng.IntN(8), rng.IntN(3) == 0, rng.IntN(3) == 0
	p := router.Prompt{Model: "llama", Text: string(make([]byte, rng.IntN(4000)))}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if early {
		go cancel()
	}
	send := func(_ context.Context, l *router.Lease) (router.Outcome, error) {
		if token {
			l.FirstToken()
		}
		switch how {
		case 0:
			panic("a bug")
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			runtime.Goexit()
		}
		return o, nil
	}
	switch how {
	case 0, 1, 2, 3:
		defer func() { _ = recover() }() // the bug of case 0
		_ = r.Do(ctx, p, send)           // any error will do
	default:
		l, err := r.Route(ctx, p)
		if how == 4 {
			l, err = assign(t, r, ctx, p, l, rng)
		}
		for err == nil {
			switch how {
			case 5: // everything at once, and twice
				var wg sync.WaitGroup
				wg.Go(l.FirstToken)
				wg.Go(func() { l.Done(o) })
				wg.Go(func() { l.Done(router.Outcome{Status: 200}) })
				wg.Go(cancel)
				wg.Wait()
				return
			case 6: // only the context ends it
				cancel()
				l.FirstToken()
				return
			}
			if token {
				l.FirstToken()
			}
			l, err = l.Retry(ctx, o)
		}
	}
}

// assign ends l, if there is one, and has a target assigned.
func assign(
	t *testing.T, r *router.Router, ctx context.Context, p router.Prompt, l *router.Lease, rng *rand.Rand,
) (*router.Lease, error) {
	if l != nil {
		l.Done(router.Outcome{})
	}
	all := ids(6)
	return r.Assign(ctx, p, all[rng.IntN(len(all))])
}

// tally counts independently of a View: the requests that began, and how often each
// ended.
type tally struct {
	*loadview.View
	mu      sync.Mutex
	flights []*tallied
}

type tallied struct {
	router.Flight
	ended atomic.Int32
}

func (f *tallied) Done(o router.Outcome) {
	f.ended.Add(1)
	f.Flight.Done(o)
}

func (f *tally) Choose(
	ctx context.Context, pick func([]router.Target) (router.Decision, error),
) (router.Decision, router.Flight, error) {
	return f.count(f.View.Choose(ctx, pick))
}

func (f *tally) ChoosePrompt(
	ctx context.Context, p router.Prompt, pick func([]router.Target) (router.Decision, error),
) (router.Decision, router.Flight, error) {
	return f.count(f.View.ChoosePrompt(ctx, p, pick))
}

func (f *tally) count(d router.Decision, fl router.Flight, err error) (router.Decision, router.Flight, error) {
	if err != nil {
		return d, fl, err
	}
	c := &tallied{Flight: fl}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flights = append(f.flights, c)
	return d, c, nil
}

func (f *tally) check(t *testing.T) {
	t.Helper()
	for _, c := range f.flights {
		if n := c.ended.Load(); n != 1 {
			t.Errorf("a request ended %d times", n)
		}
	}
}
