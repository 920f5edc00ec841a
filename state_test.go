package router_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
)

func must(ids ...string) router.Prompt { return router.Prompt{Model: "llama", Must: ids} }

// next is the target and the reason of a request for p, which is settled at once.
func next(t testing.TB, r *router.Router, p router.Prompt, exclude ...string) (string, router.Reason) {
	t.Helper()
	l, err := r.Route(t.Context(), p, exclude...)
	if err != nil {
		t.Fatal(err)
	}
	l.Done(router.Outcome{Stage: router.Canceled})
	return l.Decision().Target.ID, l.Decision().Reason
}

// A request goes to the target that made what it refers to, with every strategy, in
// whatever state the target is, as long as it is offered and not ruled out.
func TestMust(t *testing.T) {
	for name, s := range map[string]router.Strategy{
		"cache_aware": cacheAware(t), "round_robin": roundRobin(t), "plain": first,
	} {
		t.Run(name, func(t *testing.T) {
			v := newView(t, loadview.Config{}, ids(4)...)
			r := router.New(s, v, router.Options{Backoff: -1})
			for i, id := range ids(4) {
				l, err := r.Assign(t.Context(), must(), id)
				if err != nil {
					t.Fatal(err)
				}
				l.Done(router.Outcome{Status: 200, Made: []string{fmt.Sprint("r", i)}})
			}
			for range 3 {
				for i, id := range ids(4) {
					if got, why := next(t, r, must(fmt.Sprint("r", i))); got != id || why != router.ReasonState {
						t.Errorf("r%d went to %s, %s", i, got, why)
					}
				}
			}
			if err := v.SetUnhealthy("vllm-2", true); err != nil {
				t.Fatal(err)
			}
			l, err := r.Route(t.Context(), must("r2"))
			if err != nil || l.Decision().Target.ID != "vllm-2" || l.Decision().Target.State != router.Unhealthy {
				t.Fatalf("%+v, %v", l.Decision(), err)
			}
			wantCounts(t, v, 0, 0, 1, 0)
			l.Done(router.Outcome{Status: 404}) // the engine's own answer
			cs, err := r.Explain(t.Context(), must("r2"))
			if err != nil || len(cs) != 4 || cs[0].Target.ID != "vllm-2" || cs[0].Reason != router.ReasonState ||
				cs[0].Target.State != router.Unhealthy {
				t.Errorf("%+v, %v", cs, err)
			}
			if got, why := next(t, r, must("r3"), "vllm-3"); got == "vllm-3" || why == router.ReasonState {
				t.Errorf("excluded: %s, %s", got, why)
			}
			few := r.Among(func(t router.Target) bool { return t.ID < "vllm-2" })
			if got, why := next(t, few, must("r3")); got >= "vllm-2" || why == router.ReasonState {
				t.Errorf("left out: %s, %s", got, why)
			}
			setMembers(t, v, "vllm-0", "vllm-1", "vllm-2")
			if got, why := next(t, r, must("r3")); got == "vllm-3" || why == router.ReasonState {
				t.Errorf("gone: %s, %s", got, why)
			}
			setMembers(t, v, ids(4)...)
			if _, why := next(t, r, must("r3")); why == router.ReasonState {
				t.Errorf("a new target of the old name has its state")
			}
			wantIdle(t, v)
			runtime.KeepAlive(r)
		})
	}
}

// The first id decides, the others narrow the choice. Unknown ones do not matter.
func TestMustSeveral(t *testing.T) {
	h := new(router.Holders)
	v := newView(t, loadview.Config{}, "a", "b", "c")
	r := router.New(first, v, router.Options{Holders: h})
	for _, b := range [][2]string{{"r1", "c"}, {"m1", "a"}, {"m2", "b"}, {"m2", "c"}, {"m3", "b"}, {"m3", "c"}} {
		h.Bind(b[0], b[1])
	}
	for _, tt := range []struct {
		want string
		p    router.Prompt
	}{
		{"c", must("r1", "m1")},
		{"a", must("m1", "r1")},
		{"a", must("m1", "m2")},
		{"c", must("m2", "r1")},
		{"b", must("m2", "m3")},
		{"c", must("unknown", "r1", "")},
		{"a", must("unknown")},
		{"a", must()},
	} {
		if got, _ := next(t, r, tt.p); got != tt.want {
			t.Errorf("%q went to %s, want %s", tt.p.Must, got, tt.want)
		}
	}
	// Of two that have it the one that is Ready is asked.
	if err := v.SetUnhealthy("b", true); err != nil {
		t.Fatal(err)
	}
	if got, why := next(t, r, must("m2")); got != "c" || why != router.ReasonState {
		t.Errorf("%s, %s", got, why)
	}
}

// A reply's id is known before the reply has ended; who answered has what the
// request referred to and what it brought.
func TestMade(t *testing.T) {
	h := new(router.Holders)
	v := newView(t, loadview.Config{}, "a", "b")
	r := router.New(roundRobin(t), v, router.Options{Holders: h, Backoff: -1})
	p := must("conversation")
	p.Brings = []string{"media:1"}
	l, err := r.Route(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	id := l.Decision().Target.ID
	wantHolder(t, h, "media:1", "")
	l.Made("r1")
	wantHolder(t, h, "r1", id)
	wantHolder(t, h, "conversation", "")
	l.FirstToken()
	wantHolder(t, h, "media:1", id)
	wantHolder(t, h, "conversation", id)
	l.Done(router.Outcome{Status: 200, Made: []string{"r1", "r2"}})
	wantHolder(t, h, "r2", id)

	l, err = r.Route(t.Context(), must("refused"))
	if err != nil {
		t.Fatal(err)
	}
	l.Done(router.Outcome{Status: 404})
	wantHolder(t, h, "refused", "")
	(*router.Lease)(nil).Made("x")
	new(router.Lease).Made("x")
}

// What fails at the target with the state may go elsewhere; that it is full is not for
// another to answer.
func TestMustRetry(t *testing.T) {
	for _, tt := range []struct {
		o    router.Outcome
		sent []string
	}{
		{router.Outcome{Status: 500}, []string{"b", "a"}},
		{router.Outcome{Err: errors.New("connection refused")}, []string{"b", "a"}},
		{router.Outcome{Status: 404}, []string{"b"}},
		{router.Outcome{Status: 404, Lacking: true}, []string{"b"}},
		{router.Outcome{Status: 429}, []string{"b"}},
		{router.Outcome{Status: 503}, []string{"b"}},
	} {
		h := new(router.Holders)
		h.Bind("r1", "b")
		r := router.New(first, newView(t, loadview.Config{}, "a", "b"), router.Options{Holders: h, Backoff: -1})
		var sent []string
		_ = r.Do(t.Context(), must("r1"), func(_ context.Context, l *router.Lease) (router.Outcome, error) {
			sent = append(sent, l.Decision().Target.ID)
			if len(sent) > 1 {
				return router.Outcome{Status: 404}, nil
			}
			return tt.o, nil
		})
		if diff := cmp.Diff(tt.sent, sent); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tt.o, diff)
		}
		wantHolder(t, h, "r1", "b")
	}
}

// Without ids a request costs what it did; see TestAllocations for the number.
func BenchmarkRouteMust(b *testing.B) {
	h := new(router.Holders)
	h.Bind("r1", "vllm-3")
	for name, p := range map[string]router.Prompt{"none": must(), "unknown": must("r0"), "known": must("r1")} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			r := router.New(roundRobin(b), newView(b, loadview.Config{}, ids(8)...), router.Options{Holders: h})
			for b.Loop() {
				l, err := r.Route(context.Background(), p)
				if err != nil {
					b.Fatal(err)
				}
				l.Done(router.Outcome{Stage: router.Canceled})
			}
		})
	}
}
