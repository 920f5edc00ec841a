// Package roundrobin sends prompts to the targets in turn, to each as often as
// its weight says.
package roundrobin

import (
	"cmp"
	"context"
	"math"
	"sync"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy"
)

// Name is the strategy's name in configuration files.
const Name = "round_robin"

// Config is how the strategy works. The zero Config is the default.
type Config struct{}

// Strategy gives every Ready target its turn. Equal weights are served in the
// order of their IDs; a target of weight 2 has two turns, spread out, for each
// one of a target of weight 1. One that comes, or comes back, joins at the
// present turn and makes up for nothing. All prompts share one rotation,
// whatever their scope. The order in which targets are offered does not matter.
//
// It remembers a turn for each ID that was offered lately, at most 4,096 or four
// times the offered ones, and is safe for concurrent use. Weights below 1e-6 or
// above 1e6 count as these.
type Strategy struct {
	mu    sync.Mutex
	turns []turn
	index map[string]int32 // ID to its place in turns
	// at has the places in turns of the IDs of the last Pick, in their order:
	// callers pass the same ones call after call, and a look is cheaper than a
	// map.
	at    []int32
	clock uint64 // counts Picks
}

// turn is when a target was served last, in a time in which every target is due
// again after 1/Weight. The least time due is served (the divisor method of
// Webster and Sainte-Laguë): a new target is first due after half of that.
type turn struct {
	id   string
	last float64
	seen uint64 // the clock of the last Pick that offered it
}

const (
	minWeight, maxWeight = 1e-6, 1e6
	// keep is how many turns are remembered at least.
	keep = 4096
	// far is when time starts over at 0, before its steps are lost in rounding.
	far = 1 << 24
)

var (
	_ router.Strategy  = (*Strategy)(nil)
	_ router.Explainer = (*Strategy)(nil)
)

// WithDefaults returns c, which has no fields.
func (c Config) WithDefaults() Config { return c }

// New returns a Strategy. It does not fail today.
func New(Config) (*Strategy, error) {
	return &Strategy{index: make(map[string]int32)}, nil
}

// Pick gives the next target its turn.
func (s *Strategy) Pick(_ context.Context, p router.Prompt, targets []router.Target) (router.Decision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock++
	s.resolve(targets)
	now, ready := s.now(targets, s.at)
	if ready == 0 {
		return router.Decision{}, strategy.NoTarget(targets)
	}
	best, least := -1, 0.0
	for i := range targets {
		t := &targets[i]
		if t.State != router.Ready {
			continue
		}
		if s.at[i] < 0 {
			s.at[i] = s.join(t, now)
		}
		due := s.due(t, s.at[i], now)
		if best < 0 || due < least || due == least && t.ID < targets[best].ID {
			best, least = i, due
		}
	}
	s.turns[s.at[best]].last = least
	if least > far {
		for i := range s.turns {
			s.turns[i].last -= least
		}
	}
	reason := router.ReasonRoundRobin
	if ready == 1 {
		reason = router.ReasonOnly
	}
	return strategy.NewDecision(p, &targets[best], reason), nil
}

// Record does nothing.
func (s *Strategy) Record(router.Decision, router.Outcome) {}

// Explain lists the targets in the order in which they are due. There are no
// scores.
func (s *Strategy) Explain(_ context.Context, p router.Prompt, targets []router.Target,
	dst []router.Candidate) []router.Candidate {
	sum := strategy.Scan(targets)
	from := len(dst)
	dst = strategy.Candidates(&p, targets, dst)
	cs := dst[from:]
	s.mu.Lock()
	at := make([]int32, len(targets))
	for i := range targets {
		at[i] = s.find(targets[i].ID)
	}
	now, _ := s.now(targets, at)
	for i := range cs {
		cs[i].Score = s.due(&targets[i], at[i], now) // for Sort only
	}
	s.mu.Unlock()
	strategy.Sort(cs, func(a, b *router.Candidate) int { return cmp.Compare(a.Score, b.Score) })
	for i := range cs {
		cs[i].Score = math.NaN()
		if i < sum.Ready {
			cs[i].Reason = router.ReasonNotItsTurn
		}
	}
	if sum.Ready > 0 {
		cs[0].Reason = sum.OnlyOr(router.ReasonRoundRobin)
	}
	return dst
}

func step(t *router.Target) float64 {
	return 1 / min(max(strategy.Weight(t), minWeight), maxWeight)
}

// now returns the latest time at which one of the Ready targets was served, and
// how many are Ready. Taking it from those that are offered, not from all, keeps
// sets of targets that do not meet from pushing each other's time.
func (s *Strategy) now(targets []router.Target, at []int32) (now float64, ready int) {
	now = math.Inf(-1)
	for i := range targets {
		if targets[i].State != router.Ready {
			continue
		}
		ready++
		if at[i] >= 0 {
			now = max(now, s.turns[at[i]].last)
		}
	}
	if math.IsInf(now, -1) {
		now = 0
	}
	return now, ready
}

// due returns the time at which t, with its turn at at (-1: it has none), is to be
// served.
func (s *Strategy) due(t *router.Target, at int32, now float64) float64 {
	last := now - step(t)/2 // as join has it, to the last bit
	if at >= 0 {
		last = s.turns[at].last
	}
	return max(last+step(t), now)
}

func (s *Strategy) find(id string) int32 {
	if at, ok := s.index[id]; ok {
		return at
	}
	return -1
}

// resolve brings s.at up to targets, with -1 for IDs that have no turn.
func (s *Strategy) resolve(targets []router.Target) {
	for len(s.at) < len(targets) {
		s.at = append(s.at, -1)
	}
	s.at = s.at[:len(targets)]
	unknown := 0
	for i := range targets {
		id := targets[i].ID
		if at := s.at[i]; at < 0 || s.turns[at].id != id {
			s.at[i] = s.find(id)
		}
		if s.at[i] < 0 {
			unknown++
			continue
		}
		s.turns[s.at[i]].seen = s.clock
	}
	if unknown > 0 && len(s.turns)+unknown > max(keep, 4*len(targets)) {
		s.sweep(targets)
	}
}

// sweep drops the turns of all IDs that this Pick does not offer.
func (s *Strategy) sweep(targets []router.Target) {
	kept := s.turns[:0]
	clear(s.index)
	for _, t := range s.turns {
		if t.seen == s.clock {
			s.index[t.id] = int32(len(kept))
			kept = append(kept, t)
		}
	}
	clear(s.turns[len(kept):])
	s.turns = kept
	for i := range targets {
		s.at[i] = s.find(targets[i].ID)
	}
}

// join gives t a turn at which it is due half a step from now.
func (s *Strategy) join(t *router.Target, now float64) int32 {
	if at := s.find(t.ID); at >= 0 { // its twin joined just before
		return at
	}
	at := int32(len(s.turns))
	s.turns = append(s.turns, turn{id: t.ID, last: now - step(t)/2, seen: s.clock})
	s.index[t.ID] = at
	return at
}
