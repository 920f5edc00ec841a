package precisecacheaware_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/kvtest"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/leastload"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

// The fallbacks are the strategies after which they are called: with the same
// numbers drawn, the same history leads to the same choices and explanations.
func TestFallbacksAreThoseStrategies(t *testing.T) {
	for _, fallback := range []string{precisecacheaware.FallbackText, precisecacheaware.FallbackLeastLoad} {
		for seed := range uint64(60) {
			r := rand.New(rand.NewPCG(seed, 21))
			s := mustNew(t, precisecacheaware.Config{Fallback: fallback, Rand: seeded(seed)})
			var want router.Strategy
			var err error
			if fallback == precisecacheaware.FallbackText {
				want, err = cacheaware.New(cacheaware.Config{Rand: seeded(seed)})
			} else {
				want, err = leastload.New(leastload.Config{Rand: seeded(seed)})
			}
			if err != nil {
				t.Fatal(err)
			}
			type pair struct{ got, want router.Decision }
			var open []pair
			for step := range 60 {
				ts := make([]router.Target, 2+r.IntN(5)) // of a single one, the reasons differ
				for i := range ts {
					ts[i] = router.Target{ID: string(rune('a' + i)), Weight: float64(r.IntN(3))}
					if r.IntN(9) == 0 && i > 1 {
						ts[i].State = router.Cooling
					}
					if seed%3 > 0 && r.IntN(5) > 0 {
						ts[i].Load = router.Load{Known: true, InFlight: r.IntN(8), Queued: r.IntN(2)}
					}
				}
				p := router.Prompt{Model: "m", Text: strings.Repeat("abc"[r.IntN(3):][:1], r.IntN(4)) +
					strings.Repeat("d", r.IntN(20))}
				if r.IntN(5) == 0 {
					p.Text, p.Tokens = "", tokens(r.IntN(2), 1+r.IntN(20))
				}
				a, err := s.Pick(context.Background(), p, ts)
				if err != nil {
					t.Fatal(err)
				}
				b, err := want.Pick(context.Background(), p, ts)
				if err != nil {
					t.Fatal(err)
				}
				wantReason := router.Reason("no_tokens_" + fallback)
				switch {
				case p.Tokens != nil:
					wantReason = router.Reason("untrusted_" + fallback)
				case p.Text == "":
					wantReason = router.ReasonEmpty
				}
				if a.Reason != wantReason {
					t.Fatalf("%s, seed %d, step %d: reason %q, want %q", fallback, seed, step, a.Reason, wantReason)
				}
				open = append(open, pair{a, b})
				a.Memo, b.Memo, a.Reason, b.Reason = nil, nil, "", ""
				if diff := cmp.Diff(b, a); diff != "" {
					t.Fatalf("%s, seed %d, step %d: (-want +got)\n%s", fallback, seed, step, diff)
				}
				x := s.Explain(context.Background(), p, ts, nil)
				y := want.(router.Explainer).Explain(context.Background(), p, ts, nil)
				if x[0].Reason != wantReason {
					t.Fatalf("%s: Explain says %q", fallback, x[0].Reason)
				}
				x[0].Reason = y[0].Reason
				if diff := cmp.Diff(y, x); diff != "" {
					t.Fatalf("%s, seed %d, step %d, Explain: (-want +got)\n%s", fallback, seed, step, diff)
				}
				for _, o := range []pair{open[len(open)-1], open[r.IntN(len(open))]} {
					out := router.Outcome{Stage: router.Stage(1 + r.IntN(5)), Reply: strings.Repeat("d", r.IntN(3))}
					s.Record(o.got, out)
					want.Record(o.want, out)
				}
				if r.IntN(20) == 0 {
					s.Forget("a")
					if f, ok := want.(router.Forgetter); ok {
						f.Forget("a")
					}
				}
			}
		}
	}
}

// The reason names why there was a fallback and which it was, for a single target
// too.
func TestFallbackReasons(t *testing.T) {
	e := kvtest.New(t)
	e.Begin("a", "b")
	e.Distrust("b")
	ids := router.Prompt{Tokens: tokens(1, 100)}
	text := router.Prompt{Text: "hello"}
	for _, c := range []struct {
		name, fallback string
		noIndex        bool
		p              router.Prompt
		ts             []router.Target
		want           router.Reason
	}{
		{"no ids", "", false, text, []router.Target{busy("a", 0), busy("b", 0)}, precisecacheaware.ReasonNoTokensLeastLoad},
		{"no ids, text", "text", false, text, []router.Target{busy("a", 0), busy("b", 0)},
			precisecacheaware.ReasonNoTokensText},
		{"none trusted", "", false, ids, []router.Target{busy("b", 0), busy("c", 0)},
			precisecacheaware.ReasonUntrustedLeastLoad},
		{"none trusted, text", "text", false, ids, []router.Target{busy("b", 0), busy("c", 0)},
			precisecacheaware.ReasonUntrustedText},
		{"the trusted one is not ready", "", false, ids, []router.Target{{ID: "a", State: router.Cooling}, busy("b", 0)},
			precisecacheaware.ReasonUntrustedLeastLoad},
		{"no index", "text", true, ids, []router.Target{busy("a", 0)}, precisecacheaware.ReasonUntrustedText},
		{"no index", "least_load", true, ids, []router.Target{busy("a", 0)}, precisecacheaware.ReasonUntrustedLeastLoad},
		{"one is trusted", "", false, ids, []router.Target{busy("a", 0), busy("b", 0)}, router.ReasonCold},
		{"a single one", "", false, ids, []router.Target{busy("a", 0)}, router.ReasonOnly},
		{"nothing", "text", false, router.Prompt{}, []router.Target{busy("a", 0), busy("b", 0)}, router.ReasonEmpty},
	} {
		cfg := precisecacheaware.Config{Fallback: c.fallback}
		if !c.noIndex {
			cfg.Index = e.Index
		}
		s := mustNew(t, cfg)
		d := pick(t, s, c.p, c.ts...)
		if got := s.Explain(context.Background(), c.p, c.ts, nil)[0].Reason; d.Reason != c.want || got != c.want {
			t.Errorf("%s: Pick says %q, Explain %q, want %q", c.name, d.Reason, got, c.want)
		}
	}
}

// The trie is kept true while the index decides, so the text fallback knows what
// was sent when the streams are lost.
func TestTextIsKeptForTheFallback(t *testing.T) {
	e := kvtest.New(t)
	e.Begin("a", "b")
	s := mustNew(t, precisecacheaware.Config{Index: e.Index, Fallback: "text"})
	p := router.Prompt{Model: "m", Text: "a question of some length", Tokens: tokens(1, 100)}
	d := pick(t, s, p, busy("a", 0), busy("b", 1))
	s.Record(d, router.Outcome{Stage: router.Sent})
	s.Record(d, router.Outcome{Stage: router.Finished, Reply: ", and its answer"})
	e.Distrust("a")
	e.Distrust("b")
	p.Text += ", and its answer"
	d = pick(t, s, p, busy("a", 1), busy("b", 0))
	if d.Target.ID != "a" || d.Cached != len(p.Text) || d.Unit != router.Bytes {
		t.Errorf("%s, cached %d %s, %q", d.Target.ID, d.Cached, d.Unit, d.Reason)
	}
}
