package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/warmroute/router/bench/sim"
	"github.com/warmroute/router/strategy/cacheaware"
)

// standing is how one policy did at all loads at which some policy keeps up, with
// the least number of gateways.
type standing struct {
	policy    *policy
	loads     int     // at which it was measured
	mean      float64 // geometric mean of its mean TTFT over the best one's
	worst     float64
	worstAt   *load
	close     int      // loads at which it is as good as the best
	saturates []string // from which load of each workload
}

// standings are sorted: measured at most loads first, then the least mean.
func (d *study) standings() (out []standing, loads int) {
	for _, p := range d.policies {
		s := standing{policy: p, worst: math.NaN(), mean: math.NaN()}
		sum := 0.0
		for _, w := range d.workloads {
			if len(w.fleets) == 0 {
				continue
			}
			for _, l := range w.fleets[0].loads {
				best, c := l.winner(), l.cell(p.Name)
				if best == nil || c == nil || !positive(c.TTFT.Mean) {
					continue
				}
				r := c.TTFT.Mean / best.TTFT.Mean
				s.loads++
				sum += math.Log(r)
				if !(s.worst >= r) {
					s.worst, s.worstAt = r, l
				}
				if closeTo(c, best) && !saturated(c) {
					s.close++
				}
			}
			if l := w.fleets[0].saturates(p.Name); l != nil {
				s.saturates = append(s.saturates, l.name())
			}
		}
		if s.loads > 0 {
			s.mean = math.Exp(sum / float64(s.loads))
			loads = max(loads, s.loads)
		}
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b standing) int {
		return cmp.Or(cmp.Compare(b.loads, a.loads), cmp.Compare(a.mean, b.mean))
	})
	return out, loads
}

// saturates returns the least load from which on p is saturated in most runs.
func (f *fleet) saturates(p string) (from *load) {
	for _, l := range slices.Backward(f.loads) {
		if c := l.cell(p); c != nil {
			if !saturated(c) {
				break
			}
			from = l
		}
	}
	return from
}

// loads names loads by their workloads.
func (s *sentence) loads(ls ...*load) *sentence {
	for i := 0; i < len(ls); {
		if i > 0 {
			s.say("; ")
		}
		w := ls[i].fleet.work
		var rates []string
		for ; i < len(ls) && ls[i].fleet.work == w; i++ {
			rates = append(rates, plain(ls[i].rate))
		}
		unit := " " + clip(w.Unit, 20)
		if w.Unit == "x" {
			unit = "×"
		}
		s.names(clip(w.Name, maxName)).say(" at %s%s", joined(rates, 6), strings.TrimRight(unit, " "))
	}
	return s
}

func (l *load) name() string {
	return fmt.Sprintf("%s at %s", clip(l.fleet.work.Name, maxName), rateName(l.rate, l.fleet.work.Unit))
}

// recommended is the library's best strategy, nil if none was measured.
func recommended(all []standing) *standing {
	for i := range all {
		if all[i].loads > 0 && slices.Contains(ownNames, all[i].policy.Name) {
			return &all[i]
		}
	}
	return nil
}

// findings are the summary's sentences.
func (d *study) findings(all []standing, loads int) (out []sentence) {
	if loads == 0 {
		var s sentence
		s.say("No policy keeps up at any of these loads, or nothing was measured: there is nothing to recommend.")
		return []sentence{s}
	}
	rec := recommended(all)
	if rec != nil {
		var s sentence
		s.say("Recommended: ").names(rec.policy.Name).say(". Its mean TTFT is %s that of the best policy of each load "+
			"(geometric mean over %s), and at most %s, on ",
			times(rec.mean), count(rec.loads, "load", "loads"), times(rec.worst)).loads(rec.worstAt).say(".")
		if rec.loads < loads {
			s.say(" It was measured at %d of %d loads only.", rec.loads, loads)
		}
		out = append(out, s)
		if first := all[0]; first.policy != rec.policy && first.mean < rec.mean {
			var s sentence
			does := "does better"
			if rec.mean < 1.01*first.mean {
				does = "does as well"
			}
			s.names(first.policy.Name).say(", which is not one of the library's strategies, %s: %s in the mean, at most %s, on ",
				does, times(first.mean), times(first.worst)).loads(first.worstAt).say(".")
			out = append(out, s)
		}
	} else {
		var s sentence
		s.say("None of the library's strategies was measured. ").names(all[0].policy.Name).say(" does best: its mean TTFT "+
			"is %s that of the best policy of each load (geometric mean over %s).",
			times(all[0].mean), count(all[0].loads, "load", "loads"))
		out = append(out, s)
	}
	if rec != nil {
		if s := d.whenCacheAware(rec); s != nil {
			out = append(out, s)
		}
	}
	if len(d.Seeds) < 2 {
		var s sentence
		s.say("One seed only: there are no confidence intervals, and small differences may be chance.")
		out = append(out, s)
	}
	return out
}

// whenCacheAware lists the loads with cache_aware no worse than the recommended
// strategy.
func (d *study) whenCacheAware(rec *standing) sentence {
	var s sentence
	if rec.policy.Name == cacheaware.Name {
		return *s.names(cacheaware.Name).say(" is the right choice here: none of the library's other strategies has a " +
			"better mean over these loads.")
	}
	var good, bad []*load
	var worstAt *load
	worst := 0.0
	for _, w := range d.workloads {
		if len(w.fleets) == 0 {
			continue
		}
		for _, l := range w.fleets[0].loads {
			a, b := l.cell(cacheaware.Name), l.cell(rec.policy.Name)
			if l.winner() == nil || a == nil || b == nil || !positive(a.TTFT.Mean) || !positive(b.TTFT.Mean) {
				continue
			}
			if closeTo(a, b) && !(saturated(a) && !saturated(b)) {
				good = append(good, l)
				continue
			}
			bad = append(bad, l)
			if r := a.TTFT.Mean / b.TTFT.Mean; r > worst {
				worst, worstAt = r, l
			}
		}
	}
	switch {
	case len(good)+len(bad) == 0:
		return nil
	case len(bad) == 0:
		s.names(cacheaware.Name).say(" is the right choice as well: it is as good as ").names(rec.policy.Name).say(
			" at all of these loads.")
	case len(good) == 0:
		s.names(cacheaware.Name).say(" is not the right choice at any of these loads: each time ").names(rec.policy.Name).
			say(" is faster, most on ").loads(worstAt).say(", where it takes %s less time.", fixed(100*(1-1/worst), 0)+"%")
	default:
		s.names(cacheaware.Name).say(" is the right choice for loads like ").loads(good...).say(
			": there it is as good as ").names(rec.policy.Name).
			say(". It is slower on ").loads(bad...).say(" (at most %s, on ", times(worst)).loads(worstAt).say(").")
	}
	return s
}

// words describes one workload.
func (d *study) words(w *workload, rec *standing) (out []sentence) {
	f := w.fleets[0]
	l := f.shown()
	best := l.winner()
	if best == nil {
		var s sentence
		s.say("Every policy is saturated at every load. The times depend on how long the workload lasts, and show no more " +
			"than an order.")
		return []sentence{s}
	}
	var s sentence
	var others []string
	for _, c := range l.best() {
		if c != best && closeTo(c, best) && !saturated(c) {
			others = append(others, c.Policy)
		}
	}
	s.say("At %s", rateName(l.rate, w.Unit))
	if f.gateways > 1 {
		s.say(" and %d gateways", f.gateways)
	}
	s.say(", ").names(best.Policy).say(" is best with a mean TTFT of %s", seconds(best.TTFT.Mean))
	if best.TTFT.Half > 0 {
		s.say(" (±%s)", seconds(best.TTFT.Half))
	}
	if len(others) > 0 {
		verb := "are"
		if len(others) == 1 {
			verb = "is"
		}
		s.say("; as good %s ", verb).names(others...)
	}
	s.say(". The hit share of the best is %s of an ideal %s%s.", fixed(best.HitShare.Mean, 3),
		fixed(best.IdealShare.Mean, 3), percentOf(best))
	out = append(out, s)
	if s := saturation(f); s != nil {
		out = append(out, s)
	}
	if s := lateness(l, best); s != nil {
		out = append(out, s)
	}
	if rec != nil {
		if s := severalGateways(w, l, rec.policy.Name); s != nil {
			out = append(out, s)
		}
	}
	return out
}

func percentOf(c *sim.Cell) string {
	if !positive(c.IdealShare.Mean) || !finite(c.HitShare.Mean) {
		return ""
	}
	return fmt.Sprintf(" (%s%%)", fixed(100*c.HitShare.Mean/c.IdealShare.Mean, 0))
}

// saturation says from which load on which policies are saturated.
func saturation(f *fleet) sentence {
	var s sentence
	before := 0
	for _, l := range f.loads {
		var from []string
		for _, c := range l.cells {
			if f.saturates(c.Policy) == l {
				from = append(from, c.Policy)
			}
		}
		switch {
		case len(from) == 0:
		case before+len(from) == len(l.cells) && len(from) > 1:
			s.say("From %s on all policies are saturated. ", rateName(l.rate, f.work.Unit))
			return s
		default:
			s.say("Saturated from %s on: ", rateName(l.rate, f.work.Unit)).names(from...).say(". ")
		}
		before += len(from)
	}
	if s == nil {
		s.say("No policy is saturated at any load measured.")
	}
	return s
}

// lateness names the best by p99 if it is another one.
func lateness(l *load, best *sim.Cell) sentence {
	least := best
	for _, c := range l.cells {
		if positive(c.P99.Mean) && !saturated(c) && c.P99.Mean < least.P99.Mean {
			least = c
		}
	}
	if least == best || !(best.P99.Mean > 1.05*least.P99.Mean) {
		return nil
	}
	var s sentence
	return *s.say("By the slowest of a hundred (p99), ").names(least.Policy).say(" is best: %s, against %s with ",
		seconds(least.P99.Mean), seconds(best.P99.Mean)).
		names(best.Policy).say(".")
}

// severalGateways reports the cost of sharing nothing for a policy.
func severalGateways(w *workload, one *load, name string) sentence {
	if len(w.fleets) < 2 {
		return nil
	}
	most := w.fleets[len(w.fleets)-1]
	l := most.at(one.rate)
	if l == nil {
		return nil
	}
	a, b, best := one.cell(name), l.cell(name), l.winner()
	if a == nil || b == nil || !positive(a.TTFT.Mean) || !positive(b.TTFT.Mean) {
		return nil
	}
	var s sentence
	s.say("With %d gateways that share nothing, ",
		most.gateways).names(name).say(" takes %s the mean TTFT it has with %d, and its hit share is %s instead of %s.",
		times(b.TTFT.Mean/a.TTFT.Mean), one.fleet.gateways, fixed(b.HitShare.Mean, 3), fixed(a.HitShare.Mean, 3))
	if best != nil && best.Policy != name {
		s.say(" The best there is ").names(best.Policy).say(" with %s.", seconds(best.TTFT.Mean))
	}
	return s
}
