package loadview

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/warmroute/router"
)

type least struct{}

func (least) Pick(_ context.Context, _ router.Prompt, ts []router.Target) (router.Decision, error) {
	return leastLoaded(ts)
}

func (least) Record(router.Decision, router.Outcome) {}

// Two Routers over one View see each other's requests at the same instant.
func TestTwoRouters(t *testing.T) {
	v := newView(t, Config{}, 8)
	routers := []*router.Router{router.New(least{}, v, router.Options{}), router.New(least{}, v, router.Options{})}
	leases := make([]*router.Lease, 1000)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range leases {
		wg.Go(func() {
			<-start
			l, err := routers[i%2].Route(t.Context(), router.Prompt{Text: "hello"})
			if err != nil {
				t.Error(err)
			}
			leases[i] = l
		})
	}
	close(start)
	wg.Wait()
	var counts []int
	for _, s := range v.Snapshot() {
		counts = append(counts, s.Target.Load.InFlight)
	}
	if slices.Max(counts)-slices.Min(counts) > 2 || slices.Min(counts) == 0 {
		t.Errorf("in flight: %v", counts)
	}
	for _, l := range leases {
		l.Done(router.Outcome{Status: 200})
	}
	for _, s := range v.Snapshot() {
		if s.Target.Load != (router.Load{Known: true}) {
			t.Errorf("ends with %+v", s.Target)
		}
	}
}

// What the gateway sees when the whole fleet is down, and what FailOpen and
// Assign may do then.
func TestFleetDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(t, Config{Jitter: -1, PanicThreshold: -1}, 2)
		r := router.New(least{}, v, router.Options{Attempts: 2, Backoff: -1})
		p := router.Prompt{Text: "hello"}
		for range DefaultCoolAfter {
			err := r.Do(t.Context(), p, func(context.Context, *router.Lease) (router.Outcome, error) {
				return router.Outcome{}, errors.New("connection refused")
			})
			if err == nil {
				t.Error("no error")
			}
		}
		time.Sleep(time.Second)
		_, err := r.Route(t.Context(), p)
		var none *router.NoTargetError
		if !errors.As(err, &none) {
			t.Fatal(err)
		}
		want := &router.NoTargetError{Offered: 2, NotReady: 2, RetryAfter: DefaultCoolBase - time.Second}
		if diff := cmp.Diff(want, none); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		open := router.New(least{}, v, router.Options{FailOpen: true})
		l, err := open.Route(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		l.Done(router.Outcome{Status: 200}) // it is back
		if l, err = r.Route(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		l.Done(router.Outcome{Status: 200})
		if l, err = r.Assign(t.Context(), p, "vllm-1"); err != nil {
			t.Fatal(err)
		}
		if n := status(t, v, "vllm-1").Target.Load.InFlight; n != 1 {
			t.Errorf("an assigned request counts as %d", n)
		}
		l.Done(router.Outcome{Status: 200})
	})
}
