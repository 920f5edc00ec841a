package leastwork_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/racetest"
	"github.com/warmroute/router/internal/worthtest"
	"github.com/warmroute/router/strategy/leastwork"
)

// fleet is what the rule needs to know, kept the naive way.
type fleet struct {
	sent  map[string][]string // prompts, by target
	open  map[string][]int    // tokens of the requests in flight, by target
	known []router.Decision   // in flight
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func mean(n []int) (float64, bool) {
	sum := 0
	for _, v := range n {
		sum += v
	}
	if sum == 0 {
		return 0, false
	}
	return float64(sum) / float64(len(n)), true
}

// costs is the rule, sentence by sentence; +Inf for a target that is not Ready.
func (f *fleet) costs(p router.Prompt, targets []router.Target) []float64 {
	weight := func(t router.Target) float64 {
		if t.Weight > 0 {
			return t.Weight
		}
		return 1
	}
	var all []int
	for _, t := range targets {
		if t.State == router.Ready {
			all = append(all, f.open[t.ID]...)
		}
	}
	request := 2048.0
	if m, ok := mean(all); ok {
		request = 0.2 * m
	}
	var works []float64
	work := func(t router.Target) float64 {
		mine := request
		if m, ok := mean(f.open[t.ID]); ok {
			mine = 0.2 * m
		}
		return (float64(t.Load.Prefill) + mine*float64(t.Load.InFlight) + request*float64(t.Load.Queued)) / weight(t)
	}
	for _, t := range targets {
		if t.State == router.Ready && t.Load.Known {
			works = append(works, work(t))
		}
	}
	average := 0.0
	for _, w := range works {
		average += w / float64(len(works))
	}
	held := make([]int, len(targets))
	for i, t := range targets {
		for _, s := range f.sent[t.ID] {
			held[i] = max(held[i], commonPrefix(s, p.Text))
		}
	}
	held = worthtest.Worth(f.sent, nil, p.Text, targets, held, len(p.Text), false)
	costs := make([]float64, len(targets))
	for i, t := range targets {
		costs[i] = math.Inf(1)
		if t.State != router.Ready {
			continue
		}
		w := average
		if t.Load.Known {
			w = work(t)
		}
		costs[i] = w + 5*float64(len(p.Text)-held[i])/4/weight(t)
	}
	return costs
}

// TestRule plays random histories and holds each Pick, and Explain, to the rule.
func TestRule(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		s, err := leastwork.New(leastwork.Config{Rand: r.Uint64})
		if err != nil {
			t.Fatal(err)
		}
		f := &fleet{sent: map[string][]string{}, open: map[string][]int{}}
		for step := range 60 {
			targets := make([]router.Target, 1+r.IntN(6))
			for i := range targets {
				targets[i] = router.Target{ID: fmt.Sprint("t", i), Weight: []float64{0, 1, 2, 0.5}[r.IntN(4)]}
				if r.IntN(6) == 0 {
					targets[i].State = router.State(1 + r.IntN(4))
				}
				if r.IntN(5) > 0 {
					targets[i].Load = router.Load{Known: true, InFlight: r.IntN(6), Queued: r.IntN(3), Prefill: r.IntN(4) * 500}
				}
			}
			p := router.Prompt{Model: "m", Text: strings.Repeat("abc"[r.IntN(3):][:1], 400*r.IntN(5)) +
				strings.Repeat("x", r.IntN(40)*4)}
			costs := f.costs(p, targets)
			least := slices.Min(costs)
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
			best := s.Explain(context.Background(), p, targets, nil)[0]
			if i := slices.IndexFunc(targets, func(o router.Target) bool { return o.ID == best.Target.ID }); costs[i] > least*(1+
				1e-9)+1e-5 || best.Score != 1 {
				t.Fatalf("seed %d, step %d: Explain puts %s first, score %v; costs %v", seed, step, best.Target.ID, best.Score,
					costs)
			}

			id := d.Target.ID
			s.Record(d, router.Outcome{Stage: router.Sent})
			f.sent[id] = append(f.sent[id], p.Text)
			if n := len(p.Text) / 4; n > 0 {
				f.open[id] = append(f.open[id], n)
				f.known = append(f.known, d)
			}
			for len(f.known) > 8 || len(f.known) > 0 && r.IntN(3) == 0 {
				i := r.IntN(len(f.known))
				d := f.known[i]
				f.known = slices.Delete(f.known, i, i+1)
				id, n := d.Target.ID, len(d.Prompt.Text)/4
				o := router.Outcome{Stage: router.Stage(int(router.Finished) + r.IntN(3))}
				s.Record(d, o)
				s.Record(d, o) // twice is once
				k := slices.Index(f.open[id], n)
				f.open[id] = slices.Delete(f.open[id], k, k+1)
				if o.Stage == router.Failed {
					k := slices.Index(f.sent[id], d.Prompt.Text)
					f.sent[id] = slices.Delete(f.sent[id], k, k+1)
				}
			}
		}
	}
}

// TestUnknownRequests shows what a request costs before any length is known.
func TestUnknownRequests(t *testing.T) {
	s, err := leastwork.New(leastwork.Config{})
	if err != nil {
		t.Fatal(err)
	}
	pick := func(p router.Prompt, a, b router.Load) string {
		t.Helper()
		a.Known, b.Known = true, true
		d, err := s.Pick(context.Background(), p, []router.Target{{ID: "a", Load: a}, {ID: "b", Load: b}})
		if err != nil {
			t.Fatal(err)
		}
		return d.Target.ID
	}
	for range 8 { // more than a draw
		if got := pick(router.Prompt{}, router.Load{InFlight: 1}, router.Load{Prefill: 2047}); got != "b" {
			t.Errorf("%s: a request costs more than 2,047 tokens that wait", got)
		}
		if got := pick(router.Prompt{}, router.Load{Queued: 1}, router.Load{Prefill: 2049}); got != "a" {
			t.Errorf("%s: a queued request costs less than 2,049 tokens that wait", got)
		}
	}
}

// TestForgetWhileInFlight shows that what was in flight before a Forget does not
// come off what is counted after.
func TestForgetWhileInFlight(t *testing.T) {
	s, err := leastwork.New(leastwork.Config{})
	if err != nil {
		t.Fatal(err)
	}
	targets := []router.Target{{ID: "a", Load: router.Load{Known: true, InFlight: 1}}}
	send := func(n int) router.Decision {
		d, err := s.Pick(context.Background(), router.Prompt{Text: strings.Repeat("x", n)}, targets)
		if err != nil {
			t.Fatal(err)
		}
		s.Record(d, router.Outcome{Stage: router.Sent})
		return d
	}
	old := send(40_000)
	s.Forget("a")
	send(4_000) // 1,000 tokens, so a request costs 200
	s.Record(old, router.Outcome{Stage: router.Finished})
	both := append(targets, router.Target{ID: "b", Load: router.Load{Known: true, Prefill: 250}})
	for range 8 {
		d, err := s.Pick(context.Background(), router.Prompt{}, both)
		if err != nil || d.Target.ID != "a" {
			t.Errorf("picked %s, %v; want a, where 200 waits, before b, where 250 does", d.Target.ID, err)
		}
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []struct {
		cfg  leastwork.Config
		want string
	}{
		{leastwork.Config{MissWeight: -1}, "MissWeight"},
		{leastwork.Config{ContextWeight: math.NaN()}, "ContextWeight"},
		{leastwork.Config{RequestTokens: math.Inf(1)}, "RequestTokens"},
		{leastwork.Config{MaxNodes: -1}, "MaxNodes"},
		{leastwork.Config{MaxBytes: -1}, "MaxBytes"},
	} {
		if _, err := leastwork.New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New(%+v): %v; want one that names %s", c.cfg, err, c.want)
		}
	}
}

func TestPickAllocatesTheMemoAlone(t *testing.T) {
	s, err := leastwork.New(leastwork.Config{})
	if err != nil {
		t.Fatal(err)
	}
	targets := make([]router.Target, 64)
	for i := range targets {
		targets[i] = router.Target{ID: fmt.Sprint("t", i), Load: router.Load{Known: true, InFlight: i % 3}}
	}
	p := router.Prompt{Text: strings.Repeat("hello ", 1000)}
	for range 100 {
		d, err := s.Pick(context.Background(), p, targets)
		if err != nil {
			t.Fatal(err)
		}
		s.Record(d, router.Outcome{Stage: router.Sent})
	}
	n := testing.AllocsPerRun(200, func() {
		if _, err := s.Pick(context.Background(), p, targets); err != nil {
			t.Fatal(err)
		}
	})
	if n > 1 && !racetest.Enabled {
		t.Errorf("Pick allocates %v times", n)
	}
}

func Example() {
	s, err := leastwork.New(leastwork.Config{})
	if err != nil {
		panic(err)
	}
	targets := []router.Target{
		{ID: "vllm-1", Load: router.Load{Known: true, InFlight: 1}},
		{ID: "vllm-2", Load: router.Load{Known: true, InFlight: 2}},
	}
	document := router.Prompt{Model: "llama", Text: strings.Repeat("All happy families are alike. ", 2000)}
	first, _ := s.Pick(context.Background(), document, targets)
	s.Record(first, router.Outcome{Stage: router.Sent})
	fmt.Println(first.Target.ID, first.Reason)

	// Four requests more in flight cost less than computing 15,000 tokens again.
	targets[0].Load.InFlight = 6
	document.Text += "Which families?"
	second, _ := s.Pick(context.Background(), document, targets)
	fmt.Println(second.Target.ID, second.Reason)
	// Output:
	// vllm-1 cold
	// vllm-1 warm
}
