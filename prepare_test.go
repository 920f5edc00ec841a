package router_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
)

// preparer writes down what it is asked, and fails the test if Prepare is called
// while its fleet is locked.
type preparer struct {
	pickFunc
	fleet *pool
	log   []string
	n     int
}

func (s *preparer) Prepare(_ context.Context, p router.Prompt) any {
	s.fleet.mu.Lock() // nobody else holds it
	defer s.fleet.mu.Unlock()
	s.n++
	s.log = append(s.log, fmt.Sprint("prepare ", s.n))
	return s.n
}

func (s *preparer) PickPrepared(
	ctx context.Context, p router.Prompt, ts []router.Target, prepared any,
) (router.Decision, error) {
	s.log = append(s.log, fmt.Sprint("pick by ", prepared))
	return s.pickFunc(ctx, p, ts)
}

func (s *preparer) Pick(ctx context.Context, p router.Prompt, ts []router.Target) (router.Decision, error) {
	s.log = append(s.log, "pick")
	return s.pickFunc(ctx, p, ts)
}

// Each choice is prepared again, before the fleet is locked: also that of
// another attempt, and that of a request that waited.
func TestPrepare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newScaled(router.Target{ID: "a", State: router.Cooling})
		s := &preparer{pickFunc: first, fleet: f.pool}
		r := router.New(s, f, router.Options{Wait: time.Hour})
		time.AfterFunc(time.Minute, func() { f.set(ready("a", "b")...) })
		l := route(t, r, t.Context())
		l, err := l.Retry(t.Context(), router.Outcome{Status: 503})
		if err != nil {
			t.Fatal(err)
		}
		l.Done(router.Outcome{})
		if l, err = r.Assign(t.Context(), prompt, "b"); err != nil {
			t.Fatal(err)
		}
		l.Done(router.Outcome{})
		want := []string{
			"prepare 1",              // nothing is Ready
			"prepare 2", "pick by 2", // woken
			"prepare 3", "pick by 3", // another attempt
			"pick", // assigned
		}
		if diff := cmp.Diff(want, s.log); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
