package cacheaware_test

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/cacheaware"
)

// live is a decision under way in both worlds.
type live struct {
	d router.Decision
	r *request // nil: made by hand
}

// game plays one history to the strategy and to the oracle and compares them.
type game struct {
	tb      testing.TB
	s       *cacheaware.Strategy
	oracle  *naive
	draws   int // the most draws for one comparison
	step    int
	prompts []router.Prompt
	live    []live
	seen    map[router.Reason]int // reasons that were compared
}

func play(tb testing.TB, prog program, draws int) *game {
	src := rand.New(rand.NewPCG(1, uint64(len(prog))))
	cfg, oracle := prog.config()
	cfg.Rand = src.Uint64
	g := &game{tb: tb, s: mustNew(tb, cfg), oracle: oracle, draws: draws, seen: map[router.Reason]int{}}
	for ; len(prog) > 0; g.step++ {
		switch op := prog.n(10); op {
		default:
			p, ts := prog.prompt(g.prompts), prog.targets()
			g.prompts = append(g.prompts, p)
			if op == 4 { // somebody else chose: one target is offered, in whatever state
				ts = ts[:1]
				ts[0].State = router.Ready
			}
			if d, ok := g.compare(p, ts); ok {
				g.live = append(g.live, live{d, newRequest(d.Target.ID, p)})
				if prog.n(8) > 0 {
					g.record(len(g.live)-1, router.Outcome{Stage: router.Sent})
				}
			}
		case 5:
			p := prog.prompt(g.prompts)
			g.prompts = append(g.prompts, p)
			d := router.Decision{Prompt: p, Target: router.Target{ID: ids[prog.n(len(ids))]}}
			if n := len(g.live); n > 0 && prog.n(2) == 0 { // as an earlier one, which has most often no end yet
				d = g.live[n-1-prog.n(min(n, 4))].d
				d.Memo = nil
			}
			g.live = append(g.live, live{d: d})
			if prog.n(8) > 0 {
				g.record(len(g.live)-1, router.Outcome{Stage: router.Sent})
			}
		case 6, 7, 8:
			if len(g.live) > 0 {
				i := len(g.live) - 1 - prog.n(min(len(g.live), 12))
				g.record(i, prog.outcome())
			}
		case 9:
			if prog.n(3) == 0 {
				id := ids[prog.n(len(ids))]
				g.s.Forget(id)
				g.oracle.forget(id)
			}
		}
		if g.step%4 == 0 {
			g.compare(prog.prompt(g.prompts), prog.targets())
		}
	}
	return g
}

func (p *program) outcome() router.Outcome {
	o := router.Outcome{Stage: []router.Stage{router.FirstToken, router.Finished, router.Failed, router.Failed,
		router.Canceled, router.Sent, 0, 99}[p.n(8)]}
	if o.Stage.Final() && p.n(3) == 0 {
		o.Reply = []string{"", "ab", "b", "aaaaaaaaaa"}[p.n(4)]
		o.OutputTokens = p.n(2)
	}
	return o
}

func (g *game) record(i int, o router.Outcome) {
	l := g.live[i]
	g.s.Record(l.d, o)
	if l.r != nil {
		g.oracle.record(l.r, o)
	} else {
		g.oracle.recordByHand(l.d, o)
	}
}

// compare holds Explain and Pick to the oracle and returns what was picked.
func (g *game) compare(p router.Prompt, ts []router.Target) (router.Decision, bool) {
	g.tb.Helper()
	v := g.oracle.judge(p, ts)
	g.explained(p, ts, &v)
	d, err := g.s.Pick(context.Background(), p, ts)
	if len(v.ready) == 0 {
		if !errors.Is(err, router.ErrNoTarget) {
			g.tb.Fatalf("step %d: %v, want ErrNoTarget", g.step, err)
		}
		return d, false
	}
	g.seen[v.reason]++
	missing := slices.Clone(v.allowed)
	for n := 0; ; n++ {
		if err != nil {
			g.tb.Fatalf("step %d: %v", g.step, err)
		}
		f := v.fact(d.Target.ID)
		if f == nil || !slices.Contains(v.allowed, d.Target.ID) || d.Cached != f.cached ||
			d.Length != v.length || d.Unit != v.unit || d.Reason != v.reason {
			g.tb.Fatalf("step %d: picked %s, %s, cached %d of %d %s for %+v, want %v",
				g.step, d.Target.ID, d.Reason, d.Cached, d.Length, d.Unit, p, &v)
		}
		missing = slices.DeleteFunc(missing, func(id string) bool { return id == d.Target.ID })
		if len(missing) == 0 || n == g.draws {
			break
		}
		d, err = g.s.Pick(context.Background(), p, ts)
	}
	if len(missing) > 0 && g.draws >= 500 {
		g.tb.Fatalf("step %d: %v never picked, want %v", g.step, missing, &v)
	}
	return d, true
}

func (g *game) explained(p router.Prompt, ts []router.Target, v *verdict) {
	g.tb.Helper()
	cs := g.s.Explain(context.Background(), p, ts, nil)
	if len(cs) != len(ts) {
		g.tb.Fatalf("step %d: %d candidates of %d targets", g.step, len(cs), len(ts))
	}
	for i, c := range cs {
		want := router.Candidate{Target: c.Target, Cached: g.oracle.cached(p, c.Target.ID), Length: v.length, Unit: v.unit}
		if i < len(v.ready) {
			want.Score = v.score(c.Target.ID)
		}
		switch {
		case i >= len(v.ready):
			want.Reason = router.ReasonOf(c.Target.State)
		case i == 0:
			want.Reason = v.reason
		default:
			want.Reason = g.oracle.why(v, c.Target.ID)
		}
		if ready := i < len(v.ready); !sameCandidate(c, want) || ready != (c.Target.State == router.Ready) {
			g.tb.Fatalf("step %d: Explain of %+v has as number %d\n%+v, want\n%+v\n%v", g.step, p, i+1, c, want, v)
		}
	}
	var first []string
	for _, c := range cs[:len(v.allowed)] {
		first = append(first, c.Target.ID)
	}
	if !slices.IsSorted(first) || !slices.Equal(first, v.allowed) {
		g.tb.Fatalf("step %d: Explain begins with %v, want %v", g.step, first, v)
	}
	rest := cs[len(v.allowed):max(len(v.ready), len(v.allowed))]
	if !slices.IsSortedFunc(rest, func(a, b router.Candidate) int {
		if v.pinned {
			return cmp.Compare(b.Cached, a.Cached)
		}
		return cmp.Compare(v.fact(a.Target.ID).load, v.fact(b.Target.ID).load)
	}) {
		g.tb.Fatalf("step %d: %+v is not best first, by %v", g.step, rest, v)
	}
}

// score is the share if rule 2 decides, and depends on the first's load otherwise; only targets
// tied with the first are as high.
func (v *verdict) score(id string) float64 {
	first := v.fact(v.allowed[0])
	plain := func(f *fact) float64 {
		switch {
		case v.length == 0:
			return 0
		case v.pinned:
			return float64(f.cached) / float64(v.length)
		case v.known:
			return 1 / (1 + f.load - first.load)
		}
		return 1 / (1 + float64(f.warmed-first.warmed))
	}
	score, top, next := plain(v.fact(id)), plain(first), 0.0
	for i := range v.ready {
		if x := plain(&v.ready[i]); x < top {
			next = max(next, x)
		}
	}
	if score == top && !slices.Contains(v.allowed, id) {
		return (top + next) / 2
	}
	return score
}

func sameCandidate(a, b router.Candidate) bool {
	near := math.Abs(a.Score-b.Score) < 1e-9
	a.Score = b.Score
	return near && a == b
}

func randomProgram(seed uint64, n int) program {
	rng := rand.New(rand.NewPCG(seed, 7))
	prog := make(program, n)
	for i := range prog {
		prog[i] = byte(rng.Uint32())
	}
	return prog
}

// Random histories end as the oracle says, at every step: which targets may be
// picked and that each of them is, what is cached there, why, and what Explain
// makes of the rest.
func TestOracle(t *testing.T) {
	seen := map[router.Reason]int{}
	for seed := range uint64(300) {
		for r, n := range play(t, randomProgram(seed, 3000), 1000).seen {
			seen[r] += n
		}
	}
	for _, r := range []router.Reason{router.ReasonWarm, router.ReasonSpill, router.ReasonCold, router.ReasonEmpty,
		router.ReasonOnly} {
		if seen[r] < 50 {
			t.Errorf("only %d decisions were %q", seen[r], r)
		}
	}
	t.Log(seen)
}

func FuzzOracle(f *testing.F) {
	for seed := range uint64(8) {
		f.Add([]byte(randomProgram(seed, 200)))
	}
	f.Fuzz(func(t *testing.T, prog []byte) {
		play(t, prog[:min(len(prog), 2000)], 4)
	})
}

func mustNew(tb testing.TB, cfg cacheaware.Config) *cacheaware.Strategy {
	tb.Helper()
	s, err := cacheaware.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}
