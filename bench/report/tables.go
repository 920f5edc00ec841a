package report

import (
	"fmt"
	"strings"

	"github.com/warmroute/router/bench/sim"
	"github.com/warmroute/router/strategy/cacheaware"
)

// table is one of the page's tables.
type table struct {
	Caption string
	Open    bool
	Head    []head
	Rows    []tableRow
	Note    string
}

type tableRow struct {
	Index int // of a policy, -1: none
	Own   bool
	Name  string
	Cells []cellText
}

// head is a column's name. Words are aligned left.
type head struct {
	S     string
	Words bool
}

func heads(names ...string) (out []head) {
	for _, n := range names {
		s, words := strings.CutPrefix(n, "<")
		out = append(out, head{s, words})
	}
	return out
}

// cellText is a value and the small text next to it. Words are aligned left.
type cellText struct {
	S, Small string
	Words    bool
}

// interval prints v with so many decimals, followed by its interval.
func interval(v sim.Interval, digits int) cellText {
	c := cellText{S: fixed(v.Mean, digits)}
	if v.Half != 0 {
		c.Small = "±" + fixed(v.Half, digits)
	}
	return c
}

func timeCell(v sim.Interval) cellText { return interval(v, digits(v.Mean)) }

var fullHead = heads("Policy", "TTFT mean, s", "p50, s", "p90, s", "p99, s", "To the end, s", "Hit share",
	"Ideal", "Pooled",
	"Requests max/mean", "Tokens max/mean", "Requests", "<Remarks")

// full is the table of everything that was measured at a load, the best first.
func (d *study) full(l *load, left *int) table {
	w := l.fleet.work
	t := table{Head: fullHead, Caption: l.name()}
	if len(w.fleets) > 1 || l.fleet.gateways > 1 {
		t.Caption += ", " + count(l.fleet.gateways, "gateway", "gateways")
	}
	cells := l.best()
	if n := max(0, *left); len(cells) > n {
		t.Note = fmt.Sprintf("%d more rows are left out to keep the page small.", len(cells)-n)
		cells = cells[:n]
	}
	*left -= len(cells)
	for _, c := range cells {
		p := d.byName[c.Policy]
		t.Rows = append(t.Rows, tableRow{Index: p.Index, Own: p.Own, Name: clip(c.Policy, maxName), Cells: []cellText{
			timeCell(c.TTFT), timeCell(c.P50), timeCell(c.P90), timeCell(c.P99), timeCell(c.E2E),
			interval(c.HitShare, 3), interval(c.IdealShare, 3), interval(c.PooledShare, 3),
			interval(c.MaxMean, 2), interval(c.MaxMeanTokens, 2),
			{S: whole(c.Requests)}, {S: remarks(c), Words: true},
		}})
	}
	return t
}

func remarks(c *sim.Cell) string {
	var r []string
	if c.Saturated > 0 {
		r = append(r, fmt.Sprintf("saturated in %d of %d", c.Saturated, len(c.Runs)))
	}
	for _, x := range []struct {
		n    int
		what string
	}{{c.Lost, "lost"}, {c.Broken, "broken off"}, {c.Rejected, "too long"}, {c.Preempted, "preempted"}} {
		if x.n > 0 {
			r = append(r, whole(x.n)+" "+x.what)
		}
	}
	return strings.Join(r, ", ")
}

// overview has a row for each workload.
func (d *study) overview(rec *standing) table {
	t := table{Caption: "Each workload at the greatest load with which a policy keeps up; a ratio is that of mean TTFT " +
		"to the best one's",
		Head: heads("Workload", "Load", "<Best", "Mean TTFT, s", "Hit share", "Ideal")}
	var compared []string
	if rec != nil {
		compared = append(compared, rec.policy.Name)
	}
	for _, name := range []string{cacheaware.Name, "round_robin"} {
		if d.byName[name] != nil && (rec == nil || name != rec.policy.Name) {
			compared = append(compared, name)
		}
	}
	for _, n := range compared {
		t.Head = append(t.Head, head{S: clip(n, maxName)})
	}
	t.Head = append(t.Head, head{S: "Saturated there"})
	for _, w := range d.drawn() {
		l := w.fleets[0].shown()
		best := l.winner()
		r := tableRow{Index: -1, Name: clip(w.Name, maxName)}
		name, from := "none keeps up", l.best()[0]
		if best != nil {
			name, from = clip(best.Policy, maxName), best
		}
		r.Cells = []cellText{{S: rateName(l.rate, w.Unit)}, {S: name, Words: true}, timeCell(from.TTFT),
			interval(from.HitShare, 3), interval(from.IdealShare, 3)}
		for _, n := range compared {
			s := "–"
			if c := l.cell(n); c != nil && positive(from.TTFT.Mean) && positive(c.TTFT.Mean) {
				s = times(c.TTFT.Mean / from.TTFT.Mean)
			}
			r.Cells = append(r.Cells, cellText{S: s})
		}
		n := 0
		for _, c := range l.cells {
			n += truth(saturated(c))
		}
		r.Cells = append(r.Cells, cellText{S: fmt.Sprintf("%d of %d", n, len(l.cells))})
		t.Rows = append(t.Rows, r)
	}
	return t
}

// ranking has a row for each policy.
func (d *study) ranking(all []standing, loads int) table {
	t := table{Caption: fmt.Sprintf("Policies by their mean TTFT over that of the best one, over %s at which some "+
		"policy keeps up", count(loads, "load", "loads")),
		Head: heads("Policy", "Geometric mean", "Worst", "<Where", "Among the best", "<Saturated from")}
	for i, s := range all {
		if i == maxRanked {
			t.Note = fmt.Sprintf("%d more policies are left out to keep the page small.", len(all)-i)
			break
		}
		r := tableRow{Index: s.policy.Index, Own: s.policy.Own, Name: clip(s.policy.Name, maxName)}
		where := "–"
		if s.worstAt != nil {
			where = s.worstAt.name()
		}
		from := joined(s.saturates, 4)
		if from == "" {
			from = "–"
		}
		r.Cells = []cellText{{S: times(s.mean)}, {S: times(s.worst)}, {S: where, Words: true},
			{S: fmt.Sprintf("%d of %d", s.close, s.loads)}, {S: from, Words: true}}
		t.Rows = append(t.Rows, r)
	}
	return t
}
