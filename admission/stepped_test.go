package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/warmroute/router"
)

// Stepped serves in the order of Queue, by a clock that is not the machine's.
func TestStepped(t *testing.T) {
	now := time.Unix(1000, 0)
	s, err := NewStepped(Config{Quantum: 1, MaxWaiting: 6, MaxWait: time.Minute,
		Class: classOf}, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	free := 0
	var served, left []string
	enter := func(ctx context.Context, name string) {
		w := &router.Waiting{Any: true, Peek: func() int { return 0 }}
		w.Try = func() (router.Again, bool) {
			if free == 0 {
				return router.Again{}, true
			}
			free--
			w.Decision = router.Decision{Target: router.Target{ID: "t"}, Length: 10}
			return router.Again{}, false
		}
		s.Enter(ctx, w, func(err error) {
			var none *router.NoTargetError
			switch {
			case err == nil:
				served = append(served, name)
			case errors.As(err, &none):
				left = append(left, fmt.Sprint(name, " ", none.Shed, " ", none.Waited))
			default:
				left = append(left, name+" "+err.Error())
			}
		})
	}
	for _, name := range []string{"a1", "a2", "a3"} {
		enter(as(Class{Tenant: "a"}), name)
	}
	enter(as(Class{Tenant: "b"}), "b1")
	enter(as(Class{Tenant: "c", Priority: 1}), "c1")
	ctx, cancel := context.WithCancel(as(Class{Tenant: "d"}))
	enter(ctx, "d1")
	enter(as(Class{Tenant: "a"}), "a4") // one too many
	if again := s.Step(); !again.Equal(now.Add(lookAgain)) || !s.Busy("") || s.Stats().Waiting != 6 {
		t.Error(again, s.Stats())
	}
	cancel()
	for range 3 {
		now = now.Add(time.Second)
		free = 1
		s.Step()
	}
	now = now.Add(time.Hour)
	if again := s.Step(); !again.IsZero() || s.Busy("") {
		t.Error(again)
	}
	if want := []string{"c1", "a1", "b1"}; !slices.Equal(served, want) {
		t.Errorf("%v, want %v", served, want)
	}
	want := []string{"a4 too_many 0s", "d1 context canceled", "a2 too_long 1h0m3s", "a3 too_long 1h0m3s"}
	if !slices.Equal(left, want) {
		t.Errorf("%q, want %q", left, want)
	}
}
