package router_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
)

// Whatever a Router does, one that Among returned does it over the kept targets.
func TestAmong(t *testing.T) {
	v := newView(t, loadview.Config{}, "a1", "a2", "b1", "b2")
	all := router.New(first, v, router.Options{Backoff: -1, Attempts: 9})
	in := func(pool string) func(router.Target) bool {
		return func(t router.Target) bool { return strings.HasPrefix(t.ID, pool) }
	}
	b := all.Among(in("b"))

	l := route(t, b, t.Context())
	if id := l.Decision().Target.ID; id != "b1" {
		t.Errorf("Route took %s", id)
	}
	l, err := l.Retry(t.Context(), router.Outcome{Status: 500})
	if err != nil || l.Decision().Target.ID != "b2" {
		t.Fatalf("Retry: (%v, %v)", l, err)
	}
	var status *router.StatusError
	if next, err := l.Retry(t.Context(), router.Outcome{Status: 500}); next != nil || !errors.As(err, &status) {
		t.Errorf("a third: (%v, %v)", next, err)
	}
	var sent []string
	b.Do(t.Context(), prompt, func(_ context.Context, l *router.Lease) (router.Outcome, error) {
		sent = append(sent, l.Decision().Target.ID)
		return router.Outcome{Status: 500}, nil
	})
	if diff := cmp.Diff([]string{"b1", "b2"}, sent); diff != "" {
		t.Errorf("Do (-want +got):\n%s", diff)
	}
	if l, err := b.Assign(t.Context(), prompt, "b2"); err != nil || l.Decision().Target.ID != "b2" {
		t.Errorf("Assign: (%v, %v)", l, err)
	} else {
		l.Done(router.Outcome{})
	}
	l, err = b.Assign(t.Context(), prompt, "a1")
	if diff := cmp.Diff(&router.NoTargetError{Offered: 4, Excluded: 4}, err); diff != "" || l != nil {
		t.Errorf("Assign of another: %v (-want +got):\n%s", l, diff)
	}
	var cs []string
	for _, c := range explain(t, b) {
		cs = append(cs, c.Target.ID)
	}
	slices.Sort(cs)
	if diff := cmp.Diff([]string{"b1", "b2"}, cs); diff != "" {
		t.Errorf("Explain (-want +got):\n%s", diff)
	}
	q := b.Request(prompt)
	if l, err := q.Next(t.Context()); err != nil || l.Decision().Target.ID != "b1" {
		t.Errorf("Request: (%v, %v)", l, err)
	} else {
		l.Done(router.Outcome{})
	}

	// Both keeps, exclusions and states count once each.
	if err := v.SetUnhealthy("b2", true); err != nil {
		t.Fatal(err)
	}
	none := b.Among(func(t router.Target) bool { return strings.HasSuffix(t.ID, "2") })
	_, err = none.Route(t.Context(), prompt, "b1", "a2")
	if diff := cmp.Diff(&router.NoTargetError{Offered: 4, Excluded: 3, NotReady: 1}, err); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if l := route(t, all, t.Context()); l.Decision().Target.ID != "a1" {
		t.Errorf("the first Router took %s", l.Decision().Target.ID)
	} else {
		l.Done(router.Outcome{})
	}
	wantIdle(t, v)
}

// FailOpen opens the kept targets alone, and Explain shows those.
func TestAmongFailOpen(t *testing.T) {
	ts := []router.Target{{ID: "a"}, {ID: "b", State: router.Cooling}, {ID: "c", State: router.Draining},
		{ID: "d", State: router.Cooling}}
	r := router.New(first, newPool(ts...), router.Options{FailOpen: true}).
		Among(func(t router.Target) bool { return t.ID == "b" || t.ID == "c" })
	l := route(t, r, t.Context())
	if id := l.Decision().Target.ID; id != "b" {
		t.Errorf("took %s", id)
	}
	l.Done(router.Outcome{})
	var got []router.Target
	for _, c := range explain(t, r) {
		got = append(got, c.Target)
	}
	want := []router.Target{{ID: "b"}, {ID: "c", State: router.Draining}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
