package routertest

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/warmroute/router"
)

func (k *kit) storm() {
	const goroutines, rounds = 8, 150
	s := k.new(k.rand(0))
	// Half of the goroutines pick from one slice, as the users of one fleet may.
	shared := k.fleet(k.rng(99), 10, mixed)
	was := slices.Clone(shared)
	problems := make(chan string, goroutines)
	var wg sync.WaitGroup
	for g := range uint64(goroutines) {
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					problems <- fmt.Sprintf("panic: %v\n%s", p, debug.Stack())
				}
			}()
			if bad := k.gust(s, g, rounds, shared); bad != "" {
				problems <- bad
			}
		})
	}
	wg.Wait()
	close(problems)
	for bad := range problems {
		k.failf("%s", bad)
	}
	if !slices.EqualFunc(shared, was, sameTarget) {
		k.failf("the targets were written to")
	}
}

// gust is one goroutine's part of a storm. Each decision is recorded by one
// goroutine at a time, as the contract has it, but not always by the one that
// picked.
func (k *kit) gust(s router.Strategy, g uint64, rounds int, shared []router.Target) string {
	rng := k.rng(g)
	ctx := context.Background()
	for i, st := range k.history(g, rounds, kind(g%4)) {
		targets := st.targets
		if g%2 == 0 {
			targets = shared
		}
		pick := s.Pick
		if x, ok := s.(router.Preparer); ok && i%2 == 0 {
			prepared := x.Prepare(ctx, st.prompt)
			pick = func(ctx context.Context, p router.Prompt, targets []router.Target) (router.Decision, error) {
				return x.PickPrepared(ctx, p, targets, prepared)
			}
		}
		d, err := pick(ctx, st.prompt, targets)
		if bad := valid(st.prompt, targets, d, err); bad != "" {
			return fmt.Sprintf("pick %d of a storm: %s", i+1, bad)
		}
		if err == nil && st.sent {
			s.Record(d, router.Outcome{Stage: router.Sent})
			died := make(chan any)
			go func() {
				defer func() { died <- recover() }()
				for _, o := range st.stages {
					s.Record(d, o)
				}
			}()
			if p := <-died; p != nil {
				return fmt.Sprintf("Record panics in a storm: %v", p)
			}
		}
		if x, ok := s.(router.Explainer); ok && rng.IntN(4) == 0 {
			if bad := list(st.prompt, targets, x.Explain(ctx, st.prompt, targets, nil)); bad != "" {
				return "Explain in a storm: " + bad
			}
		}
		if f, ok := s.(router.Forgetter); ok && rng.IntN(20) == 0 {
			f.Forget(k.ids[rng.IntN(len(k.ids))])
		}
	}
	return ""
}
