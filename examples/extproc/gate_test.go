package main

import (
	"errors"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
	"github.com/warmroute/router/strategy/leastwork"
)

// TestGateIsTheFleet: what the fleet offers beyond Choose goes through the gate: limits by model, and targets that lost
// their cache.
func TestGateIsTheFleet(t *testing.T) {
	view, err := loadview.New(loadview.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := view.Set([]loadview.Member{{ID: "a"}, {ID: "b"}}); err != nil {
		t.Fatal(err)
	}
	strategy, err := leastwork.New(leastwork.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := router.New(strategy, gate{Fleet: view}, router.Options{})
	for range 2 { // both targets are full for one model
		l, err := r.Route(t.Context(), router.Prompt{Model: "busy", Text: "x"})
		if err != nil {
			t.Fatal(err)
		}
		l.Done(router.Outcome{Status: 429})
	}
	for tried := 0; ; tried++ { // one request at each is a try
		l, err := r.Route(t.Context(), router.Prompt{Model: "busy", Text: "x"})
		if errors.Is(err, router.ErrNoTarget) {
			break
		}
		if err != nil || tried == 2 {
			t.Fatalf("all targets are full for the model, and %d requests were sent: %v", tried+1, err)
		}
		defer l.Done(router.Outcome{Status: 200})
	}
	l, err := r.Route(t.Context(), router.Prompt{Model: "other", Text: "a text that is long enough"})
	if err != nil {
		t.Fatal("another model:", err)
	}
	l.Done(router.Outcome{Status: 200})
	again, err := r.Route(t.Context(), router.Prompt{Model: "other", Text: "a text that is long enough"})
	if err != nil || again.Decision().Cached == 0 {
		t.Fatalf("%+v, %v", again.Decision(), err)
	}
	id := again.Decision().Target.ID
	again.Done(router.Outcome{Status: 200})
	view.Forget(id)
	after, err := r.Route(t.Context(), router.Prompt{Model: "other", Text: "a text that is long enough"})
	if err != nil || after.Decision().Cached != 0 {
		t.Errorf("%s lost its cache: %+v, %v", id, after.Decision(), err)
	}
	after.Done(router.Outcome{Status: 200})
}
