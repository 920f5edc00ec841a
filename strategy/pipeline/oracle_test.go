package pipeline_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/pipeline"
)

// program is a stream of choices: random bytes make a random history, and a
// fuzzer can shrink it.
type program []byte

// n chooses one of k.
func (p *program) n(k int) int {
	if len(*p) == 0 {
		return 0
	}
	b := (*p)[0]
	*p = (*p)[1:]
	return int(b) % k
}

var ids = []string{"a", "b", "c", "d", "e"}

func (p *program) config() (pipeline.Config, *naive) {
	n := &naive{
		static: 1, load: 2, affinity: 1, half: 4, own: -1, slack: 2, factor: 1.5, ttl: 300 * time.Second, max: 100_000,
		now: time.Unix(1e9, 0),
	}
	if p.n(4) == 0 {
		return pipeline.Config{}, n
	}
	w := []float64{1, 2, 0.5, 3, -1}
	n.static, n.load, n.affinity = w[p.n(5)], w[p.n(5)], w[p.n(5)]
	if p.n(10) == 0 {
		n.static, n.load, n.affinity = -1, -1, -1
	}
	n.half, n.slack, n.factor = []float64{4, 1, 10}[p.n(3)], []float64{2, 0.5}[p.n(2)], []float64{1.5, 1}[p.n(2)]
	n.ttl, n.max = []time.Duration{-1, 10 * time.Second, time.Minute}[p.n(3)], 1+p.n(4)
	c := pipeline.Config{
		StaticWeight: n.static, LoadWeight: n.load, AffinityWeight: n.affinity, LoadHalf: n.half,
		OverloadSlack: n.slack, OverloadFactor: n.factor, SessionTTL: n.ttl, MaxSessions: n.max,
	}
	if p.n(2) == 0 {
		n.own = w[p.n(4)]
		c.Scorers = []pipeline.Weighted{{Weight: n.own, Scorer: pipeline.ScorerFunc(
			func(_ context.Context, o *pipeline.Offer, scores []float64) {
				for i := range scores {
					scores[i] = ownScore(o.Targets[i].ID)
				}
			})}}
	}
	if p.n(3) == 0 {
		n.filter, n.relax = true, p.n(2) == 0
		c.RelaxFilters = n.relax
		c.Filters = []pipeline.Filter{pipeline.FilterFunc(func(_ context.Context, o *pipeline.Offer, keep []bool) {
			for i := range keep {
				keep[i] = ownKeeps(o.Targets[i].ID)
			}
		})}
	}
	return c, n
}

func (p *program) targets() []router.Target {
	var ts []router.Target
	n, first := 1+p.n(len(ids)), p.n(len(ids))
	kind := p.n(4) // idle, loaded, loaded or unknown, unknown
	for i := range n {
		t := router.Target{ID: ids[(first+i)%len(ids)]}
		if p.n(4) == 0 {
			t.Weight = []float64{1, 2, 4, 0.5}[p.n(4)]
		}
		if p.n(6) == 0 {
			t.State = router.State(p.n(6))
		}
		t.Load.Known = kind < 2 || kind == 2 && p.n(2) == 0
		if t.Load.Known && kind > 0 {
			t.Load.InFlight, t.Load.Queued = p.n(10), p.n(3)
		}
		ts = append(ts, t)
	}
	return ts
}

func (p *program) prompt() router.Prompt {
	q := router.Prompt{
		Model: []string{"m", "m", "m", "n"}[p.n(4)], Adapter: []string{"", "", "x"}[p.n(3)],
		Session: []string{"", "s1", "s1", "s2", "s3", "s4"}[p.n(6)],
	}
	b := []byte("aaaaaaaaaaaaaaaaaaaaaaaa")[:p.n(24)]
	if len(b) > 0 && p.n(2) == 0 {
		b[p.n(len(b))] = 'b'
	}
	q.Text = string(b)
	return q
}

func (p *program) outcome() router.Outcome {
	return router.Outcome{
		Stage: []router.Stage{router.FirstToken, router.FirstToken, router.Finished, router.Failed, router.Failed,
			router.Canceled, router.Sent, 0, 77}[p.n(9)],
		Status: []int{0, 503, 400}[p.n(3)],
	}
}

type live struct {
	d router.Decision
	r *request
}

type game struct {
	tb     testing.TB
	s      *pipeline.Strategy
	oracle *naive
	draws  int
	step   int
	live   []live
	hand   []live
	seen   map[router.Reason]int
}

func play(tb testing.TB, prog program, draws int) *game {
	cfg, oracle := prog.config()
	cfg.Rand = rand.New(rand.NewPCG(1, uint64(len(prog)))).Uint64
	g := &game{tb: tb, oracle: oracle, draws: draws, seen: map[router.Reason]int{}}
	cfg.Now = func() time.Time { return oracle.now }
	g.s = mustNew(tb, cfg)
	for ; len(prog) > 0; g.step++ {
		switch op := prog.n(12); op {
		default:
			p, ts := prog.prompt(), prog.targets()
			if d, ok := g.compare(p, ts); ok {
				l := live{d, &request{p: p, id: d.Target.ID, text: p.Text}}
				g.live = append(g.live, l)
				if prog.n(8) > 0 {
					g.record(l, router.Outcome{Stage: router.Sent})
				}
			}
		case 5, 6, 7, 8:
			if n := len(g.live); n > 0 {
				g.record(g.live[n-1-prog.n(min(n, 12))], prog.outcome())
			}
		case 9:
			// One by hand at a time for a prompt and a target, so that there is no
			// question which one ends.
			p, id := prog.prompt(), ids[prog.n(len(ids))]
			d := router.Decision{Prompt: p, Target: router.Target{ID: id}}
			same := func(l live) bool { return l.r.p.Text == p.Text && l.r.p.Scope() == p.Scope() && l.r.id == id }
			if slices.ContainsFunc(g.hand, same) {
				continue
			}
			g.s.Record(d, router.Outcome{Stage: router.Sent})
			g.hand = append(g.hand, live{d, oracle.sendByHand(p, id)})
		case 10:
			if n := len(g.hand); n > 0 {
				i := prog.n(n)
				o := router.Outcome{Stage: router.Finished + router.Stage(prog.n(3)), Status: []int{0, 400}[prog.n(2)]}
				if l := g.hand[i]; !l.r.gone {
					g.s.Record(l.d, o)
					oracle.endByHand(l.r, o)
				}
				g.hand = slices.Delete(g.hand, i, i+1)
			}
		case 11:
			switch prog.n(4) {
			case 0:
				id := ids[prog.n(len(ids))]
				g.s.Forget(id)
				oracle.forget(id)
			default:
				oracle.now = oracle.now.Add(time.Duration(prog.n(30)) * time.Second)
			}
		}
		if g.step%4 == 0 {
			g.compare(prog.prompt(), prog.targets())
		}
		if n := g.s.Sessions().Len(); n > oracle.max {
			tb.Fatalf("step %d: %d sessions of at most %d", g.step, n, oracle.max)
		}
	}
	return g
}

func (g *game) record(l live, o router.Outcome) {
	g.s.Record(l.d, o)
	g.oracle.record(l.r, o)
}

// compare holds Explain and Pick to the oracle and returns what was picked.
func (g *game) compare(p router.Prompt, ts []router.Target) (router.Decision, bool) {
	g.tb.Helper()
	v := g.oracle.judge(p, ts)
	g.explained(p, ts, &v)
	missing := map[string]bool{} // as good in every part as the first that was taken
	var first router.Decision
	for n := 0; n <= g.draws; n++ {
		d, err := g.s.Pick(context.Background(), p, ts)
		if len(v.candidates) == 0 {
			if !errors.Is(err, router.ErrNoTarget) {
				g.tb.Fatalf("step %d: %v, want ErrNoTarget", g.step, err)
			}
			return d, false
		}
		if err != nil {
			g.tb.Fatalf("step %d: %v", g.step, err)
		}
		f := v.fact(d.Target.ID)
		if f == nil || !v.mayTake(f) || d.Cached != f.cached || d.Length != v.length || d.Reason != g.oracle.reason(&v, f) {
			g.tb.Fatalf("step %d: picked %s, %s, cached %d of %d, for %+v of %+v\n%+v", g.step, d.Target.ID, d.Reason, d.Cached,
				d.Length, p, ts, v)
		}
		if n == 0 {
			first = d
			g.seen[d.Reason]++
			for _, o := range v.candidates {
				if !v.pin && slices.Equal(o.parts, f.parts) && o.worth == f.worth && o.warmed == f.warmed && len(o.parts) > 0 {
					missing[o.t.ID] = true
				}
			}
		}
		if delete(missing, d.Target.ID); len(missing) == 0 {
			break
		}
	}
	if len(missing) > 0 && g.draws >= 500 {
		g.tb.Fatalf("step %d: %v never picked, of %+v", g.step, missing, v)
	}
	return first, true
}

func (g *game) explained(p router.Prompt, ts []router.Target, v *verdict) {
	g.tb.Helper()
	ds := g.s.Details(context.Background(), p, ts)
	if len(ds) != len(ts) {
		g.tb.Fatalf("step %d: %d candidates of %d targets", g.step, len(ds), len(ts))
	}
	last := math.Inf(1)
	for i, d := range ds {
		f := v.fact(d.Target.ID)
		if i == 0 && v.pin && f != nil && !math.IsNaN(f.score) {
			f.score = 1 // whatever the scorers say
		}
		switch {
		case i >= len(v.candidates):
			want := router.ReasonOf(d.Target.State)
			if want == "" {
				want = pipeline.ReasonFiltered
			}
			if f != nil || d.Reason != want || d.Score != 0 && !math.IsNaN(d.Score) || d.Parts != nil ||
				d.Cached != g.oracle.cached(p, d.Target.ID) {
				g.tb.Fatalf("step %d: %+v as number %d of %+v", g.step, d, i+1, v)
			}
			continue
		case f == nil || d.Cached != f.cached || d.Length != v.length || len(d.Parts) != len(f.parts) ||
			!(math.Abs(d.Score-f.score) < rounding || math.IsNaN(d.Score) && math.IsNaN(f.score)):
			g.tb.Fatalf("step %d: %+v, want %+v", g.step, d, f)
		case i == 0:
			if !v.mayTake(f) || d.Reason != g.oracle.reason(v, f) {
				g.tb.Fatalf("step %d: first is %+v of %+v", g.step, d, v)
			}
		case v.pin:
			if d.Reason != pipeline.ReasonNotSession {
				g.tb.Fatalf("step %d: %+v, with a session at %s", g.step, d, v.home)
			}
		case (d.Reason == router.ReasonOverloaded) != (v.bound && v.home == d.Target.ID && f.overloaded):
			g.tb.Fatalf("step %d: %+v, of %+v", g.step, d, v)
		case d.Reason == router.ReasonTied && !v.mayTake(f):
			g.tb.Fatalf("step %d: %+v is not tied, of %+v", g.step, d, v)
		}
		for k := range f.parts {
			if math.Abs(d.Parts[k].Score-f.parts[k]) > rounding {
				g.tb.Fatalf("step %d: %+v, want %+v", g.step, d, f)
			}
		}
		if !(v.pin && i == 0) {
			if d.Score > last+rounding {
				g.tb.Fatalf("step %d: %+v is not best first", g.step, ds)
			}
			last = d.Score
		}
	}
}

func randomProgram(seed uint64, n int) program {
	rng := rand.New(rand.NewPCG(seed, 7))
	prog := make(program, n)
	for i := range prog {
		prog[i] = byte(rng.Uint32())
	}
	return prog
}

// Random histories end as the oracle says, at every step.
func TestOracle(t *testing.T) {
	seen := map[router.Reason]int{}
	for seed := range uint64(300) {
		for r, n := range play(t, randomProgram(seed, 3000), 1000).seen {
			seen[r] += n
		}
	}
	for _, r := range []router.Reason{
		router.ReasonWarm, router.ReasonSpill, router.ReasonCold, router.ReasonEmpty, router.ReasonOnly, router.ReasonRandom,
		pipeline.ReasonSession, pipeline.ReasonBestScore,
	} {
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

func mustNew(tb testing.TB, cfg pipeline.Config) *pipeline.Strategy {
	tb.Helper()
	s, err := pipeline.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}
