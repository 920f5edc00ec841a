package main

import (
	"fmt"
	"strings"

	"github.com/warmroute/router"
	"github.com/warmroute/router/bench/sim"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/consistenthash"
	"github.com/warmroute/router/strategy/leastload"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/pipeline"
	"github.com/warmroute/router/strategy/poweroftwo"
	"github.com/warmroute/router/strategy/precisecacheaware"
	"github.com/warmroute/router/strategy/random"
	"github.com/warmroute/router/strategy/roundrobin"
)

// policies are all that the command knows: the library's own, with their
// documented defaults, and the rivals.
func policies() []sim.Policy {
	own := []sim.Policy{
		{Name: leastwork.Name,
			About: "least Prefill + 5 * uncached + 0.2 * context of the requests in flight and queued, in tokens, for each " +
				"unit of weight",
			New: func(e sim.Env) (router.Strategy, error) {
				return leastwork.New(leastwork.Config{Rand: e.Rand, Share: e.Share})
			}},
		{Name: leastwork.Name + "_agree",
			About: "least_work with Agree 0.25: gateways that share nothing send a cold prompt to the same target, if that " +
				"costs at most a quarter more",
			New: func(e sim.Env) (router.Strategy, error) {
				return leastwork.New(leastwork.Config{Rand: e.Rand, Share: e.Share, Agree: 0.25})
			}},
		{Name: leastwork.Name + "_index", About: "least_work, by the engines' own KV events", Exact: true,
			New: func(e sim.Env) (router.Strategy, error) {
				return leastwork.New(leastwork.Config{Rand: e.Rand, Share: e.Share, Now: e.Now, Index: e.Index,
					BlockSize: e.Calibration.BlockSize})
			}},
		{Name: precisecacheaware.Name,
			About: "greatest resident share of the prompt, by the engines' own KV events, less half of the tokens that wait " +
				"for prefill beyond the least, over the length, and (load - least) / max(8, least)", Exact: true,
			New: func(e sim.Env) (router.Strategy, error) {
				return precisecacheaware.New(precisecacheaware.Config{Rand: e.Rand, Share: e.Share, Now: e.Now, Index: e.Index,
					BlockSize: e.Calibration.BlockSize})
			}},
		{Name: cacheaware.Name,
			About: "who has been sent most of the prompt, from half of it on, unless overloaded (load > least + 2 and > 1.5 * " +
				"least); else least load",
			New: func(e sim.Env) (router.Strategy, error) {
				return cacheaware.New(cacheaware.Config{Rand: e.Rand, Share: e.Share})
			}},
		{Name: pipeline.Name,
			About: "greatest sum of weight share, 2 * 4 / (4 + load beyond the least) and cached share; sessions stay",
			New: func(e sim.Env) (router.Strategy, error) {
				return pipeline.New(pipeline.Config{Rand: e.Rand, Share: e.Share, Now: e.Now})
			}},
		{Name: leastload.Name, About: "fewest requests in flight and queued", NoText: true,
			New: func(e sim.Env) (router.Strategy, error) { return leastload.New(leastload.Config{Rand: e.Rand}) }},
		{Name: poweroftwo.Name, About: "the less loaded of two drawn", NoText: true,
			New: func(e sim.Env) (router.Strategy, error) { return poweroftwo.New(poweroftwo.Config{Rand: e.Rand}) }},
		{Name: roundrobin.Name, About: "each in turn", NoText: true,
			New: func(sim.Env) (router.Strategy, error) { return roundrobin.New(roundrobin.Config{}) }},
		{Name: random.Name, About: "drawn", NoText: true,
			New: func(e sim.Env) (router.Strategy, error) { return random.New(random.Config{Rand: e.Rand}) }},
		{Name: consistenthash.Name, About: "the session's, or else the prompt's own place on a ring, bounded load",
			New: func(sim.Env) (router.Strategy, error) { return consistenthash.New(consistenthash.Config{}) }},
	}
	return append(own, others()...)
}

// defaultPolicies are those of the field that people choose between, so that the
// command is done within two minutes.
const defaultPolicies = leastwork.Name + "," + cacheaware.Name + "," + leastload.Name + "," + roundrobin.Name +
	",sglang_threshold,chwbl,llmd_weighted,lmetric,dynamo"

// choose returns the policies that names lists.
func choose(names string) ([]sim.Policy, error) {
	all := policies()
	switch names {
	case "":
		names = defaultPolicies
	case "all":
		return all, nil
	}
	var out []sim.Policy
	for _, name := range split(names) {
		found := false
		for _, p := range all {
			if p.Name == name {
				out, found = append(out, p), true
			}
		}
		if !found {
			known := make([]string, len(all))
			for i, p := range all {
				known[i] = p.Name
			}
			return nil, fmt.Errorf("-policies: no %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	return out, nil
}

func split(list string) []string {
	var out []string
	for s := range strings.SplitSeq(list, ",") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}
