package main

import (
	"fmt"
	"slices"

	"github.com/warmroute/router/bench/sim"
)

// The rule of recovery: from its sample on, the mean time to first token of
// recoveryRun samples in a row is at most recoverySlack times that of the
// requests that arrived between half of the time to the event and the event.
const (
	recoveryRun   = 4
	recoverySlack = 1.25
)

// recovery is how long after a replica that died was back the time to first token
// was what it had been before.
type recovery struct {
	seconds float64 // after its return, or its end where it has none; at least 0
	never   bool    // not by the end of the arrivals
	worst   float64 // the greatest mean of a sample from the event on, seconds
	before  float64 // seconds
}

// recoveryOf judges the first replica of events that dies. ok is false where none
// does, or where nothing can be told from the timeline.
func recoveryOf(r *sim.Result, events []sim.Event) (v recovery, ok bool) {
	i := slices.IndexFunc(events, func(e sim.Event) bool { return e.Kind == sim.Die })
	if i < 0 || r.TimelineStep <= 0 {
		return v, false
	}
	e := events[i]
	sample := func(seconds float64) int { return int(seconds / r.TimelineStep) }
	died, back := sample(e.At.Seconds()), sample((e.At + e.Down).Seconds())
	end := min(len(r.Timeline), sample(r.Span))
	mean := func(from, to int) (float64, bool) {
		sum, n := 0.0, 0
		for _, s := range r.Timeline[from:to] {
			if s.TTFT > 0 {
				sum, n = sum+s.TTFT*float64(s.Arrived), n+s.Arrived
			}
		}
		return sum / float64(max(n, 1)), n > 0
	}
	if died < 2 || died >= end {
		return v, false
	}
	if v.before, ok = mean(died/2, died); !ok {
		return v, false
	}
	for _, s := range r.Timeline[died:end] {
		v.worst = max(v.worst, s.TTFT)
	}
	for k := back; k+recoveryRun <= end; k++ {
		if m, ok := mean(k, k+recoveryRun); ok && m <= recoverySlack*v.before {
			v.seconds = max(float64(k)*r.TimelineStep-(e.At+e.Down).Seconds(), 0)
			return v, true
		}
	}
	v.never = true
	return v, true
}

// recoveries says what came of the runs of one cell, "" where nothing died.
func recoveries(vs []recovery) string {
	if len(vs) == 0 {
		return ""
	}
	sum, worst, before, never := 0.0, 0.0, 0.0, 0
	for _, v := range vs {
		before += v.before / float64(len(vs))
		worst = max(worst, v.worst)
		if v.never {
			never++
			continue
		}
		sum += v.seconds
	}
	s := fmt.Sprintf("TTFT before %s, at worst %s", short(before), short(worst))
	if n := len(vs) - never; n > 0 {
		s += fmt.Sprintf(", recovered %.0f s after its return", sum/float64(n))
	}
	if never > 0 {
		s += fmt.Sprintf(", not recovered in %d of %d", never, len(vs))
	}
	return s
}
