package strategy

import (
	"cmp"
	"slices"

	"github.com/warmroute/router"
)

// Candidates appends one candidate for each of targets to dst, in their order, with the prompt's length and nothing
// cached. Those that are not Ready have the reason of their state, the others none. All scores are 0.
func Candidates(p *router.Prompt, targets []router.Target, dst []router.Candidate) []router.Candidate {
	n, u := p.Length()
	dst = slices.Grow(dst, len(targets))
	for i := range targets {
		dst = append(dst, router.Candidate{
			Target: targets[i], Length: n, Unit: u, Reason: router.ReasonOf(targets[i].State),
		})
	}
	return dst
}

// Sort orders cs for an Explainer: the Ready ones before the others, then by compare, then by ID. A negative result of
// compare puts a first; it is called with Ready ones only, and may be nil.
func Sort(cs []router.Candidate, compare func(a, b *router.Candidate) int) {
	slices.SortStableFunc(cs, func(a, b router.Candidate) int {
		ra, rb := a.Target.State == router.Ready, b.Target.State == router.Ready
		if ra != rb {
			if ra {
				return -1
			}
			return 1
		}
		if ra && compare != nil {
			if c := compare(&a, &b); c != 0 {
				return c
			}
		}
		return cmp.Compare(a.Target.ID, b.Target.ID)
	})
}

// Sharpen lowers the scores of Ready candidates that are as high as the first one's, unless their
// reason is router.ReasonTied, so that a caller that goes by scores takes a target that Pick would.
// cs is sorted, and no score is above that of a candidate before it.
func Sharpen(cs []router.Candidate) {
	if len(cs) == 0 || cs[0].Target.State != router.Ready {
		return
	}
	first, next := cs[0].Score, 0.0
	for i := range cs {
		if c := &cs[i]; c.Target.State == router.Ready && c.Score < first {
			next = c.Score
			break
		}
	}
	for i := range cs[1:] {
		c := &cs[1+i]
		if c.Target.State == router.Ready && c.Score >= first && c.Reason != router.ReasonTied {
			c.Score = (first + next) / 2
		}
	}
}
