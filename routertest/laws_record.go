package routertest

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/warmroute/router"
)

// outcomes are the noise of records.
func outcome(rng *rand.Rand) router.Outcome {
	n := []int{0, 5, -5, math.MaxInt >> 23}
	return router.Outcome{
		Stage: router.Stage(rng.IntN(8)), Status: []int{0, 200, 404, 429, 503, -1}[rng.IntN(6)],
		Err:          []error{nil, context.Canceled, errors.New("x")}[rng.IntN(3)],
		PromptTokens: n[rng.IntN(4)], CachedTokens: n[rng.IntN(4)], OutputTokens: n[rng.IntN(4)],
		Reply: []string{"", "more", "\xff\x00"}[rng.IntN(3)],
	}
}

func (k *kit) records() {
	for seed := range uint64(8) {
		rng := k.rng(seed)
		s := k.new(k.rand(seed))
		var made []router.Decision
		for i, st := range k.history(seed, 120, kind(seed%4)) {
			d, err := s.Pick(context.Background(), st.prompt, st.targets)
			if bad := valid(st.prompt, st.targets, d, err); bad != "" {
				k.failf("pick %d, after Records in any order: %s", i+1, bad)
			}
			if err == nil {
				made = append(made, d)
			}
			byHand := []router.Decision{
				{},
				{Prompt: st.prompt},
				{Prompt: st.prompt, Target: router.Target{ID: "nobody knows it"}, Length: len(st.prompt.Text)},
				{Prompt: st.prompt, Target: st.targets[rng.IntN(len(st.targets))], Length: len(st.prompt.Text)},
				{Prompt: st.prompt, Target: st.targets[0], Cached: math.MaxInt >> 23, Length: -1, Unit: 9},
			}
			for range rng.IntN(6) {
				d := byHand[rng.IntN(len(byHand))]
				if len(made) > 0 && rng.IntN(2) == 0 {
					d = made[rng.IntN(len(made))]
				}
				s.Record(d, outcome(rng))
			}
			if f, ok := s.(router.Forgetter); ok && rng.IntN(10) == 0 {
				f.Forget(k.ids[rng.IntN(len(k.ids))])
			}
		}
	}
}

func (k *kit) unsent() {
	k.r.Helper()
	k.same("a Record without Sent, or of no Stage,", noLens, func(uint64) lens {
		return lens{record: func(s router.Strategy, st step, d router.Decision, o router.Outcome) {
			s.Record(d, router.Outcome{Status: 200, Reply: "said by nobody"})
			if st.sent || o.Stage != router.Sent {
				s.Record(d, o)
			}
		}}
	})
}

func (k *kit) repeated() {
	k.r.Helper()
	k.same("recording twice", noLens, func(uint64) lens {
		return lens{record: func(s router.Strategy, st step, d router.Decision, o router.Outcome) {
			if st.sent {
				s.Record(d, o)
				s.Record(d, o)
			}
		}}
	})
}

func (k *kit) explained() {
	for seed := range uint64(8) {
		s, steps := k.new(k.rand(seed)), k.history(seed, 60, kind(seed%4))
		x := s.(router.Explainer)
		if got := x.Explain(context.Background(), steps[0].prompt, nil, nil); len(got) != 0 {
			k.failf("%d candidates of no targets", len(got))
		}
		play(s, steps, lens{before: func(_ router.Strategy, st step, ts []router.Target) {
			for _, spare := range []int{0, len(ts) + 1} {
				dst := make([]router.Candidate, 1, 1+spare)
				dst[0].Target.ID = "was there before"
				got := x.Explain(context.Background(), st.prompt, ts, dst)
				if len(got) == 0 || got[0].Target.ID != "was there before" {
					k.failf("Explain does not append to dst")
				}
				if bad := list(st.prompt, ts, got[1:]); bad != "" {
					k.failf("history %d: %s", seed, bad)
				}
			}
		}})
	}
}

func (k *kit) agrees() {
	for seed := range uint64(12) {
		s, steps := k.new(k.rand(seed)), k.history(seed, 80, kind(seed%4))
		x := s.(router.Explainer)
		var lists [][]router.Candidate
		results := play(s, steps, lens{before: func(_ router.Strategy, st step, ts []router.Target) {
			lists = append(lists, x.Explain(context.Background(), st.prompt, ts, nil))
		}})
		for i, r := range results {
			if r.err != nil {
				continue
			}
			cs := lists[i]
			at := slices.IndexFunc(cs, func(c router.Candidate) bool { return c.Target.ID == r.d.Target.ID })
			switch {
			case at < 0:
				k.failf("Pick took %s, which Explain does not name", r.d.Target.ID)
			case at > 0 && cs[at].Reason != router.ReasonTied:
				k.failf("history %d, pick %d: Pick took %s, Explain has it as number %d, %q; its first is %s, %q",
					seed, i+1, describe(r.d), at+1, cs[at].Reason, cs[0].Target.ID, cs[0].Reason)
			case r.d.Reason != cs[0].Reason:
				k.failf("history %d, pick %d: Pick says %q, Explain %q", seed, i+1, r.d.Reason, cs[0].Reason)
			case r.d.Cached != cs[at].Cached || r.d.Length != cs[at].Length || r.d.Unit != cs[at].Unit:
				k.failf("history %d, pick %d: Pick says %s, Explain cached %d of %d %s",
					seed, i+1, describe(r.d), cs[at].Cached, cs[at].Length, cs[at].Unit)
			}
		}
	}
}

// ranked plays histories of every kind, and fleets of which one target has nearly
// all of the load, so that its cached part and its rank contradict each other.
func (k *kit) ranked() {
	for seed := range uint64(12) {
		rng := k.rng(seed + 3000)
		s, steps := k.new(k.rand(seed)), k.history(seed, 80, kind(seed%4))
		x := s.(router.Explainer)
		play(s, steps, lens{before: func(_ router.Strategy, st step, ts []router.Target) {
			busy := slices.Clone(ts)
			if len(busy) > 0 {
				busy[rng.IntN(len(busy))].Load = router.Load{Known: true, InFlight: 200}
			}
			for _, offered := range [][]router.Target{ts, busy} {
				if bad := rankedList(x.Explain(context.Background(), st.prompt, offered, nil)); bad != "" {
					k.failf("history %d: %s", seed, bad)
				}
			}
		}})
	}
}

func (k *kit) quiet() {
	k.r.Helper()
	k.same("Explain", noLens, func(uint64) lens {
		return lens{before: func(s router.Strategy, st step, ts []router.Target) {
			x := s.(router.Explainer)
			a := x.Explain(context.Background(), st.prompt, ts, nil)
			b := x.Explain(context.Background(), st.prompt, ts, nil)
			if diff := differentLists(a, b); diff != "" {
				k.failf("Explain does not say the same twice: %s", diff)
			}
		}}
	})
}

// prepared compares Pick with Prepare and PickPrepared, of which every fourth has
// nothing that was prepared, and lets results of Prepare grow old.
func (k *kit) prepared() {
	k.r.Helper()
	ctx := context.Background()
	n := 0
	k.same("Prepare", noLens, func(uint64) lens {
		return lens{pick: func(s router.Strategy, st step, targets []router.Target) (router.Decision, error) {
			x := s.(router.Preparer)
			var prepared any
			if n++; n%4 > 0 {
				prepared = x.Prepare(ctx, st.prompt)
			}
			return x.PickPrepared(ctx, st.prompt, targets, prepared)
		}}
	})
	// A result of Prepare from before others were sent, ended or forgotten is as valid.
	for seed := range uint64(8) {
		rng := k.rng(seed + 4000)
		s := k.new(k.rand(seed))
		x := s.(router.Preparer)
		forgotten := make(map[string]bool)
		for i, st := range k.history(seed, 60, kind(seed%4)) {
			prepared := x.Prepare(ctx, st.prompt)
			play(s, k.history(seed+uint64(100*i), rng.IntN(4), kind(seed%4)), lens{})
			clear(forgotten)
			if f, ok := s.(router.Forgetter); ok && rng.IntN(4) == 0 && len(st.targets) > 0 {
				id := st.targets[rng.IntN(len(st.targets))].ID
				f.Forget(id)
				forgotten[id] = true
			}
			d, err := x.PickPrepared(ctx, st.prompt, st.targets, prepared)
			if bad := valid(st.prompt, st.targets, d, err); bad != "" {
				k.failf("history %d, pick %d of a prompt that was prepared: %s", seed, i+1, bad)
			}
			if err == nil && forgotten[d.Target.ID] && d.Cached > 0 {
				k.failf("%d cached on a target that was forgotten after Prepare", d.Cached)
			}
			if err == nil && st.sent {
				s.Record(d, router.Outcome{Stage: router.Sent})
			}
		}
	}
}

// forgets records every prompt for every target, then forgets one of them.
func (k *kit) forgets() {
	for seed := range uint64(4) {
		s, ts := k.new(k.rand(seed)), k.fleet(k.rng(seed), 5, idle)
		cached := func(p router.Prompt, i int) int {
			d, err := s.Pick(context.Background(), p, ts[i:i+1])
			if err != nil {
				k.failf("pick of a single target: %v", err)
			}
			return d.Cached
		}
		var sent []router.Decision
		for _, p := range k.prompts {
			for i := range ts {
				d, err := s.Pick(context.Background(), p, ts[i:i+1])
				if err != nil {
					k.failf("pick of a single target: %v", err)
				}
				s.Record(d, router.Outcome{Stage: router.Sent})
				sent = append(sent, d)
			}
		}
		before := make(map[[2]int]int)
		for n, p := range k.prompts {
			for i := range ts {
				before[[2]int{n, i}] = cached(p, i)
			}
		}
		f := s.(router.Forgetter)
		f.Forget("nobody knows it")
		f.Forget(ts[0].ID)
		f.Forget(ts[0].ID)
		for n, p := range k.prompts {
			if c := cached(p, 0); c != 0 {
				k.failf("%d cached on a target after Forget", c)
			}
			for i := 1; i < len(ts); i++ {
				if c := cached(p, i); c != before[[2]int{n, i}] {
					k.failf("%d cached on a target after Forget of another, %d before", c, before[[2]int{n, i}])
				}
			}
		}
		// Requests that began before must end without error after.
		for i, d := range sent {
			s.Record(d, router.Outcome{Stage: router.Finished + router.Stage(i%3)})
		}
		for _, p := range k.prompts {
			d, err := s.Pick(context.Background(), p, ts)
			if bad := valid(p, ts, d, err); bad != "" {
				k.failf("after Forget: %s", bad)
			}
		}
	}
}
