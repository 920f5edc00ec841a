package routertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/warmroute/router"
)

func (k *kit) offered() {
	k.each([]kind{idle, unknown, mixed}, func(st step, r result) string { return chosen(st.targets, r.d, r.err) })
}

func (k *kit) lengths() {
	k.each([]kind{idle, mixed}, func(st step, r result) string {
		if r.err != nil {
			return ""
		}
		return sound(st.prompt, r.d)
	})
}

func (k *kit) extremes() {
	k.each([]kind{extreme}, func(st step, r result) string { return valid(st.prompt, st.targets, r.d, r.err) })
}

// each plays histories and looks at every result.
func (k *kit) each(kinds []kind, check func(step, result) string) {
	for seed := range uint64(4 * len(kinds)) {
		steps := k.history(seed, 150, kinds[seed%uint64(len(kinds))])
		for i, r := range play(k.new(k.rand(seed)), steps, lens{}) {
			if bad := check(steps[i], r); bad != "" {
				k.failf("history %d, pick %d: %s", seed, i+1, bad)
			}
		}
	}
}

func (k *kit) noTarget() {
	s := k.new(k.rand(0))
	rng := k.rng(0)
	for _, p := range k.prompts {
		var fleets [][]router.Target
		fleets = append(fleets, nil, []router.Target{}, k.fleet(rng, 1, idle), k.fleet(rng, 1, unknown))
		for _, state := range []router.State{router.Unhealthy, router.Cooling, router.Tripped, router.Draining,
			router.Full, router.Asleep, 200} {
			for _, n := range []int{1, 3} {
				none := k.fleet(rng, n, idle)
				for i := range none {
					none[i].State = state
				}
				one := slices.Clone(none)
				one[rng.IntN(n)].State = router.Ready
				fleets = append(fleets, none, one)
			}
		}
		for _, ts := range fleets {
			d, err := s.Pick(context.Background(), p, ts)
			if bad := chosen(ts, d, err); bad != "" {
				k.failf("%d targets, %d Ready: %s", len(ts), countReady(ts), bad)
			}
			if err == nil {
				s.Record(d, router.Outcome{Stage: router.Sent})
				s.Record(d, router.Outcome{Stage: router.Finished, Status: 200})
			}
		}
	}
}

func (k *kit) order() {
	k.r.Helper()
	k.same("the order of targets", noLens, func(seed uint64) lens {
		rng := k.rng(seed + 1000)
		return lens{offer: func(st step) []router.Target { return shuffled(rng.Shuffle, st.targets) }}
	})
	for seed := range uint64(4) {
		rng := k.rng(seed + 2000)
		s, steps := k.new(k.rand(seed)), k.history(seed, 60, kind(seed))
		x, ok := s.(router.Explainer)
		if !ok {
			return
		}
		play(s, steps, lens{before: func(_ router.Strategy, st step, ts []router.Target) {
			a := x.Explain(context.Background(), st.prompt, ts, nil)
			b := x.Explain(context.Background(), st.prompt, shuffled(rng.Shuffle, ts), nil)
			if diff := differentLists(a, b); diff != "" {
				k.failf("the order of targets matters to Explain: %s", diff)
			}
		}})
	}
}

func shuffled(shuffle func(int, func(i, j int)), ts []router.Target) []router.Target {
	ts = slices.Clone(ts)
	shuffle(len(ts), func(i, j int) { ts[i], ts[j] = ts[j], ts[i] })
	return ts
}

// ties draws 8 equal targets many times, for prompts that have nothing in common
// and for empty ones, without ever recording.
func (k *kit) ties() {
	const targets, picks = 8, 4000
	// Exceeded once in 10,000 by chance, at 7 degrees of freedom; the seed is
	// fixed, so it is not chance that decides.
	const limit = 29.88
	prompts := map[string]func(i int) router.Prompt{
		"different": func(i int) router.Prompt {
			return router.Prompt{Model: "llama", Session: fmt.Sprint("session ", i), Text: fmt.Sprint(i, " is the question")}
		},
		"empty": func(int) router.Prompt { return router.Prompt{Model: "llama"} },
	}
	for _, what := range []kind{idle, unknown} {
		for name, prompt := range prompts {
			s, ts := k.new(k.rand(7)), k.fleet(k.rng(7), targets, what)
			counts := make(map[string]int)
			for i := range picks {
				d, err := s.Pick(context.Background(), prompt(i), ts)
				if err != nil {
					k.failf("pick %d: %v", i+1, err)
				}
				counts[d.Target.ID]++
			}
			x := 0.0
			for i := range ts {
				e := float64(picks) / targets
				x += math.Pow(float64(counts[ts[i].ID])-e, 2) / e
			}
			if !(x <= limit) {
				k.failf("%d equal targets, %s prompts: chi-square %.1f > %.2f for %v", targets, name, x, limit, counts)
			}
		}
	}
}

func (k *kit) unchanged() {
	for seed := range uint64(8) {
		s, steps := k.new(k.rand(seed)), k.history(seed, 80, kind(seed%4))
		for i := range steps {
			st := &steps[i]
			// An append would write to the slots behind the end.
			n := len(st.targets)
			all := append(slices.Clone(st.targets), k.fleet(k.rng(seed), 3, idle)...)
			was := slices.Clone(all)
			tokens := slices.Clone(st.prompt.Tokens)
			look := func(method string) {
				if !slices.EqualFunc(all, was, sameTarget) {
					k.failf("%s wrote to the targets", method)
				}
				if !sameTokens(st.prompt.Tokens, tokens) {
					k.failf("%s wrote to the prompt's tokens", method)
				}
			}
			if x, ok := s.(router.Explainer); ok {
				x.Explain(context.Background(), st.prompt, all[:n], nil)
				look("Explain")
			}
			d, err := s.Pick(context.Background(), st.prompt, all[:n])
			look("Pick")
			if err == nil && st.sent {
				s.Record(d, router.Outcome{Stage: router.Sent})
				for _, o := range st.stages {
					s.Record(d, o)
				}
				look("Record")
			}
		}
	}
}

func (k *kit) notKept() {
	k.r.Helper()
	k.same("what becomes of the slice after Pick", noLens, func(uint64) lens {
		var buf []router.Target
		return lens{
			offer: func(st step) []router.Target {
				buf = append(buf[:0], st.targets...)
				return buf
			},
			before: func(s router.Strategy, st step, _ []router.Target) {
				if x, ok := s.(router.Explainer); ok {
					other := slices.Clone(st.targets)
					x.Explain(context.Background(), st.prompt, other, nil)
					scribble(other)
				}
			},
			after: scribble,
		}
	})
}

func scribble(ts []router.Target) {
	for i := range ts {
		ts[i] = router.Target{ID: "scribbled", Weight: 1e9, State: router.Draining,
			Load: router.Load{Known: true, InFlight: 1e6}}
	}
}

func (k *kit) canceled() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s := k.new(k.rand(0))
	for i, st := range k.history(0, 100, mixed) {
		d, err := s.Pick(ctx, st.prompt, st.targets)
		if err == nil || !errors.Is(err, context.Canceled) {
			if bad := valid(st.prompt, st.targets, d, err); bad != "" {
				k.failf("pick %d under a done context: %s", i+1, bad)
			}
		}
		if x, ok := s.(router.Explainer); ok {
			x.Explain(ctx, st.prompt, st.targets, nil)
		}
		d, err = s.Pick(context.Background(), st.prompt, st.targets)
		if bad := valid(st.prompt, st.targets, d, err); bad != "" {
			k.failf("pick %d after one under a done context: %s", i+1, bad)
		}
	}
}

func (k *kit) scopes() {
	const targets = 6
	text := strings.Repeat("the same words in another scope ", 40)
	tokens := make([]uint32, 256)
	for i := range tokens {
		tokens[i] = uint32(7 * i)
	}
	scopes := []router.Prompt{
		{Model: "llama"}, {Model: "qwen"}, {Model: "llama", Adapter: "sql"}, {Model: "llama", Salt: "sql"},
		{Model: "llama", Adapter: "s", Salt: "ql"}, {Model: "llamas", Adapter: "ql"}, {Adapter: "llama"}, {},
	}
	ask := func(scope router.Prompt, body, i int) router.Prompt {
		scope.Session = fmt.Sprint("session ", i)
		if body == 0 {
			scope.Text = fmt.Sprint(i, text)
		} else {
			scope.Tokens = slices.Clone(tokens)
			scope.Tokens[0] = uint32(i)
		}
		return scope
	}
	for seed := range uint64(3) {
		for body := range 2 {
			for _, from := range scopes {
				for _, to := range scopes {
					if from.Scope() == to.Scope() {
						continue
					}
					ts := k.fleet(k.rng(seed), targets, kind(seed%2))
					told, fresh := k.new(k.rand(seed)), k.new(k.rand(seed))
					// Each target has one recorded prompt, so that none stands out
					// by the number of its prompts; the first of the one that is
					// then asked for elsewhere.
					for i := range ts {
						d, err := told.Pick(context.Background(), ask(from, body, i), ts[i:i+1])
						if _, err2 := fresh.Pick(context.Background(), ask(from, body, i), ts[i:i+1]); err != nil || err2 != nil {
							k.failf("pick of a single target: %v, %v", err, err2)
						}
						for _, stage := range []router.Stage{router.Sent, router.FirstToken, router.Finished} {
							told.Record(d, router.Outcome{Stage: stage})
						}
					}
					k.asFresh(told, fresh, ask(to, body, 0), ts, fmt.Sprintf("%q after %q", to.Scope(), from.Scope()))
				}
			}
		}
	}
}

// asFresh fails if `told` knows more of p than fresh, which has no records.
func (k *kit) asFresh(told, fresh router.Strategy, p router.Prompt, ts []router.Target, where string) {
	if x, ok := told.(router.Explainer); ok {
		for _, c := range x.Explain(context.Background(), p, ts, nil) {
			if c.Cached != 0 {
				k.failf("scope %s: Explain finds %d cached", where, c.Cached)
			}
		}
	}
	for range 8 {
		a, errA := told.Pick(context.Background(), p, ts)
		b, errB := fresh.Pick(context.Background(), p, ts)
		if diff := differ(result{a, errA}, result{b, errB}); diff != "" {
			k.failf("scope %s: %s as if fresh", where, diff)
		}
		if a.Cached != 0 {
			k.failf("scope %s: %d cached", where, a.Cached)
		}
	}
}
