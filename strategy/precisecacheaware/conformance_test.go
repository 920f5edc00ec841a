package precisecacheaware_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/kvtest"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/routertest"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/pipeline"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

// informed is a strategy with an owner that reports a lost cache to the Index too.
type informed struct {
	*precisecacheaware.Strategy
	x *kvindex.Index
}

func (i informed) Forget(id string) {
	i.Strategy.Forget(id)
	i.x.Forget(id)
}

// TestConformance runs the kit over all that may decide: prompts with and without
// tokens, targets with trusted streams, some of which hold something, and targets
// with untrusted ones.
func TestConformance(t *testing.T) {
	system := tokens(1, 600)
	prompts := []router.Prompt{
		{Model: "llama", Tokens: system},
		{Model: "llama", Tokens: system[:320:320]},
		{Model: "llama", Tokens: system[:20:20]},
		{Model: "llama", Tokens: system[:1:1]},
		{Model: "llama", Text: "with a text", Tokens: system[:400:400]},
		{Model: "llama", Text: "with a text, and more of it", Tokens: append(slices.Clone(system[:400]), 7, 7, 7)},
		{Model: "llama", Adapter: "sql", Tokens: system},
		{Model: "llama", Salt: "tenant", Session: "s1", Tokens: system[:500:500]},
	}
	epoch := time.Unix(1e9, 0)
	for _, c := range []struct {
		name, fallback string
		trusted        func(i int) bool // nil: there is no Index
		child          func(rand func() uint64) (router.Strategy, error)
	}{
		{"no index", "", nil, nil},
		{"no index, text", precisecacheaware.FallbackText, nil, nil},
		{"all trusted", "", func(int) bool { return true }, nil},
		{"some trusted", "", func(i int) bool { return i%3 != 0 }, nil},
		{"few trusted, text", precisecacheaware.FallbackText, func(i int) bool { return i%3 == 0 }, nil},
		{"few trusted, least_work", "least_work", func(i int) bool { return i%3 == 0 },
			func(rand func() uint64) (router.Strategy, error) {
				return leastwork.New(leastwork.Config{Rand: rand})
			}},
		{"no index, pipeline", "", nil, func(rand func() uint64) (router.Strategy, error) {
			return pipeline.New(pipeline.Config{Rand: rand, Now: func() time.Time { return epoch }})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			routertest.Run(t, func(rand func() uint64) router.Strategy {
				cfg := precisecacheaware.Config{Fallback: c.fallback, Rand: rand, Now: func() time.Time { return epoch }}
				if c.child != nil {
					child, err := c.child(rand)
					if err != nil {
						t.Fatal(err)
					}
					cfg.FallbackStrategy = child
				}
				if c.trusted == nil {
					return mustNew(t, cfg)
				}
				e := kvtest.New(t)
				for i := range 24 { // the kit's targets
					id := fmt.Sprintf("http://10.0.%d.%d:8000", i%3, i)
					if !c.trusted(i) {
						continue
					}
					e.Begin(id)
					if i%4 == 1 {
						e.Store(id, prompts[i%len(prompts)])
					}
				}
				cfg.Index = e.Index
				return informed{mustNew(t, cfg), e.Index}
			}, routertest.Options{Prompts: prompts})
		})
	}
}
