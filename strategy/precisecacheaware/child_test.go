package precisecacheaware_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/kvtest"
	"github.com/warmroute/router/strategy"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

// child takes the last Ready target and logs its records.
type child struct{ told []string }

func (c *child) Pick(_ context.Context, p router.Prompt, targets []router.Target) (router.Decision, error) {
	s := strategy.Scan(targets)
	if s.Ready == 0 {
		return router.Decision{}, strategy.NoTarget(targets)
	}
	d := strategy.NewDecision(p, &targets[s.Only], "mine")
	d.Memo = len(c.told)
	return d, nil
}

func (c *child) Record(d router.Decision, o router.Outcome) {
	c.told = append(c.told, fmt.Sprintf("%s %v %s %v", d.Target.ID, d.Memo, o.Stage, d.Prompt.Tokens == nil))
}

func (c *child) Forget(id string) { c.told = append(c.told, "forget "+id) }

// The fallback gets its own Memo back, and records requests that it did not decide
// without one, each stage once.
func TestFallbackStrategyIsToldOfAll(t *testing.T) {
	e := kvtest.New(t)
	e.Begin("a", "b")
	c := new(child)
	s := mustNew(t, precisecacheaware.Config{Index: e.Index, FallbackStrategy: c, Fallback: "mine_first"})
	ids, text := router.Prompt{Tokens: tokens(1, 100)}, router.Prompt{Text: "hello"}

	d := pick(t, s, text, busy("a", 0), busy("b", 9))
	if d.Target.ID != "b" || d.Reason != "no_tokens_mine_first" {
		t.Errorf("%s, %q", d.Target.ID, d.Reason)
	}
	exact := pick(t, s, ids, busy("a", 0), busy("b", 9))
	if exact.Target.ID != "a" || exact.Reason != router.ReasonCold {
		t.Errorf("%s, %q", exact.Target.ID, exact.Reason)
	}
	s.Record(exact, router.Outcome{Stage: router.Finished}) // not sent yet
	for _, o := range []router.Stage{router.Sent, router.FirstToken, router.Finished} {
		s.Record(d, router.Outcome{Stage: o})
		s.Record(exact, router.Outcome{Stage: o})
		s.Record(exact, router.Outcome{Stage: o})
	}
	s.Forget("b")
	e.Distrust("a")
	e.Distrust("b")
	if d := pick(t, s, ids, busy("a", 0), busy("b", 9)); d.Target.ID != "b" || d.Reason != "untrusted_mine_first" {
		t.Errorf("%s, %q", d.Target.ID, d.Reason)
	}
	want := []string{
		"b 0 sent true", "a <nil> sent false",
		"b 0 first_token true", "a <nil> first_token false",
		"b 0 finished true", "a <nil> finished false",
		"forget b",
	}
	if diff := cmp.Diff(want, c.told); diff != "" {
		t.Errorf("the fallback was told of (-want +got)\n%s", diff)
	}
}

// A fallback that explains nothing has all targets listed, without scores.
func TestFallbackStrategyWithoutExplain(t *testing.T) {
	s := mustNew(t, precisecacheaware.Config{FallbackStrategy: new(child)})
	ts := []router.Target{{ID: "c", State: router.Draining}, busy("b", 1), busy("a", 0)}
	cs := s.Explain(context.Background(), router.Prompt{Text: "hello"}, ts, nil)
	var got []string
	for _, c := range cs {
		got = append(got, fmt.Sprint(c.Target.ID, " ", c.Reason, " ", math.IsNaN(c.Score)))
	}
	if diff := cmp.Diff([]string{"a no_tokens_other true", "b tied true", "c draining false"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestFallbackNames(t *testing.T) {
	for _, c := range []struct {
		name  string
		child router.Strategy
		ok    bool
	}{
		{"text", nil, true}, {"least_work", nil, false}, {"", new(child), true}, {"least_work", new(child), true},
		{"Least Work", new(child), false}, {"no-good", new(child), false}, {"a-b", new(child), false},
		{string(make([]byte, 3)), new(child), false}, {"abcdefghijabcdefghijabcdefghijabcdefghijk", new(child), false},
	} {
		_, err := precisecacheaware.New(precisecacheaware.Config{Fallback: c.name, FallbackStrategy: c.child})
		var bad *router.ConfigError
		if (err == nil) != c.ok || err != nil && (!errors.As(err, &bad) || bad.Field != "Fallback") {
			t.Errorf("%q, with a strategy %v: %v", c.name, c.child != nil, err)
		}
	}
}
