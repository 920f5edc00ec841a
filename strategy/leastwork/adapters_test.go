package leastwork_test

import (
	"context"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/adapters"
	"github.com/warmroute/router/strategy/leastwork"
)

// The cost of a load is tokens like all others: it decides as long as the work elsewhere is less.
func TestAdapters(t *testing.T) {
	slots, err := adapters.New(adapters.Config{LoadTokens: 5000})
	if err != nil {
		t.Fatal(err)
	}
	s, err := leastwork.New(leastwork.Config{Adapters: slots})
	if err != nil {
		t.Fatal(err)
	}
	slots.Page("a", adapters.Page{Slots: 2, Running: []string{"sql"}})
	slots.Page("b", adapters.Page{Slots: 2, Running: []string{"chat"}})
	pick := func(adapter string, prefill int) router.Decision {
		t.Helper()
		d, err := s.Pick(context.Background(), router.Prompt{Model: "m", Adapter: adapter, Text: "a prompt"}, []router.Target{
			{ID: "a", Load: router.Load{Known: true, Prefill: prefill}},
			{ID: "b", Load: router.Load{Known: true}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, c := range []struct {
		adapter string
		prefill int
		want    string
	}{{"sql", 4900, "a"}, {"sql", 6400, "b"}, {"chat", 0, "b"}, {"", 1, "b"}} {
		if got := pick(c.adapter, c.prefill).Target.ID; got != c.want {
			t.Errorf("%q with %d tokens before it at a: sent to %s, want %s", c.adapter, c.prefill, got, c.want)
		}
	}
	// What is sent shows what is loaded: the second use goes where the first went.
	first := pick("new", 0)
	s.Record(first, router.Outcome{Stage: router.Sent})
	s.Record(first, router.Outcome{Stage: router.FirstToken})
	s.Record(first, router.Outcome{Stage: router.Finished})
	if st, _ := slots.State(first.Target.ID); st.Loaded() != 2 || st.Adapters[0].Name != "new" {
		t.Errorf("after a request: %+v", st)
	}
	if second := pick("new", 0); second.Target.ID != first.Target.ID {
		t.Errorf("the second use goes to %s, the first went to %s", second.Target.ID, first.Target.ID)
	}
	s.Forget(first.Target.ID)
	if _, ok := slots.State(first.Target.ID); ok {
		t.Error("a forgotten target has adapters")
	}
}

// A prompt without an adapter does not look at the model.
func TestWithoutAdapters(t *testing.T) {
	s, err := leastwork.New(leastwork.Config{})
	if err != nil {
		t.Fatal(err)
	}
	targets := []router.Target{{ID: "a", Load: router.Load{Known: true}}, {ID: "b", Load: router.Load{Known: true}}}
	run := func(p router.Prompt) float64 {
		return testing.AllocsPerRun(100, func() {
			d, _ := s.Pick(context.Background(), p, targets)
			s.Record(d, router.Outcome{Stage: router.Sent})
			s.Record(d, router.Outcome{Stage: router.Finished})
		})
	}
	if n := run(router.Prompt{Model: "m", Text: "a prompt"}); n > 4 {
		t.Errorf("%v allocations", n)
	}
}
