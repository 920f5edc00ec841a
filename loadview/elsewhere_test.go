package loadview_test

import (
	"context"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/leastload"
)

// TestPrefillElsewhere: the request stays in flight and leaves Prefill, as often as it is said, until
// its first token.
func TestPrefillElsewhere(t *testing.T) {
	v, err := loadview.New(loadview.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Set([]loadview.Member{{ID: "a"}}); err != nil {
		t.Fatal(err)
	}
	s, err := leastload.New(leastload.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := router.New(s, v, router.Options{})
	want := func(inFlight, prefill int) {
		t.Helper()
		l := v.Snapshot()[0].Target.Load
		if l.InFlight != inFlight || l.Prefill != prefill {
			t.Errorf("%+v, not %d and %d", l, inFlight, prefill)
		}
	}
	p := router.Prompt{Tokens: make([]uint32, 100)}
	other, err := r.Route(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	l, err := r.Route(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	want(2, 200)
	for range 2 {
		l.PrefillElsewhere(true)
		l.PrefillElsewhere(true)
		want(2, 100)
		l.PrefillElsewhere(false)
		l.PrefillElsewhere(false)
		want(2, 200)
	}
	l.PrefillElsewhere(true)
	l.FirstToken()
	want(2, 100)
	l.PrefillElsewhere(false)
	want(2, 100)
	l.Done(router.Outcome{})
	l.PrefillElsewhere(false)
	want(1, 100)
	other.PrefillElsewhere(true)
	other.Done(router.Outcome{})
	want(0, 0)
	other.PrefillElsewhere(false)
	want(0, 0)
	var none *router.Lease
	none.PrefillElsewhere(true)
}
