package pick

import (
	"cmp"
	"math"

	"github.com/warmroute/router"
)

// Least returns the index of the Ready target of the least load, and how many
// are tied for it. Where no load is known at all, all are tied and one is drawn
// by weight. seed decides ties; s is the Scan of targets. -1: none is Ready.
func Least(targets []router.Target, s *Summary, seed uint64) (i, tied int) {
	if s.Known == 0 {
		return ByWeight(targets, seed), s.Ready
	}
	tie := Tie{Seed: seed}
	least := math.Inf(1)
	for i := range targets {
		t := &targets[i]
		if t.State != router.Ready {
			continue
		}
		switch l := s.Load(t); {
		case l < least:
			least = l
			tie.Better(i)
		case l == least:
			tie.Equal(i, targets)
		}
	}
	return tie.Best(), tie.Tied()
}

// ByWeight returns the index of one of the Ready targets, drawn by weight; -1
// where there is none.
func ByWeight(targets []router.Target, seed uint64) int {
	l := Lottery{Seed: seed}
	for i := range targets {
		if targets[i].State == router.Ready {
			l.Show(i, &targets[i])
		}
	}
	return l.First()
}

// ExplainLeast appends what [Least] would choose from. The first says reason,
// those tied with it ReasonTied, the rest ReasonBusier; scores are LoadScore, or
// shares of the greatest weight where no load is known.
func ExplainLeast(p *router.Prompt, targets []router.Target, dst []router.Candidate, reason router.Reason) []router.Candidate {
	s := Scan(targets)
	from := len(dst)
	dst = Candidates(p, targets, dst)
	cs := dst[from:]
	if s.Known == 0 {
		explainByWeight(cs, &s, reason)
		return dst
	}
	Sort(cs, func(a, b *router.Candidate) int {
		return cmp.Compare(s.Load(&a.Target), s.Load(&b.Target))
	})
	for i := range cs[:s.Ready] {
		c := &cs[i]
		c.Score = s.LoadScore(&c.Target)
		switch {
		case i == 0:
			c.Reason = OnlyOr(&s, reason)
		case s.Load(&c.Target) == s.Load(&cs[0].Target):
			c.Reason = router.ReasonTied
		default:
			c.Reason = router.ReasonBusier
		}
	}
	return dst
}

// ExplainByWeight appends what [ByWeight] would draw from, the heaviest first:
// the first says reason, the other Ready ones ReasonTied. Scores are shares of
// the greatest weight.
func ExplainByWeight(p *router.Prompt, targets []router.Target, dst []router.Candidate, reason router.Reason) []router.Candidate {
	s := Scan(targets)
	from := len(dst)
	dst = Candidates(p, targets, dst)
	explainByWeight(dst[from:], &s, reason)
	return dst
}

func explainByWeight(cs []router.Candidate, s *Summary, reason router.Reason) {
	Sort(cs, func(a, b *router.Candidate) int {
		return cmp.Compare(Weight(&b.Target), Weight(&a.Target))
	})
	for i := range cs[:s.Ready] {
		cs[i].Score = Weight(&cs[i].Target) / Weight(&cs[0].Target)
		cs[i].Reason = router.ReasonTied
		if i == 0 {
			cs[i].Reason = OnlyOr(s, reason)
		}
	}
}

// OnlyOr returns ReasonOnly where a single target is Ready, otherwise reason.
func OnlyOr(s *Summary, reason router.Reason) router.Reason {
	if s.Ready == 1 {
		return router.ReasonOnly
	}
	return reason
}
