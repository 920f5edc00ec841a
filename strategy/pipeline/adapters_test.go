package pipeline_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/warmroute/router"
	"github.com/warmroute/router/adapters"
	"github.com/warmroute/router/strategy/pipeline"
)

func TestAdapterScorer(t *testing.T) {
	slots, err := adapters.New(adapters.Config{LoadTokens: 1000})
	if err != nil {
		t.Fatal(err)
	}
	s, err := pipeline.New(pipeline.Config{Adapters: slots})
	if err != nil {
		t.Fatal(err)
	}
	slots.Page("a", adapters.Page{Slots: 1, Running: []string{"chat"}})
	slots.Page("b", adapters.Page{Slots: 1, Running: []string{"sql"}})
	targets := []router.Target{{ID: "a"}, {ID: "b"}}
	details := s.Details(context.Background(), router.Prompt{Adapter: "sql", Text: "x"}, targets)
	best := details[0]
	if best.Target.ID != "b" || best.Parts[3].Name != pipeline.AdapterName || best.Parts[3].Score != 1 {
		t.Errorf("%+v", details)
	}
	if p := details[1].Parts[3]; p.Score >= 0.51 || p.Score < 0.3 {
		t.Errorf("a target with full slots: %+v", p)
	}
	plain := s.Details(context.Background(), router.Prompt{Text: "x"}, targets)
	without, err := pipeline.New(pipeline.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(without.Details(context.Background(), router.Prompt{Text: "x"}, targets), plain); diff != "" {
		t.Errorf("a prompt without an adapter: %s", diff)
	}
	d, err := s.Pick(context.Background(), router.Prompt{Adapter: "sql", Text: "x"}, targets)
	if err != nil || d.Target.ID != "b" {
		t.Fatalf("%v, %v", d.Target.ID, err)
	}
	s.Record(d, router.Outcome{Stage: router.Sent})
	if st, _ := slots.State("b"); st.Adapters[0].InFlight != 1 {
		t.Errorf("%+v", st)
	}
	s.Record(d, router.Outcome{Stage: router.Failed, Status: 500})
	if st, _ := slots.State("b"); st.Adapters[0].InFlight != 0 {
		t.Errorf("%+v", st)
	}
}
