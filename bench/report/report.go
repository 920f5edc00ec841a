// Package report writes a study as one HTML page that needs nothing else: no
// script, no font, no picture from elsewhere.
package report

import (
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/warmroute/router/bench/sim"
)

// Bounds of a page. The page omits everything beyond them, and reports it.
const (
	maxWorkloads = 24
	maxFleets    = 12   // numbers of gateways of a workload
	maxLoads     = 40   // in one plot
	maxDrawn     = 24   // policies in one plot
	maxRanked    = 200  // policies in the summary
	maxRows      = 3000 // of all full tables
	maxName      = 80   // runes
	maxAbout     = 600
	maxCommand   = 4000
)

//go:embed page.gohtml
var pageSource string

//go:embed page.css
var cssSource string

var pageTemplate = template.Must(template.New("page").Parse(pageSource))

// Write writes s as a page. It returns the error of w, and an error if s is
// nil. The page of a study without cells says so.
func Write(w io.Writer, s *sim.Study) error {
	if s == nil {
		return errors.New("report: no study")
	}
	p := newPage(indexOf(s))
	if err := pageTemplate.Execute(w, p); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

type page struct {
	Title, Command, Seeds string
	Facts                 []string
	CSS                   template.CSS
	Findings              []sentence
	Overview, Ranking     table
	Sections              []section
	Policies              []*policy
	Omitted               []string
}

type section struct {
	ID, Name, About string
	Words           []sentence
	Key             []*policy
	Figures         []figure
	One             bool   // there is one load only
	At              string // the load of Figures after the first ones, and of Panels
	Spread          []figure
	Panels          []panel
	Gateways        []figure
	Tables          []table
	Note            string
}

// drawn are the workloads on the page.
func (d *study) drawn() []*workload {
	var out []*workload
	for _, w := range d.workloads {
		if len(w.fleets) > 0 && len(out) < maxWorkloads {
			out = append(out, w)
		}
	}
	return out
}

func newPage(d *study) *page {
	p := &page{Title: "Routing policies compared", Command: clip(d.Command, maxCommand), Seeds: seedList(d.Seeds)}
	all, loads := d.standings()
	rec := recommended(all)
	ws := d.drawn()
	measured := 0
	for _, w := range d.workloads {
		measured += truth(len(w.fleets) > 0)
	}
	if n := measured - len(ws); n > 0 {
		p.Omitted = append(p.Omitted, fmt.Sprintf("%d more workloads are left out to keep the page small.", n))
	}
	if d.repeated > 0 {
		p.Omitted = append(p.Omitted, count(d.repeated, "cell that repeats another one is", "cells that repeat others are")+
			" left out.")
	}
	p.Facts = []string{
		count(len(ws), "workload", "workloads"), count(len(d.policies), "policy", "policies"),
		count(d.Replicas, "replica", "replicas"), count(len(d.Seeds), "seed", "seeds"),
	}
	if c := d.Calibration; c.Name != "" {
		p.Facts = append(p.Facts, clip(c.Name, maxName)+": "+clip(c.About, maxAbout))
	}
	if len(ws) > 0 {
		p.Findings = d.findings(all, loads)
		p.Overview = d.overview(rec)
		p.Ranking = d.ranking(all, loads)
	}
	p.Policies = d.policies[:min(len(d.policies), maxRanked)]
	left := maxRows
	for i, w := range ws {
		p.Sections = append(p.Sections, d.section(fmt.Sprintf("w%d", i), w, rec, &left))
	}
	p.CSS = css(min(len(d.policies), maxRanked))
	return p
}

// css is the page's own rules, the colours, and for each policy those by which its
// key brings it forward.
func css(policies int) template.CSS {
	var b strings.Builder
	fmt.Fprintf(&b, ":root{color-scheme:light dark;%s}\n@media screen and (prefers-color-scheme:dark){:root{%s}}\n",
		light.css(), dark.css())
	for i := range light.series {
		fmt.Fprintf(&b, ".c%d{--c:var(--c%d)}", i, i)
	}
	b.WriteByte('\n')
	b.WriteString(cssSource)
	for i := range policies {
		// The key in focus or under the pointer, ticked, or the line itself.
		fmt.Fprintf(&b, ".w:has(.k%[1]d:hover,.k%[1]d :focus-visible,.k%[1]d :checked,svg .p%[1]d:hover) "+
			".p%[1]d{--dim:1;--up:1}\n", i)
	}
	return template.CSS(b.String()) // integers and our own constants only
}

// chosen are the policies that plots show: all, or the emphasised ones and those
// that do best at load l.
func (d *study) chosen(l *load) (out []*policy) {
	for _, c := range l.best() {
		out = append(out, d.byName[c.Policy])
	}
	slices.SortStableFunc(out, func(a, b *policy) int { return truth(b.Own) - truth(a.Own) })
	return out[:min(len(out), maxDrawn)]
}

func (d *study) section(id string, w *workload, rec *standing, left *int) section {
	f := w.fleets[0]
	l := f.shown()
	s := section{ID: id, Name: clip(w.Name, maxName), About: clip(w.About, maxAbout), Words: d.words(w, rec),
		At: rateName(l.rate, w.Unit), One: len(f.loads) == 1}
	chosen := d.chosen(l)
	if n := len(l.cells) - len(chosen); n > 0 {
		s.Note = fmt.Sprintf("The plots show %d policies; %d more are in the tables only.", len(chosen), n)
	}
	s.Key = slices.Clone(chosen)
	slices.SortStableFunc(s.Key, func(a, b *policy) int { return a.Index - b.Index })
	s.Figures = d.overLoad(id, f, chosen)
	var cells []*sim.Cell
	for _, c := range l.best() {
		if slices.Contains(chosen, d.byName[c.Policy]) {
			cells = append(cells, c)
		}
	}
	s.Spread = []figure{
		replicas(id+"-requests", "Requests of each replica", "requests", d, cells,
			func(r *sim.Replica) float64 { return float64(r.Requests) },
			func(c *sim.Cell) sim.Interval { return c.MaxMean }),
		replicas(id+"-tokens", "Computed prompt tokens of each replica", "tokens", d, cells,
			func(r *sim.Replica) float64 { return float64(r.Prefilled) },
			func(c *sim.Cell) sim.Interval { return c.MaxMeanTokens }),
	}
	s.Panels = timelines(id+"-time", d, cells)
	if len(w.fleets) > 1 {
		s.Gateways = d.overGateways(id, w, l, chosen)
	}
	for i, f := range w.fleets {
		if i == maxFleets {
			s.Note += fmt.Sprintf(" %d more numbers of gateways are left out to keep the page small.", len(w.fleets)-i)
			break
		}
		for _, l := range f.loads {
			t := d.full(l, left)
			if len(t.Rows) > 0 {
				t.Open = i == 0
				s.Tables = append(s.Tables, t)
			} else if !strings.HasSuffix(s.Note, "tables.") {
				s.Note += " Some tables are left out to keep the page small: -json has all of the tables."
			}
		}
	}
	s.Note = strings.TrimSpace(s.Note)
	return s
}
