// Package routertest is the conformance kit for a router.Strategy: the laws that
// gateways and fleets rely on, each checked against histories made from a fixed
// seed.
//
//	func TestConformance(t *testing.T) {
//		routertest.Run(t, func(rand func() uint64) router.Strategy {
//			return mine.New(mine.Config{Rand: rand})
//		}, routertest.Options{})
//	}
//
// Run it with the race detector too: the law Storm is there for it.
package routertest

import (
	"fmt"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/warmroute/router"
)

// Factory returns a new strategy that shares nothing with those before and draws all
// its random numbers from rand, which is safe for concurrent use. A strategy
// that draws none ignores it.
type Factory = func(rand func() uint64) router.Strategy

// Options adapts the kit to a strategy. The zero Options runs every law.
type Options struct {
	// Skip names the laws that do not apply, each with the reason, which the
	// test prints. An unknown law or an empty reason fails the test.
	Skip map[Law]string
	// Prompts are used in addition to the kit's own, if a strategy looks at
	// something in them that those lack.
	Prompts []router.Prompt
	// Ref gives the targets their Ref, if a strategy reads it; nil: no Ref. It
	// is called once for each target that is made.
	Ref func(id string) any
	// Seed makes other histories; 0 means 1.
	Seed uint64
}

// Law names one thing that every strategy keeps.
type Law string

// The laws.
const (
	// Offered: Pick chooses an offered target that is Ready, and returns it as
	// it was offered; if one is Ready, it does not fail.
	Offered Law = "offered"
	// NoTarget: with no target, or none Ready, the error is router.ErrNoTarget;
	// a single Ready one is taken.
	NoTarget Law = "no_target"
	// Lengths: 0 <= Cached <= Length, Length is 0 for an empty prompt and only
	// for one, and the decision carries the prompt that was asked for.
	Lengths Law = "lengths"
	// Order: the order in which targets are offered changes nothing, if the
	// random numbers are the same.
	Order Law = "order"
	// Ties: equal targets are chosen equally often.
	Ties Law = "ties"
	// Unchanged: Pick and Explain write neither to the slice, nor behind its
	// end, nor to the prompt's tokens.
	Unchanged Law = "unchanged"
	// NotKept: the slice is not looked at after Pick or Explain returned.
	NotKept Law = "not_kept"
	// Canceled: under a done context Pick returns a valid decision, or the
	// context's error, or router.ErrNoTarget.
	Canceled Law = "canceled"
	// Extremes: weights and loads that are huge, negative, NaN, infinite or
	// unknown do no harm.
	Extremes Law = "extremes"
	// Records: Record in any order and number, for decisions of any origin, does
	// no harm: later decisions are as valid as ever.
	Records Law = "records"
	// Unsent: without Sent nothing is learned and nothing taken back, and the
	// zero Stage says nothing.
	Unsent Law = "unsent"
	// Repeated: a stage recorded twice for one decision counts once.
	Repeated Law = "repeated"
	// Scopes: a prompt recorded in one scope is not seen in another.
	Scopes Law = "scopes"
	// Explained (of an Explainer): Explain appends every offered target once,
	// the one to take first and those that are not Ready last, each as offered,
	// with a Score of 0..1 or NaN.
	Explained Law = "explained"
	// Agrees (of an Explainer): Pick takes the first candidate or one that is
	// tied with it, for the same reason and with the same numbers.
	Agrees Law = "agrees"
	// Ranked (of an Explainer): the Score does not contradict the order. Of the
	// Ready candidates none has a greater one than those before it, and either all
	// have one or none.
	Ranked Law = "ranked"
	// Quiet (of an Explainer): Explain changes nothing and says the same twice.
	Quiet Law = "quiet"
	// Forgets (of a Forgetter): nothing is believed cached on a target after
	// Forget, and unknown IDs do no harm.
	Forgets Law = "forgets"
	// Prepared (of a Preparer): Prepare and PickPrepared decide as Pick does, and a
	// result of Prepare from before other requests were sent, ended or forgotten is
	// valid.
	Prepared Law = "prepared"
	// Storm: all of it at once, from many goroutines, without a data race.
	Storm Law = "storm"
)

type law struct {
	name  Law
	needs func(router.Strategy) bool
	check func(*kit)
}

func explains(s router.Strategy) bool { _, ok := s.(router.Explainer); return ok }
func forgets(s router.Strategy) bool  { _, ok := s.(router.Forgetter); return ok }
func prepares(s router.Strategy) bool { _, ok := s.(router.Preparer); return ok }

var laws = []law{
	{Offered, nil, (*kit).offered},
	{NoTarget, nil, (*kit).noTarget},
	{Lengths, nil, (*kit).lengths},
	{Order, nil, (*kit).order},
	{Ties, nil, (*kit).ties},
	{Unchanged, nil, (*kit).unchanged},
	{NotKept, nil, (*kit).notKept},
	{Canceled, nil, (*kit).canceled},
	{Extremes, nil, (*kit).extremes},
	{Records, nil, (*kit).records},
	{Unsent, nil, (*kit).unsent},
	{Repeated, nil, (*kit).repeated},
	{Scopes, nil, (*kit).scopes},
	{Explained, explains, (*kit).explained},
	{Agrees, explains, (*kit).agrees},
	{Ranked, explains, (*kit).ranked},
	{Quiet, explains, (*kit).quiet},
	{Forgets, forgets, (*kit).forgets},
	{Prepared, prepares, (*kit).prepared},
	{Storm, nil, (*kit).storm},
}

// Laws returns all laws, in the order in which Run checks them.
func Laws() []Law {
	names := make([]Law, len(laws))
	for i, l := range laws {
		names[i] = l.name
	}
	return names
}

// Run checks every law in a subtest of its name.
func Run(t *testing.T, newStrategy Factory, o Options) {
	t.Helper()
	if err := o.check(); err != nil {
		t.Fatal(err)
	}
	for _, l := range laws {
		t.Run(string(l.name), func(t *testing.T) {
			if why, ok := o.Skip[l.name]; ok {
				t.Skip(why)
			}
			if l.needs != nil && !l.needs(newStrategy(newKit(t, newStrategy, o).rand(0))) {
				t.Skip("the strategy has no such part")
			}
			l.run(t, newStrategy, o)
		})
	}
}

func (o Options) check() error {
	for name, why := range o.Skip {
		if !slices.Contains(Laws(), name) {
			return fmt.Errorf("routertest: Options.Skip: no law is called %q", name)
		}
		if why == "" {
			return fmt.Errorf("routertest: Options.Skip: no reason is given for %q", name)
		}
	}
	return nil
}

// reporter has the methods of a *testing.T that the kit needs. The kit's own
// tests have another one, to see that broken strategies are caught.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// stop ends a law at its first failure.
type stop struct{}

func (l law) run(r reporter, newStrategy Factory, o Options) {
	r.Helper()
	defer func() {
		if p := recover(); p != nil && p != (stop{}) {
			r.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	l.check(newKit(r, newStrategy, o))
}

// kit is one run of one law.
type kit struct {
	r       reporter
	new     Factory
	seed    uint64
	prompts []router.Prompt
	ref     func(string) any
	ids     []string
}

func newKit(r reporter, newStrategy Factory, o Options) *kit {
	k := &kit{r: r, new: newStrategy, seed: o.Seed, ref: o.Ref}
	if k.seed == 0 {
		k.seed = 1
	}
	k.prompts = append(ownPrompts(), o.Prompts...)
	for i := range 24 {
		k.ids = append(k.ids, fmt.Sprintf("http://10.0.%d.%d:8000", i%3, i))
	}
	return k
}

func (k *kit) failf(format string, args ...any) {
	k.r.Helper()
	k.r.Errorf(format, args...)
	panic(stop{})
}
