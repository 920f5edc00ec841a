// Package worthtest computes the naive way how much of the targets' cached parts counts for a
// choice, for the tests of the strategies that use internal/textcache.
package worthtest

import (
	"slices"
	"strings"

	"github.com/warmroute/router"
)

// Worth is the rule of textcache.Cache.Worth, sentence by sentence. sent has the prompts of each
// target in the scope of text, recorded how many prompts are recorded for it in all scopes; nil:
// those of sent.
func Worth(sent map[string][]string, recorded func(id string) int, text string, targets []router.Target, held []int,
	size int, exact bool) []int {
	worth, best := slices.Clone(held), 0
	for i := range worth {
		if 10*worth[i] < size {
			worth[i] = 0
		}
		if step := size / 50; !exact && step > 0 {
			worth[i] -= worth[i] % step
		}
		if targets[i].State == router.Ready {
			best = max(best, worth[i])
		}
	}
	warmed := func(i int) float64 { return Warmed(sent, recorded, targets[i]) }
	least := -1.0
	for i := range targets {
		if targets[i].State == router.Ready && (least < 0 || warmed(i) < least) {
			least = warmed(i)
		}
	}
	most := 0 // that a target without too many prompts holds
	for i := range targets {
		if n := warmed(i); targets[i].State == router.Ready && !(n > least+8 && n > 1.5*least) {
			most = max(most, worth[i])
		}
	}
	if common := Shared(sent, text, 32); 10*(best*len(text)-common*size) >= size*len(text) {
		return worth // a conversation, or another beginning that few have
	}
	for i := range worth {
		worth[i] = min(worth[i], most)
	}
	return worth
}

// Shared returns the length of the longest beginning of text that at least n sent texts have; the
// same text sent to two targets counts twice.
func Shared(sent map[string][]string, text string, n int) int {
	var all []string
	for _, texts := range sent {
		texts = slices.Clone(texts)
		slices.Sort(texts)
		all = append(all, slices.Compact(texts)...)
	}
	for k := len(text); k > 0; k-- {
		count := 0
		for _, s := range all {
			if strings.HasPrefix(s, text[:k]) {
				count++
			}
		}
		if count >= n {
			return k
		}
	}
	return 0
}

// Warmed returns how many prompts are recorded for t, for each unit of Weight.
func Warmed(sent map[string][]string, recorded func(id string) int, t router.Target) float64 {
	texts := slices.Clone(sent[t.ID])
	slices.Sort(texts)
	n := len(slices.Compact(texts))
	if recorded != nil {
		n = recorded(t.ID)
	}
	if t.Weight > 0 {
		return float64(n) / t.Weight
	}
	return float64(n)
}
