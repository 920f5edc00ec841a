package routertest

import (
	"fmt"
	"math"

	"github.com/warmroute/router"
)

// list describes the fault of the candidates that Explain returned for targets
// with different IDs.
func list(p router.Prompt, targets []router.Target, cs []router.Candidate) string {
	if len(cs) != len(targets) {
		return fmt.Sprintf("%d candidates of %d targets", len(cs), len(targets))
	}
	seen := make(map[string]bool)
	last := false // whether those that are not Ready have begun
	for i, c := range cs {
		id := c.Target.ID
		if seen[id] {
			return fmt.Sprintf("%q is there twice", id)
		}
		seen[id] = true
		if bad := offeredAs(targets, c.Target); bad != "" {
			return bad
		}
		ready := c.Target.State == router.Ready
		switch {
		case ready && last:
			return fmt.Sprintf("%q, number %d, is Ready and comes after one that is not", id, i+1)
		case !ready && c.Reason != router.ReasonOf(c.Target.State):
			return fmt.Sprintf("%q is %s, and the reason is %q", id, c.Target.State, c.Reason)
		case ready && i == 0 && c.Reason == router.ReasonTied:
			return fmt.Sprintf("%q is the first and says only that it is tied", id)
		case !(c.Score >= 0 && c.Score <= 1) && !math.IsNaN(c.Score):
			return fmt.Sprintf("%q has score %v", id, c.Score)
		}
		if bad := soundNumbers(p, c.Cached, c.Length, c.Unit); bad != "" {
			return fmt.Sprintf("%q: %s", id, bad)
		}
		last = last || !ready
	}
	return ""
}

// rankedList returns how the scores of candidates contradict their order, "" if
// they do not.
func rankedList(cs []router.Candidate) string {
	const rounding = 1e-9 // scores that are equal may be sums in another order
	for i, c := range cs {
		if c.Target.State != router.Ready {
			break
		}
		if i == 0 {
			continue
		}
		first, before := cs[0], cs[i-1]
		switch {
		case math.IsNaN(c.Score) != math.IsNaN(first.Score):
			return fmt.Sprintf("%s has a score or none, unlike the first, %s", candidate(c), candidate(first))
		case c.Score > before.Score+rounding:
			return fmt.Sprintf("number %d is %s, and comes after %s", i+1, candidate(c), candidate(before))
		}
	}
	return ""
}

// differentLists says how two lists of candidates differ, "" if they do not.
func differentLists(a, b []router.Candidate) string {
	if len(a) != len(b) {
		return fmt.Sprintf("%d candidates, and %d", len(a), len(b))
	}
	for i := range a {
		x, y := candidate(a[i]), candidate(b[i])
		if x != y {
			return fmt.Sprintf("number %d is %s, and %s", i+1, x, y)
		}
	}
	return ""
}

func candidate(c router.Candidate) string {
	return fmt.Sprintf("%s (cached %d of %d %s, score %v, %q)", c.Target.ID, c.Cached, c.Length, c.Unit, c.Score, c.Reason)
}
