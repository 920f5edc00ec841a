package routertest

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/warmroute/router"
)

// rand returns a source of random numbers for a strategy. Equal n give equal
// numbers.
func (k *kit) rand(n uint64) func() uint64 {
	var mu sync.Mutex
	src := rand.NewPCG(k.seed, n)
	return func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return src.Uint64()
	}
}

func (k *kit) rng(n uint64) *rand.Rand { return rand.New(rand.NewPCG(n, k.seed)) }

// ownPrompts returns prompts that share leads, sessions and scopes in many ways.
func ownPrompts() []router.Prompt {
	system := strings.Repeat("You are a careful assistant. ", 60)
	tokens := make([]uint32, 300)
	for i := range tokens {
		tokens[i] = uint32(i * i)
	}
	ps := []router.Prompt{
		{},
		{Model: "llama"},
		{Model: "llama", Session: "s1"},
		{Model: "llama", Text: "hello"},
		{Model: "llama", Text: "hello, world"},
		{Model: "llama", Text: "\xff\x00\xfe broken \x00 bytes"},
		{Model: "llama", Session: "s1", Text: system + "one"},
		{Model: "llama", Session: "s1", Text: system + "one, and then two"},
		{Model: "llama", Session: "s2", Text: system},
		{Model: "llama", Text: system + "three"},
		{Model: "llama", Adapter: "sql", Text: system + "one"},
		{Model: "llama", Adapter: "sql", Salt: "tenant", Session: "s1", Text: system + "one"},
		{Model: "qwen", Text: system + "one"},
		{Model: "llama", Tokens: tokens},
		{Model: "llama", Tokens: tokens[:64:64]},
		{Model: "llama", Text: system, Tokens: tokens[:200:200]},
	}
	return ps
}

func empty(p router.Prompt) bool { return p.Text == "" && len(p.Tokens) == 0 }

// A fleet's kind describes its targets.
type kind int

const (
	idle    kind = iota // equal, with nothing to do
	unknown             // equal, of unknown load
	mixed               // all sorts of sane states, weights and loads
	extreme             // insane ones
)

// fleet makes n targets with different IDs. Only mixed and extreme ones have
// targets that are not Ready.
func (k *kit) fleet(rng *rand.Rand, n int, what kind) []router.Target {
	ts := make([]router.Target, n)
	for i, at := range rng.Perm(len(k.ids))[:n] {
		t := &ts[i]
		t.ID = k.ids[at]
		if k.ref != nil {
			t.Ref = k.ref(t.ID)
		}
		switch what {
		case idle:
			t.Load.Known = true
		case mixed:
			if rng.IntN(3) == 0 {
				t.State = router.State(1 + rng.IntN(5))
			}
			t.Weight = []float64{0, 1, 1, 2, 0.3, 1.7}[rng.IntN(6)]
			if rng.IntN(4) > 0 {
				t.Load = router.Load{
					Known: true, InFlight: rng.IntN(6), Queued: max(rng.IntN(6)-3, 0), Prefill: 1000 * rng.IntN(9),
				}
			}
		case extreme:
			if rng.IntN(5) == 0 {
				t.State = router.State(rng.IntN(256))
			}
			t.Weight = []float64{
				0, -1, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64, 1e-30, 1e30, 1,
			}[rng.IntN(10)]
			n := []int{0, 1, -1, math.MaxInt, math.MinInt, math.MaxInt >> 23, 3}
			t.Load = router.Load{
				Known: rng.IntN(4) > 0, InFlight: n[rng.IntN(7)], Queued: n[rng.IntN(7)], Prefill: n[rng.IntN(7)],
			}
		}
	}
	return ts
}

// step is one request of a history: a Pick, then its records, some of them only
// after later Picks.
type step struct {
	prompt  router.Prompt
	targets []router.Target
	sent    bool // whether Sent is recorded, and so the rest
	stages  []router.Outcome
	delay   int // Picks between Sent and the rest
}

// history makes n steps over fleets of one kind. A fleet stays for some steps.
func (k *kit) history(seed uint64, n int, what kind) []step {
	rng := k.rng(seed)
	var steps []step
	var fleet []router.Target
	for i := range n {
		if i%5 == 0 {
			fleet = k.fleet(rng, 1+rng.IntN(12), what)
		}
		st := step{
			prompt: k.prompts[rng.IntN(len(k.prompts))], targets: fleet,
			sent: rng.IntN(5) > 0, delay: rng.IntN(4),
		}
		if rng.IntN(2) == 0 {
			st.stages = append(st.stages, router.Outcome{Stage: router.FirstToken})
		}
		final := router.Outcome{Stage: router.Finished + router.Stage(rng.IntN(3)), PromptTokens: 100, OutputTokens: 9}
		switch final.Stage {
		case router.Finished:
			final.Status = 200
			final.CachedTokens = rng.IntN(100)
			final.Reply = []string{"", "an answer"}[rng.IntN(2)]
		case router.Failed:
			final.Status = []int{0, 400, 429, 503}[rng.IntN(4)]
			final.Err = errors.New("the engine failed")
		case router.Canceled:
			final.Err = context.Canceled
		}
		st.stages = append(st.stages, final)
		steps = append(steps, st)
	}
	return steps
}

// lens changes a strategy's view of a history in ways that must not matter. Its
// functions may be nil.
type lens struct {
	// offer returns the slice that Pick gets; after is called when it returned.
	offer  func(st step) []router.Target
	before func(s router.Strategy, st step, targets []router.Target)
	after  func(targets []router.Target)
	// pick is called in place of Pick.
	pick func(s router.Strategy, st step, targets []router.Target) (router.Decision, error)
	// record is called in place of Record, for the recorded outcomes and for
	// those that are not recorded because the step has no Sent.
	record func(s router.Strategy, st step, d router.Decision, o router.Outcome)
}

// result is the result of one Pick of a history.
type result struct {
	d   router.Decision
	err error
}

// play runs a history through s.
func play(s router.Strategy, steps []step, l lens) []result {
	type late struct {
		at int
		st step
		d  router.Decision
	}
	var results []result
	var pending []late
	record := func(st step, d router.Decision, outcomes ...router.Outcome) {
		for _, o := range outcomes {
			switch {
			case l.record != nil:
				l.record(s, st, d, o)
			case st.sent:
				s.Record(d, o)
			}
		}
	}
	settle := func(now int) {
		rest := pending[:0]
		for _, p := range pending {
			if p.at > now {
				rest = append(rest, p)
				continue
			}
			record(p.st, p.d, p.st.stages...)
		}
		pending = rest
	}
	for i, st := range steps {
		targets := st.targets
		if l.offer != nil {
			targets = l.offer(st)
		}
		if l.before != nil {
			l.before(s, st, targets)
		}
		pick := l.pick
		if pick == nil {
			pick = pickPlain
		}
		d, err := pick(s, st, targets)
		if l.after != nil {
			l.after(targets)
		}
		results = append(results, result{d, err})
		if err == nil {
			record(st, d, router.Outcome{Stage: router.Sent})
			pending = append(pending, late{i + st.delay, st, d})
		}
		settle(i)
	}
	settle(math.MaxInt)
	return results
}

func pickPlain(s router.Strategy, st step, targets []router.Target) (router.Decision, error) {
	return s.Pick(context.Background(), st.prompt, targets)
}

// same plays histories of every kind through two equal strategies, one of them
// through a lens, and fails if their decisions differ.
func (k *kit) same(what string, plain, other func(seed uint64) lens) {
	k.r.Helper()
	for seed := range uint64(12) {
		steps := k.history(seed, 80, kind(seed%4))
		a := play(k.new(k.rand(seed)), steps, plain(seed))
		b := play(k.new(k.rand(seed)), steps, other(seed))
		for i := range a {
			if diff := differ(a[i], b[i]); diff != "" {
				k.failf("%s matters: history %d, pick %d of %d: %s", what, seed, i+1, len(steps), diff)
			}
		}
	}
}

func noLens(uint64) lens { return lens{} }
