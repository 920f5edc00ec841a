package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/warmroute/router/bench/sim"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/leastload"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/precisecacheaware"
	"github.com/warmroute/router/strategy/roundrobin"
)

// precisePolicies are the policies that -precise compares.
const precisePolicies = leastwork.Name + "_index," + precisecacheaware.Name + "," + leastwork.Name + "," +
	cacheaware.Name + "," +
	leastload.Name + "," + roundrobin.Name

// eventLag is the default age of an index's knowledge. A message is sent at the
// end of a step, and is read and applied in far less time.
const eventLag = 10 * time.Millisecond

type preciseScene struct {
	workload string
	rate     float64
	blocks   int // 0: the calibration's
}

// preciseScenes are the scenes of -precise: caches that keep all prompts that
// return, and caches that evict continuously.
var preciseScenes = []preciseScene{
	{"b2b-saas", 4, 0},
	{"b2b-saas", 2, 200},
	{"agents", 20, 0},
	{"agents", 20, 150},
	{"long", 2, 400},
	{"chat", 30, 150},
	{"hot", 40, 0},
	{"hot", 40, 100},
	{"mooncake-conversation", 1.5, 0},
}

// precise prints, for each scene, the results of exact numbers against approximate
// ones.
func (o *options) precise(ctx context.Context, scenes []preciseScene, out, log io.Writer) error {
	for _, sc := range scenes {
		with := *o
		with.workloads, with.rates, with.blocks = sc.workload, fmt.Sprint(sc.rate), sc.blocks
		with.policies = cmp.Or(with.policies, precisePolicies)
		if with.gateways == "1" {
			with.gateways = "1,2,8"
		}
		p, err := with.plan(log)
		if err != nil {
			return err
		}
		if _, err := p.sources[0].Build(sc.rate, p.seeds[0]); errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(log, "left out: %s (%v)\n", sc.workload, err)
			continue
		}
		study, err := p.run(ctx, log)
		if err != nil {
			return err
		}
		printPrecise(out, study)
	}
	return nil
}

// printPrecise prints one scene in Markdown.
func printPrecise(out io.Writer, s *sim.Study) {
	c := &s.Cells[0]
	fmt.Fprintf(out, "\n**%s at %g %s, %d blocks** (ideal %.3f, pooled %.3f)\n\n", c.Workload, c.Rate, s.Workloads[0].Unit,
		s.Calibration.Blocks,
		c.IdealShare.Mean, c.PooledShare.Mean)
	fmt.Fprintln(out, "| gateways | policy | cached | believed | right | TTFT mean | p50 | p99 | requests max/mean | "+
		"tokens max/mean |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|")
	cells := slices.Clone(s.Cells)
	slices.SortStableFunc(cells, func(a, b sim.Cell) int {
		return cmp.Or(cmp.Compare(a.Gateways, b.Gateways), cmp.Compare(a.TTFT.Mean, b.TTFT.Mean))
	})
	for _, c := range cells {
		var believed, right float64
		for _, r := range c.Runs {
			believed += float64(r.BelievedTokens) / float64(max(r.PromptTokens, 1)) / float64(len(c.Runs))
			right += r.RightShare / float64(len(c.Runs))
		}
		saturated := ""
		if c.Saturated > 0 {
			saturated = " s"
		}
		fmt.Fprintf(out, "| %d | %s | %.3f | %.3f | %.3f | %s%s | %s | %s | %.2f | %.2f |\n", c.Gateways, c.Policy,
			c.HitShare.Mean, believed, right,
			short(c.TTFT.Mean), saturated, short(c.P50.Mean), short(c.P99.Mean), c.MaxMean.Mean, c.MaxMeanTokens.Mean)
	}
}
