package main

import (
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/warmroute/router"
	"github.com/warmroute/router/bench/rivals"
	"github.com/warmroute/router/internal/evictions"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/pipeline"
	"github.com/warmroute/router/trie"
)

// textPolicy is a strategy that matches text.
type textPolicy struct {
	name string
	own  bool // it reads a given record, and learns from usage
	new  func(record *trie.Trie, rand func() uint64) (router.Strategy, error)
}

// textPolicies are the library's own and the rivals that match text.
func textPolicies() []textPolicy {
	all := []textPolicy{
		{leastwork.Name, true, func(t *trie.Trie, r func() uint64) (router.Strategy, error) {
			return leastwork.New(leastwork.Config{Trie: t, Rand: r})
		}},
		{cacheaware.Name, true, func(t *trie.Trie, r func() uint64) (router.Strategy, error) {
			return cacheaware.New(cacheaware.Config{Trie: t, Rand: r})
		}},
		{pipeline.Name, true, func(t *trie.Trie, r func() uint64) (router.Strategy, error) {
			return pipeline.New(pipeline.Config{Trie: t, Rand: r})
		}},
	}
	for _, e := range rivals.All() {
		switch e.Name {
		case "sglang_threshold", "llmd_weighted", "lmetric", "dynamo":
			all = append(all, textPolicy{e.Name, false, func(_ *trie.Trie, r func() uint64) (router.Strategy, error) {
				return e.New(r), nil
			}})
		}
	}
	return all
}

// played plays e with some seeds and returns the means.
func (p *textPolicy) played(e evictions.Scene, seeds int,
	evidence evictions.Evidence) (sum evictions.Result, err error) {
	for e.Seed = range uint64(seeds) {
		record, err := trie.New(trie.Config{})
		if err != nil {
			return sum, err
		}
		s, err := p.new(record, rand.New(rand.NewPCG(e.Seed+1, 2)).Uint64)
		if err != nil {
			return sum, err
		}
		r, err := e.Play(s, record, evidence)
		if err != nil {
			return sum, err
		}
		sum.Cached += r.Cached / float64(seeds)
		sum.TTFT += r.TTFT / float64(seeds)
	}
	return sum, nil
}

// evicting prints the table of evictions.
func evicting(out io.Writer, seeds int) error {
	fmt.Fprintln(out, "| scene | policy | by usage | without usage | by the caches | TTFT against the caches |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|")
	for _, c := range evictions.Scenes() {
		for _, p := range textPolicies() {
			cell := func(r evictions.Result) string { return fmt.Sprintf("%.0f ms · %.3f", r.TTFT, r.Cached) }
			sent, err := p.played(c.Scene, seeds, evictions.Nothing)
			if err != nil {
				return err
			}
			if !p.own {
				fmt.Fprintf(out, "| %s | %s | | %s | | |\n", c.Name, p.name, cell(sent))
				continue
			}
			usage, err := p.played(c.Scene, seeds, evictions.Usage)
			if err != nil {
				return err
			}
			caches, err := p.played(c.Scene, seeds, evictions.Caches)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "| %s | **%s** | %s | %s | %s | %+.0f%% |\n", c.Name, p.name, cell(usage), cell(sent),
				cell(caches), 100*(usage.TTFT/caches.TTFT-1))
		}
	}
	return nil
}
