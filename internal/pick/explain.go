package pick

import (
	"cmp"
	"slices"

	"github.com/warmroute/router"
)

// Candidates appends one candidate for each of targets to dst, in their order,
// with the prompt's length and nothing cached. Those that are not Ready have
// their state's reason, the others none; all scores are 0.
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

// Sort puts cs in order: the Ready ones before the others, then by compare
// (which may be nil, and sees Ready ones only; below 0: a is better), then by ID.
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

// LoadScore returns a score for load alone: 1 at the least known load, and
// 1/(1+d) for a load d requests beyond it.
func (s *Summary) LoadScore(t *router.Target) float64 {
	return 1 / (1 + max(s.Load(t)-s.Least, 0))
}
