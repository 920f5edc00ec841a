package debugui

import (
	"slices"
	"time"

	"github.com/warmroute/router"
)

// recentTimes is the number of times to the first token that are kept of each kind.
const recentTimes = 256

// firstTokens are the last times to the first token.
type firstTokens struct{ all, warm, cold ring[time.Duration] }

// firstState are medians of the time to the first token, in milliseconds, of the last requests of each kind; -1: none.
type firstState struct {
	All  int64 `json:"all"`
	Warm int64 `json:"warm"`
	Cold int64 `json:"cold"`
}

func (f *firstTokens) state() firstState {
	return firstState{median(f.all.kept), median(f.warm.kept), median(f.cold.kept)}
}

// median returns the median in milliseconds, -1 if there is none.
func median(times []time.Duration) int64 {
	if len(times) == 0 {
		return -1
	}
	s := slices.Clone(times)
	slices.Sort(s)
	return s[len(s)/2].Milliseconds()
}

// scaled returns a duration of the fleet's time.
func (p *Page) scaled(d time.Duration) time.Duration { return time.Duration(float64(d) * p.cfg.Speed) }

func (r *route) timed(t router.Timing) {
	if t.Outcome.Stage != router.FirstToken {
		return
	}
	took := r.page.scaled(t.Request)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.first.all.add(took)
	switch t.Decision.Reason {
	case router.ReasonWarm:
		r.first.warm.add(took)
	case router.ReasonCold:
		r.first.cold.add(took)
	}
}

// bookless are the strategies of the library's that keep no books of cached prompts: nothing is believed, which
// is not the same as that nothing is cached.
var bookless = map[string]bool{
	"round_robin": true, "random": true, "power_of_two": true, "least_load": true, "consistent_hash": true,
}

// forgetShares makes all believed shares unknown.
func (s *state) forgetShares() {
	s.Share = -1
	unknown := func(series []int) {
		for i := range series {
			series[i] = -1
		}
	}
	unknown(s.Series)
	for i := range s.Targets {
		t := &s.Targets[i]
		t.Share = -1
		unknown(t.Series)
		for j := range t.BySize {
			t.BySize[j][1] = -1
		}
	}
	for i := range s.Decisions {
		s.Decisions[i].Cached = -1
	}
}
