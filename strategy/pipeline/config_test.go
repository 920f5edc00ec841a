package pipeline_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/warmroute/router/strategy/pipeline"
	"github.com/warmroute/router/trie"
)

func TestConfig(t *testing.T) {
	tr, err := trie.New(trie.Config{})
	if err != nil {
		t.Fatal(err)
	}
	table, err := pipeline.NewSessions(5)
	if err != nil {
		t.Fatal(err)
	}
	nan, inf := math.NaN(), math.Inf(1)
	type cfg = pipeline.Config
	own := func(w float64) []pipeline.Weighted { return []pipeline.Weighted{{Scorer: says(nil), Weight: w}} }
	for _, c := range []struct {
		cfg   cfg
		field string // "": no error
	}{
		{cfg{}, ""},
		{cfg{StaticWeight: -1, LoadWeight: -0.001, AffinityWeight: -1e9}, ""},
		{cfg{StaticWeight: 1e-9, LoadWeight: 1e9, AffinityWeight: 3, LoadHalf: 0.1}, ""},
		{cfg{OverloadSlack: inf, OverloadFactor: inf}, ""},
		{cfg{SessionTTL: -1, MaxSessions: 1}, ""},
		{cfg{SessionTTL: time.Nanosecond, Sessions: table, Trie: tr}, ""},
		{cfg{MaxNodes: 1, MaxBytes: 1}, ""},
		{cfg{Scorers: own(-1)}, ""},
		{cfg{StaticWeight: nan}, "StaticWeight"},
		{cfg{LoadWeight: inf}, "LoadWeight"},
		{cfg{AffinityWeight: -inf}, "AffinityWeight"},
		{cfg{AffinityWeight: math.MaxFloat64}, "AffinityWeight"},
		{cfg{LoadHalf: -1}, "LoadHalf"},
		{cfg{LoadHalf: nan}, "LoadHalf"},
		{cfg{LoadHalf: inf}, "LoadHalf"},
		{cfg{Scorers: own(nan)}, "Scorers[0].Weight"},
		{cfg{Scorers: append(own(1), pipeline.Weighted{})}, "Scorers[1].Scorer"},
		{cfg{Filters: []pipeline.Filter{drop(), nil}}, "Filters[1]"},
		{cfg{OverloadSlack: -1}, "OverloadSlack"},
		{cfg{OverloadSlack: nan}, "OverloadSlack"},
		{cfg{OverloadFactor: 0.9}, "OverloadFactor"},
		{cfg{MaxSessions: -1}, "MaxSessions"},
		{cfg{MaxSessions: 1, Sessions: table}, "MaxSessions"},
		{cfg{MaxNodes: -1}, "MaxNodes"},
		{cfg{MaxBytes: -1}, "MaxBytes"},
		{cfg{MaxNodes: 1, Trie: tr}, "MaxNodes"},
		{cfg{MaxBytes: 1, Trie: tr}, "MaxBytes"},
	} {
		s, err := pipeline.New(c.cfg)
		switch {
		case c.field == "" && (err != nil || s == nil):
			t.Errorf("%+v: %v", c.cfg, err)
		case c.field != "" && (err == nil || s != nil || !strings.Contains(err.Error(), c.field)):
			t.Errorf("%+v: error %v does not name %s", c.cfg, err, c.field)
		}
	}
}

// All errors are reported together.
func TestConfigTellsAll(t *testing.T) {
	nan := math.NaN()
	_, err := pipeline.New(pipeline.Config{
		StaticWeight: nan, LoadWeight: nan, AffinityWeight: nan, LoadHalf: nan, OverloadSlack: nan, OverloadFactor: nan,
		MaxSessions: -1, MaxBytes: -1, Filters: []pipeline.Filter{nil}, Scorers: []pipeline.Weighted{{}},
	})
	for _, field := range []string{
		"StaticWeight", "LoadWeight", "AffinityWeight", "LoadHalf", "OverloadSlack", "OverloadFactor", "MaxSessions",
		"MaxBytes", "Filters[0]", "Scorers[0]",
	} {
		if !strings.Contains(fmt.Sprint(err), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}

// The strategy keeps no slice of its Config.
func TestConfigIsCopied(t *testing.T) {
	cfg := pipeline.Config{
		Filters: []pipeline.Filter{drop("a")},
		Scorers: []pipeline.Weighted{{Scorer: says(map[string]float64{"b": 1}), Weight: 10}},
	}
	s := mustNew(t, cfg)
	cfg.Filters[0], cfg.Scorers[0].Scorer = nil, nil
	if !always(t, s, inSession(""), "b", busy("a", 0), busy("b", 3), busy("c", 0)) {
		t.Error("the caller's slices are used")
	}
}
