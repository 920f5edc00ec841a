package precisecacheaware_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/kvtest"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

// naive is the rule kept the naive way: no index and no trie, but lists.
type naive struct {
	held    map[string][]router.Prompt // whole blocks, by target, as the engines say
	trusted map[string]bool            // others never said anything
	sent    map[string][]*sending
}

type sending struct {
	p     router.Prompt
	until time.Time // it is presumed
	back  bool      // it came to nothing
}

// resident returns how much of p the engine said a target holds.
func (n *naive) resident(id string, p router.Prompt) int {
	most := 0
	for _, h := range n.held[id] {
		if h.Adapter == p.Adapter && h.Salt == p.Salt { // the wire names no model
			most = max(most, min(blocks(common(h.Tokens, p.Tokens)), blocks(len(p.Tokens)-1)))
		}
	}
	return most
}

// ended drops the presumption when the engine has reported it, or must have.
func (n *naive) ended(id string, s *sending, now time.Time) {
	over := now.Add(200 * time.Millisecond)
	if n.trusted[id] && n.resident(id, s.p) == blocks(len(s.p.Tokens)-1) {
		over = now
	}
	if over.Before(s.until) {
		s.until = over
	}
}

func common[T comparable](a, b []T) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func blocks(n int) int { return n / blockSize * blockSize }

// verdict is what the rule says of each target.
type verdict struct {
	cached          []int
	value           []float64 // -Inf: not Ready
	held, warm, any []int
	exact           bool
}

func (n *naive) judge(p router.Prompt, ts []router.Target, now time.Time) verdict {
	v := verdict{
		cached: make([]int, len(ts)), value: make([]float64, len(ts)),
		held: make([]int, len(ts)), warm: make([]int, len(ts)), any: make([]int, len(ts)),
	}
	length := float64(len(p.Tokens))
	var least, sum, known, mean, trusted float64
	least = math.Inf(1)
	waiting := math.Inf(1)
	for i, t := range ts {
		if n.trusted[t.ID] {
			v.cached[i] = n.resident(t.ID, p)
			for _, s := range n.sent[t.ID] {
				if s.p.Scope() == p.Scope() && !s.back && now.Before(s.until) {
					v.cached[i] = max(v.cached[i], min(blocks(common(s.p.Tokens, p.Tokens)), blocks(len(p.Tokens)-1)))
				}
			}
		} else if p.Text != "" {
			most := 0
			for _, s := range n.sent[t.ID] {
				if s.p.Scope() == p.Scope() && !s.back {
					most = max(most, common([]byte(s.p.Text), []byte(p.Text)))
				}
			}
			v.cached[i] = min(int(length*(float64(most)/float64(len(p.Text)))), len(p.Tokens)-1)
		}
		var seen []string
		for _, s := range n.sent[t.ID] {
			key := s.p.Scope() + fmt.Sprint(s.p.Text)
			if s.p.Text == "" {
				key += fmt.Sprint(s.p.Tokens)
			}
			if !s.back && !slices.Contains(seen, key) {
				seen = append(seen, key)
			}
		}
		v.warm[i] = len(seen)
		if t.State != router.Ready {
			continue
		}
		if n.trusted[t.ID] {
			trusted++
			mean += float64(v.cached[i])
		}
		if t.Load.Known {
			l := float64(t.Load.InFlight + t.Load.Queued)
			known, sum, least = known+1, sum+l, min(least, l)
			waiting = min(waiting, float64(t.Load.Prefill))
		}
	}
	v.exact = trusted > 0
	for i, t := range ts {
		if t.State != router.Ready {
			v.value[i] = math.Inf(-1)
			continue
		}
		over := 0.0
		if t.Load.Known {
			over = float64(t.Load.InFlight+t.Load.Queued) - least
		} else if known > 0 {
			over = sum/known - least
		}
		worth := 8.0
		if known > 0 {
			worth = max(8, least)
		}
		waits := over / worth
		if t.Load.Known {
			waits += 0.5 * (float64(t.Load.Prefill) - waiting) / length
		}
		share := float64(v.cached[i]) / length
		if share >= 0.1 {
			v.held[i] = v.cached[i]
		}
		if !n.trusted[t.ID] && p.Text == "" {
			share = mean / trusted / length
		}
		if share < 0.1 {
			share = 0
		}
		v.value[i] = share - waits
		v.any[i] = v.cached[i]
	}
	return v
}

// best returns those that the draw may choose from.
func (v *verdict) best() []int {
	var out []int
	better := func(a, b int) int {
		if math.Abs(v.value[a]-v.value[b]) > 1e-9 {
			return map[bool]int{true: 1, false: -1}[v.value[a] > v.value[b]]
		}
		for _, d := range []int{v.held[a] - v.held[b], v.warm[b] - v.warm[a], v.any[a] - v.any[b]} {
			if d != 0 {
				return d
			}
		}
		return 0
	}
	for i, x := range v.value {
		switch {
		case math.IsInf(x, -1):
		case len(out) == 0 || better(i, out[0]) > 0:
			out = []int{i}
		case better(i, out[0]) == 0:
			out = append(out, i)
		}
	}
	return out
}

// TestAgainstTheRule plays random histories of engines that store and forget,
// requests that are sent, fail and end, and a clock, and holds every Pick, and
// Explain, to the rule.
func TestAgainstTheRule(t *testing.T) {
	picks, stuck := 0, 0
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 11))
		now := time.Unix(1e9, 0)
		e := kvtest.New(t)
		s := mustNew(t, precisecacheaware.Config{Index: e.Index, Rand: r.Uint64, Now: func() time.Time { return now }})
		n := &naive{held: map[string][]router.Prompt{}, trusted: map[string]bool{}, sent: map[string][]*sending{}}
		var ids []string
		for i := range 6 {
			ids = append(ids, fmt.Sprint("engine-", i))
			if r.IntN(4) > 0 {
				n.trusted[ids[i]] = true
				e.Begin(ids[i])
			}
		}
		stem := tokens(int(seed), 16*16)
		prompt := func() router.Prompt {
			// Same beginnings, other ends, other scopes, with and without text.
			p := router.Prompt{Model: []string{"m", "n"}[r.IntN(8)/7], Adapter: []string{"", "x"}[r.IntN(6)/5],
				Salt: []string{"", "y"}[r.IntN(6)/5]}
			k := 1 + r.IntN(len(stem))
			p.Tokens = append(slices.Clone(stem[:k]), tokens(1000+r.IntN(3), 1+r.IntN(60))...)
			if r.IntN(2) == 0 {
				b := make([]byte, len(p.Tokens))
				for i, x := range p.Tokens {
					b[i] = byte('a' + x%20)
				}
				p.Text = string(b)
			}
			return p
		}
		type open struct {
			d router.Decision
			s *sending
		}
		var under []open
		for step := range 50 {
			now = now.Add(time.Duration(r.IntN(900)) * time.Millisecond)
			id := ids[r.IntN(len(ids))]
			switch k := r.IntN(10); {
			case k < 2 && n.trusted[id]:
				p := prompt()
				e.Store(id, p)
				p.Tokens = p.Tokens[:blocks(len(p.Tokens))]
				n.held[id] = append(n.held[id], p)
			case k == 2 && n.trusted[id] && r.IntN(3) == 0: // it lost all and says so
				e.Index.Reset(id)
				e.Begin(id)
				n.held[id] = nil
			case k == 3 && r.IntN(3) == 0:
				s.Forget(id)
				n.sent[id] = nil
			case k == 4 && len(under) > 0:
				i := r.IntN(len(under))
				o := router.Outcome{Stage: router.Finished + router.Stage(r.IntN(3))}
				s.Record(under[i].d, o)
				under[i].s.back = o.Stage == router.Failed
				n.ended(under[i].d.Target.ID, under[i].s, now)
				under = slices.Delete(under, i, i+1)
			}

			var ts []router.Target
			for i := range 1 + r.IntN(len(ids)) {
				target := router.Target{ID: ids[i]}
				if r.IntN(8) == 0 {
					target.State = router.State(1 + r.IntN(4))
				}
				if r.IntN(6) > 0 {
					target.Load = router.Load{Known: true, InFlight: r.IntN(5), Queued: r.IntN(3)}
					if seed%2 == 0 {
						target.Load.Prefill = 64 * r.IntN(6)
					}
					if seed%3 == 0 {
						target.Load.InFlight += 20
					}
				}
				ts = append(ts, target)
			}
			p := prompt()
			v := n.judge(p, ts, now)
			best := v.best()
			d, err := s.Pick(context.Background(), p, ts)
			if len(best) == 0 {
				if err == nil {
					t.Fatalf("seed %d, step %d: chose %s of none", seed, step, d.Target.ID)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if !v.exact {
				if d.Reason != precisecacheaware.ReasonUntrustedLeastLoad {
					t.Fatalf("seed %d, step %d: %q where none is trusted", seed, step, d.Reason)
				}
			} else {
				picks++
				at := slices.Index(ids, d.Target.ID)
				if !slices.Contains(best, at) || d.Cached != v.cached[at] || d.Length != len(p.Tokens) || d.Unit != router.Tokens {
					t.Fatalf("seed %d, step %d: %s, cached %d of %d; want one of %v of %+v", seed, step, d.Target.ID, d.Cached,
						d.Length, best, v)
				}
				if d.Cached > 0 {
					stuck++
				}
				for i, c := range s.Explain(context.Background(), p, ts, nil) {
					at := slices.Index(ids, c.Target.ID)
					if (i == 0 || c.Reason == router.ReasonTied) != slices.Contains(best, at) || c.Cached != v.cached[at] {
						t.Fatalf("seed %d, step %d: Explain has %s as number %d, %q, cached %d; want %v of %+v", seed, step, c.Target.ID,
							i, c.Reason, c.Cached, best, v)
					}
				}
			}
			if r.IntN(4) > 0 {
				s.Record(d, router.Outcome{Stage: router.Sent})
				x := &sending{p: p, until: now.Add(2 * time.Second)}
				n.sent[d.Target.ID] = append(n.sent[d.Target.ID], x)
				under = append(under, open{d, x})
			}
		}
	}
	if picks < 3000 || stuck < picks/4 {
		t.Errorf("%d picks by the index, %d of them with something cached: too few to say anything", picks, stuck)
	}
}
