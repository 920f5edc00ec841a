package main

import (
	"fmt"
	"slices"

	"github.com/warmroute/router/bench/sim"
)

// The rule of recovery: from its sample on, the mean time to first token of
// recoveryRun samples in a row is at most recoverySlack times that of the same
// samples in the run without events. A growing workload cannot be compared with
// its own past.
const (
	recoveryRun   = 4
	recoverySlack = 1.25
)

// recovery is how long after a replica that died was back the time to first token
// was as if nothing had happened.
type recovery struct {
	seconds float64 // after its return, or its end if it has none; at least 0
	never   bool    // not by the end of the arrivals
	worst   float64 // the greatest mean of recoveryRun samples from its death on, seconds
	without float64 // the mean of the same samples without events, seconds
}

// recoveryOf judges the first replica of events that dies. still is the same run
// without events. ok is false if none dies, or if there is too little data.
func recoveryOf(r, still *sim.Result, events []sim.Event) (v recovery, ok bool) {
	i := slices.IndexFunc(events, func(e sim.Event) bool { return e.Kind == sim.Die })
	if i < 0 || r.TimelineStep <= 0 || r.TimelineStep != still.TimelineStep {
		return v, false
	}
	e := events[i]
	sample := func(seconds float64) int { return int(seconds / r.TimelineStep) }
	died, back := sample(e.At.Seconds()), sample((e.At + e.Down).Seconds())
	end := min(len(r.Timeline), len(still.Timeline), sample(r.Span))
	mean := func(r *sim.Result, from int) float64 {
		sum, n := 0.0, 0
		for _, s := range r.Timeline[from : from+recoveryRun] {
			if s.TTFT > 0 {
				sum, n = sum+s.TTFT*float64(s.Arrived), n+s.Arrived
			}
		}
		return sum / float64(max(n, 1))
	}
	if died+recoveryRun > end {
		return v, false
	}
	v.never = true
	for k := died; k+recoveryRun <= end; k++ {
		m, was := mean(r, k), mean(still, k)
		if m > v.worst {
			v.worst, v.without = m, was
		}
		if v.never && k >= back && m <= recoverySlack*was {
			v.never = false
			v.seconds = max(float64(k)*r.TimelineStep-(e.At+e.Down).Seconds(), 0)
		}
	}
	return v, true
}

// recoveries describes the recovery in the runs of one cell, "" if nothing died.
func recoveries(vs []recovery) string {
	if len(vs) == 0 {
		return ""
	}
	sum, worst, without, never := 0.0, 0.0, 0.0, 0
	for _, v := range vs {
		worst += v.worst / float64(len(vs))
		without += v.without / float64(len(vs))
		if v.never {
			never++
			continue
		}
		sum += v.seconds
	}
	s := fmt.Sprintf("TTFT at worst %s, without %s", short(worst), short(without))
	if n := len(vs) - never; n > 0 {
		s += fmt.Sprintf(", recovered %.0f s after its return", sum/float64(n))
	}
	if never > 0 {
		s += fmt.Sprintf(", not recovered in %d of %d", never, len(vs))
	}
	return s
}
