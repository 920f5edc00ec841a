package routertest_test

import (
	"strings"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/routertest"
)

func TestSoundStrategyPasses(t *testing.T) {
	routertest.Run(t, newNaive(sound), routertest.Options{
		Prompts: []router.Prompt{{Model: "own", Text: "a prompt of the strategy's own"}},
		Ref:     func(id string) any { return []string{id} },
	})
}

// Each fault is caught by the law that is there for it.
func TestFaultsAreCaught(t *testing.T) {
	caught := make(map[routertest.Law]bool)
	for _, c := range []struct {
		bug bug
		law routertest.Law
	}{
		{takesAny, routertest.Offered},
		{changesTarget, routertest.Offered},
		{ownErrors, routertest.NoTarget},
		{givesUp, routertest.NoTarget},
		{overcounts, routertest.Lengths},
		{losesPrompt, routertest.Lengths},
		{firstOfTies, routertest.Order},
		{firstOfTies, routertest.Ties},
		{lastIDOfTies, routertest.Ties},
		{sorts, routertest.Unchanged},
		{appends, routertest.Unchanged},
		{keeps, routertest.NotKept},
		{blamesContext, routertest.Canceled},
		{trustsWeights, routertest.Extremes},
		{needsMemo, routertest.Records},
		{learnsUnsent, routertest.Unsent},
		{learnsZero, routertest.Unsent},
		{takesBackTwice, routertest.Repeated},
		{mixesScopes, routertest.Scopes},
		{joinsScopes, routertest.Scopes},
		{losesNotReady, routertest.Explained},
		{overwritesDst, routertest.Explained},
		{scoresBeyond, routertest.Explained},
		{explainsOther, routertest.Agrees},
		{scoresOther, routertest.Ranked},
		{drawsToExplain, routertest.Quiet},
		{forgetsNothing, routertest.Forgets},
		{forgetsAll, routertest.Forgets},
		{preparesOther, routertest.Prepared},
		{overcounts, routertest.Storm},
	} {
		t.Run(string(c.law)+"/"+string(c.bug), func(t *testing.T) {
			failures := routertest.Failures(c.law, newNaive(c.bug))
			if len(failures) == 0 {
				t.Fatalf("a strategy that %s passes %s", c.bug, c.law)
			}
			t.Log(strings.SplitN(failures[0], "\n", 2)[0])
			caught[c.law] = true
		})
	}
	for _, l := range routertest.Laws() {
		if !caught[l] {
			t.Errorf("no fault shows that the law %s can fail", l)
		}
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		skip map[routertest.Law]string
		want string
	}{
		{map[routertest.Law]string{routertest.Ties: "it prefers the nearest"}, ""},
		{map[routertest.Law]string{routertest.Ties: ""}, "no reason"},
		{map[routertest.Law]string{"teis": "a slip"}, `"teis"`},
	} {
		err := routertest.Options{Skip: c.skip}.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.skip, err, c.want)
		}
	}
}

// A law that is skipped is not checked.
func TestSkip(t *testing.T) {
	routertest.Run(t, newNaive(lastIDOfTies), routertest.Options{
		Skip: map[routertest.Law]string{routertest.Ties: "it takes the greatest ID by design"},
	})
}
