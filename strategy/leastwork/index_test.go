package leastwork_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/kvtest"
	"github.com/warmroute/router/internal/racetest"
	"github.com/warmroute/router/internal/textcache"
	"github.com/warmroute/router/internal/worthtest"
	"github.com/warmroute/router/routertest"
	"github.com/warmroute/router/strategy/leastwork"
)

// textOf makes a text that has three bytes for each token.
func textOf(tokens []uint32) string {
	b := make([]byte, 0, 3*len(tokens))
	for _, t := range tokens {
		b = append(b, 'a'+byte(t%26), 'a'+byte(t/26%26), 'a'+byte(t/676%26))
	}
	return string(b)
}

func commonTokens(a, b []uint32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// resident is what the engines hold and what was sent, kept the naive way.
type resident struct {
	trusted map[string]bool
	held    map[string][][]uint32
	sent    map[string][]sending
}

type sending struct {
	tokens []uint32
	text   string
	until  time.Time // it is presumed
}

// resident reports whether the engine has reported all blocks that a prompt could
// reuse.
func (n *resident) resident(id string, tokens []uint32) bool {
	all := (len(tokens) - 1) / kvtest.BlockSize * kvtest.BlockSize
	return n.trusted[id] && (all == 0 || slices.ContainsFunc(n.held[id],
		func(h []uint32) bool { return commonTokens(h, tokens) >= all }))
}

// uncached is the rule, in tokens; exact is false if no Ready target is trusted.
func (n *resident) uncached(p router.Prompt, ts []router.Target, now time.Time) (out []float64, exact bool) {
	for _, t := range ts {
		exact = exact || t.State == router.Ready && n.trusted[t.ID]
	}
	whole := func(k int) int { return min(k, len(p.Tokens)-1) / kvtest.BlockSize * kvtest.BlockSize }
	for _, t := range ts {
		cached := 0
		if exact && n.trusted[t.ID] {
			for _, h := range n.held[t.ID] {
				cached = max(cached, whole(commonTokens(h, p.Tokens)))
			}
			for _, s := range n.sent[t.ID] {
				if now.Before(s.until) {
					cached = max(cached, whole(commonTokens(s.tokens, p.Tokens)))
				}
			}
			out = append(out, float64(len(p.Tokens)-cached))
			continue
		}
		for _, s := range n.sent[t.ID] {
			switch {
			case p.Text != "":
				cached = max(cached, commonPrefix(s.text, p.Text))
			case s.text == "":
				cached = max(cached, commonTokens(s.tokens, p.Tokens))
			}
		}
		switch {
		case p.Text == "" && exact:
			out = append(out, float64(len(p.Tokens)-min(cached, len(p.Tokens)-1)))
		case p.Text == "":
			out = append(out, float64(len(p.Tokens)-cached))
		case exact:
			k := int(float64(len(p.Tokens)) * (float64(cached) / float64(len(p.Text))))
			out = append(out, float64(len(p.Tokens)-min(k, len(p.Tokens)-1)))
		default:
			out = append(out, float64(len(p.Text)-cached)/4)
		}
	}
	return out, exact
}

// counts is what of uncached counts for the choice.
func (n *resident) counts(p router.Prompt, ts []router.Target, uncached []float64, exact bool) []float64 {
	key, size := p.Text, len(p.Text)
	if key == "" {
		key, size = "ids "+textcache.TokenBytes(p.Tokens), len(p.Tokens) // never the beginning of a text
	}
	unit := 1.0
	if exact || p.Text == "" {
		size = len(p.Tokens)
	} else {
		unit = 4
	}
	if !exact && p.Text == "" {
		size *= textcache.TokenSize
		unit = float64(textcache.TokenSize)
	}
	sent := make(map[string][]string)
	for id, all := range n.sent {
		for _, s := range all {
			if k := s.text; k != "" {
				sent[id] = append(sent[id], k)
			} else {
				sent[id] = append(sent[id], "ids "+textcache.TokenBytes(s.tokens))
			}
		}
	}
	held := make([]int, len(ts))
	for i := range held {
		held[i] = size - int(math.Round(uncached[i]*unit))
	}
	out := make([]float64, len(ts))
	for i, w := range worthtest.Worth(sent, nil, key, ts, held, size, exact) {
		out[i] = float64(size-w) / unit
	}
	return out
}

// TestRuleWithIndex plays random histories of engines, some of which cannot be
// trusted, of requests and of a clock, and holds each Pick, and Explain, to the
// rule. No request is in flight, so work is what the targets say.
func TestRuleWithIndex(t *testing.T) {
	picks, mixed, cached := 0, 0, 0
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 21))
		now := time.Unix(1e9, 0)
		e := kvtest.New(t)
		s, err := leastwork.New(leastwork.Config{Rand: r.Uint64, Index: e.Index, Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		n := &resident{trusted: map[string]bool{}, held: map[string][][]uint32{}, sent: map[string][]sending{}}
		ids := []string{"a", "b", "c", "d", "e", "f"}
		for _, id := range ids {
			if r.IntN(3) > 0 {
				n.trusted[id] = true
				e.Begin(id)
			}
		}
		stem := kvtest.Tokens(int(seed), 300)
		prompt := func() router.Prompt {
			k := 1 + r.IntN(len(stem))
			p := router.Prompt{Model: "m", Tokens: append(slices.Clone(stem[:k]),
				kvtest.Tokens(1000+r.IntN(3), 1+r.IntN(60))...)}
			if r.IntN(3) > 0 {
				p.Text = textOf(p.Tokens)
			}
			return p
		}
		for step := range 50 {
			now = now.Add(time.Duration(r.IntN(900)) * time.Millisecond)
			id := ids[r.IntN(len(ids))]
			switch k := r.IntN(12); {
			case k < 3 && n.trusted[id]:
				p := prompt()
				e.Store(id, p)
				n.held[id] = append(n.held[id], p.Tokens[:len(p.Tokens)/kvtest.BlockSize*kvtest.BlockSize])
			case k == 3 && n.trusted[id]:
				e.Distrust(id)
				n.trusted[id] = false
			case k == 4:
				s.Forget(id)
				n.sent[id] = nil
			}
			targets := make([]router.Target, 1+r.IntN(len(ids)))
			for i := range targets {
				targets[i] = router.Target{ID: ids[i], Weight: []float64{0, 1, 2, 0.5}[r.IntN(4)],
					Load: router.Load{Known: true, Prefill: r.IntN(4) * 300}}
				if r.IntN(6) == 0 {
					targets[i].State = router.State(1 + r.IntN(4))
				}
			}
			p := prompt()
			uncached, exact := n.uncached(p, targets, now)
			counts := n.counts(p, targets, uncached, exact)
			costs := make([]float64, len(targets))
			least := math.Inf(1)
			for i, x := range targets {
				w := max(x.Weight, 0)
				if w == 0 {
					w = 1
				}
				costs[i] = math.Inf(1)
				if x.State == router.Ready {
					costs[i] = (float64(x.Load.Prefill) + 5*counts[i]) / w
					least = min(least, costs[i])
				}
			}
			d, err := s.Pick(context.Background(), p, targets)
			if math.IsInf(least, 1) {
				if err == nil {
					t.Fatalf("seed %d, step %d: picked %s of none", seed, step, d.Target.ID)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			at := slices.IndexFunc(targets, func(o router.Target) bool { return o.ID == d.Target.ID })
			if costs[at] > least*(1+1e-9)+1e-5 {
				t.Fatalf("seed %d, step %d: picked %s at %v; costs %v", seed, step, d.Target.ID, costs[at], costs)
			}
			if exact {
				picks++
				if !n.trusted[d.Target.ID] {
					mixed++
				}
				if d.Unit != router.Tokens || d.Length != len(p.Tokens) || float64(d.Length-d.Cached) != uncached[at] {
					t.Fatalf("seed %d, step %d: %s: cached %d of %d; want %v uncached of %d", seed, step, d.Target.ID, d.Cached,
						d.Length, uncached[at], len(p.Tokens))
				}
				if d.Cached > 0 {
					cached++
				}
			}
			best := s.Explain(context.Background(), p, targets, nil)[0]
			if i := slices.IndexFunc(targets, func(o router.Target) bool { return o.ID == best.Target.ID }); costs[i] > least*(1+
				1e-9)+1e-5 {
				t.Fatalf("seed %d, step %d: Explain puts %s first; costs %v", seed, step, best.Target.ID, costs)
			}
			if r.IntN(3) > 0 {
				s.Record(d, router.Outcome{Stage: router.Sent})
				until := now.Add(2 * time.Second)
				if r.IntN(3) > 0 { // it ends at once
					o := router.Outcome{Stage: router.Finished + router.Stage(r.IntN(3))}
					s.Record(d, o)
					if o.Stage == router.Failed {
						continue
					}
					until = now.Add(200 * time.Millisecond)
					if n.resident(d.Target.ID, p.Tokens) {
						until = now
					}
				}
				n.sent[d.Target.ID] = append(n.sent[d.Target.ID], sending{p.Tokens, p.Text, until})
			}
		}
	}
	if picks < 2000 || mixed < 200 || cached < picks/3 {
		t.Errorf("%d picks by the index, %d of one not trusted, %d with something cached: too few", picks, mixed, cached)
	}
}

// TestUntrustedIsTheTrie: an index that nobody feeds, or with streams that are
// all broken, changes nothing.
func TestUntrustedIsTheTrie(t *testing.T) {
	for _, fed := range []bool{false, true} {
		var all [2][]string
		for k := range all {
			r := rand.New(rand.NewPCG(5, 5))
			cfg := leastwork.Config{Rand: rand.New(rand.NewPCG(6, 6)).Uint64}
			if k == 1 {
				e := kvtest.New(t)
				cfg.Index = e.Index
				for i := range 4 {
					if id := fmt.Sprint("t", i); fed {
						e.Store(id, router.Prompt{Tokens: kvtest.Tokens(i, 64)})
						e.Distrust(id)
					}
				}
			}
			s, err := leastwork.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for range 300 {
				ts := fleetOf(4)
				for i := range ts {
					ts[i].Load.InFlight = r.IntN(3)
				}
				p := router.Prompt{Model: "m", Tokens: kvtest.Tokens(r.IntN(8), 16+r.IntN(400))}
				if r.IntN(2) == 0 {
					p.Text = textOf(p.Tokens)
				}
				d, err := s.Pick(context.Background(), p, ts)
				if err != nil {
					t.Fatal(err)
				}
				s.Record(d, router.Outcome{Stage: router.Sent})
				all[k] = append(all[k], fmt.Sprint(d.Target.ID, d.Cached, d.Length, d.Unit, d.Reason))
			}
		}
		if diff := cmp.Diff(all[0], all[1]); diff != "" {
			t.Errorf("fed %v: (-without +with)\n%s", fed, diff)
		}
	}
}

// TestEvictedIsNotCached: what was sent and has been evicted since is no reason to
// go there, where the trie alone would.
func TestEvictedIsNotCached(t *testing.T) {
	e := kvtest.New(t)
	e.Begin("a", "b")
	now := time.Unix(1e9, 0)
	s, err := leastwork.New(leastwork.Config{Index: e.Index, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	p := router.Prompt{Model: "m", Tokens: kvtest.Tokens(1, 320), Text: strings.Repeat("text", 320)}
	pick := func() router.Decision {
		d, err := s.Pick(context.Background(), p, []router.Target{
			{ID: "a", Load: router.Load{Known: true, Prefill: 100}}, {ID: "b", Load: router.Load{Known: true}}})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	s.Record(router.Decision{Prompt: p, Target: router.Target{ID: "a"}}, router.Outcome{Stage: router.Sent})
	if d := pick(); d.Target.ID != "a" || d.Cached != 304 {
		t.Errorf("at once: %s, %d cached", d.Target.ID, d.Cached)
	}
	now = now.Add(2 * time.Second)
	if d := pick(); d.Target.ID != "b" || d.Cached != 0 {
		t.Errorf("when no event came: %s, %d cached", d.Target.ID, d.Cached)
	}
	e.Store("a", p)
	if d := pick(); d.Target.ID != "a" || d.Cached != 304 {
		t.Errorf("when one came: %s, %d cached", d.Target.ID, d.Cached)
	}
}

func TestIndexConfig(t *testing.T) {
	for _, c := range []struct {
		cfg  leastwork.Config
		want string
	}{
		{leastwork.Config{PresumeFor: 2 * time.Minute}, "PresumeFor"},
		{leastwork.Config{BlockSize: -1}, "BlockSize"},
	} {
		if _, err := leastwork.New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New(%+v): %v; want one that names %s", c.cfg, err, c.want)
		}
	}
}

// informed is a strategy with an owner that reports a lost cache to the Index too.
type informed struct {
	*leastwork.Strategy
	e *kvtest.Engines
}

func (i informed) Forget(id string) {
	i.Strategy.Forget(id)
	i.e.Index.Forget(id)
}

func TestConformanceWithIndex(t *testing.T) {
	system := kvtest.Tokens(1, 600)
	prompts := []router.Prompt{
		{Model: "llama", Tokens: system},
		{Model: "llama", Tokens: system[:320:320]},
		{Model: "llama", Tokens: system[:1:1]},
		{Model: "llama", Text: textOf(system[:400]), Tokens: system[:400:400]},
		{Model: "llama", Text: "no ids"},
		{Model: "llama", Adapter: "sql", Tokens: system},
		{Model: "llama", Salt: "tenant", Session: "s1", Tokens: system[:500:500]},
	}
	epoch := time.Unix(1e9, 0)
	for _, every := range []int{1, 2, 3} {
		for _, agree := range []float64{0, 0.25} {
			t.Run(fmt.Sprintf("one in %d not trusted, agree %v", every, agree), func(t *testing.T) {
				t.Parallel()
				routertest.Run(t, func(rand func() uint64) router.Strategy {
					e := kvtest.New(t)
					for i := range 24 { // the kit's targets
						id := fmt.Sprintf("http://10.0.%d.%d:8000", i%3, i)
						if every > 1 && i%every == 0 {
							continue
						}
						e.Begin(id)
						if i%4 == 1 {
							e.Store(id, prompts[i%len(prompts)])
						}
					}
					s, err := leastwork.New(leastwork.Config{Rand: rand, Index: e.Index, Agree: agree,
						Now: func() time.Time { return epoch }})
					if err != nil {
						t.Fatal(err)
					}
					return informed{s, e}
				}, routertest.Options{Prompts: prompts})
			})
		}
	}
}

// indexed is a strategy over engines that hold 64 conversations, each on one.
func indexed(tb testing.TB, targets int) (*leastwork.Strategy, []router.Target, []router.Prompt) {
	e := kvtest.New(tb)
	s, err := leastwork.New(leastwork.Config{Index: e.Index})
	if err != nil {
		tb.Fatal(err)
	}
	ts := fleetOf(targets)
	for i := range ts {
		e.Begin(ts[i].ID)
	}
	var ps []router.Prompt
	for i := range 64 {
		p := router.Prompt{Model: "m", Tokens: kvtest.Tokens(i, 220*kvtest.BlockSize+1)}
		p.Text = textOf(p.Tokens)
		e.Store(ts[i%targets].ID, p)
		ps = append(ps, p)
	}
	return s, ts, ps
}

func TestPickWithIndexAllocatesTheMemoAlone(t *testing.T) {
	s, ts, ps := indexed(t, 64)
	for _, sent := range []bool{false, true} {
		if sent {
			s.Record(router.Decision{Prompt: ps[0], Target: ts[1]}, router.Outcome{Stage: router.Sent})
		}
		n := testing.AllocsPerRun(200, func() {
			if d, err := s.Pick(context.Background(), ps[0], ts); err != nil || d.Reason != router.ReasonWarm {
				t.Fatal(d.Reason, err)
			}
		})
		if n > 1 && !racetest.Enabled {
			t.Errorf("Pick allocates %v times", n)
		}
	}
}

// BenchmarkPickWithIndex is of prompts of 220 blocks.
func BenchmarkPickWithIndex(b *testing.B) {
	for _, targets := range []int{8, 64, 512} {
		b.Run(fmt.Sprintf("targets=%d", targets), func(b *testing.B) {
			s, ts, ps := indexed(b, targets)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := s.Pick(context.Background(), ps[i%len(ps)], ts); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
