package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// rows are the lines of the table.
var rows = []struct {
	what   string
	format string
	metric int
	ratio  bool // the second table has it
}{
	{"added to a reply, 1 client, p50, ms", "%.2f", mAdded, true},
	{"requests/s, 16 clients", "%.0f", mRate16, true},
	{"requests/s, 64 clients", "%.0f", mRate64, true},
	{"CPU a request, 16 clients, us", "%.0f", mCPU16, true},
	{"CPU a request, 64 clients, us", "%.0f", mCPU64, true},
	{"cached bytes, share", "%.3f", mCached, false},
	{"requests, max/mean", "%.3f", mMaxMean, false},
	{"turns that stay, share", "%.3f", mStayed, false},
	{"memory, MB resident at most", "%.0f", mRSS, false},
	{"end of a reply in one write, p50, ms", "%.2f", mEnd50, false},
	{"- p99", "%.2f", mEnd99, false},
	{"- p50, acknowledged at once", "%.2f", mEndQuick, false},
	{"end of a reply by events, added, p50, ms", "%.2f", mEvents, false},
	{"- acknowledged at once", "%.2f", mEventsQuick, false},
	{"longest silence in it, p50, ms", "%.2f", mSilence, false},
	{"- acknowledged at once", "%.2f", mSilenceQuick, false},
	{"- from an engine directly", "%.2f", mSilenceDirect, false},
	{"from start to ready, s", "%.1f", mStart, false},
}

// printTables writes, as Markdown, the medians over the rounds, the ratios to the
// first router, each of one round, and how far the rounds are apart.
func printTables(w io.Writer, all []peer, results []result) {
	head := func(s string) []string {
		line := []string{s}
		for _, p := range all {
			line = append(line, p.name)
		}
		return line
	}
	versions := []string{"version"}
	for _, p := range all {
		versions = append(versions, p.version)
	}
	medians := [][]string{head("median of the rounds"), versions}
	over := [][]string{head("over " + all[0].name + ", in the same round")}
	spread := [][]string{head("least to greatest")}
	for _, row := range rows {
		m, o, s := []string{row.what}, []string{row.what}, []string{row.what}
		for _, r := range results {
			var v []float64
			for _, f := range r.runs {
				if x := f.values[row.metric]; !math.IsNaN(x) {
					v = append(v, x)
				}
			}
			slices.Sort(v)
			m = append(m, cell(row.format, v, middle(v)))
			s = append(s, cell(row.format+" to "+row.format, v, least(v), greatest(v)))
			q := relative(r, results[0], row.metric)
			o = append(o, cell("%.2f", q, middle(q)))
		}
		medians, spread = append(medians, m), append(spread, s)
		if row.ratio {
			over = append(over, o)
		}
	}
	for i, t := range [][][]string{medians, over, spread} {
		if i > 0 {
			fmt.Fprintln(w)
		}
		writeMarkdown(w, t)
	}
	fmt.Fprintln(w)
}

// relative returns, sorted, a's figures over b's of the rounds that both have.
func relative(a, b result, metric int) []float64 {
	var out []float64
	for _, x := range a.runs {
		for _, y := range b.runs {
			if q := x.values[metric] / y.values[metric]; x.round == y.round && y.values[metric] > 0 && !math.IsNaN(q) {
				out = append(out, q)
			}
		}
	}
	slices.Sort(out)
	return out
}

// middle returns the median of sorted figures, 0 of none.
func middle(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func least(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	return v[0]
}

func greatest(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	return v[len(v)-1]
}

// cell formats figures that come from those of of.
func cell(format string, of []float64, figures ...any) string {
	if len(of) == 0 {
		return "-"
	}
	return fmt.Sprintf(format, figures...)
}

// writeMarkdown writes lines of equally many cells as a table, the first one its
// head, in columns that line up.
func writeMarkdown(w io.Writer, lines [][]string) {
	width := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, c := range line {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	put := func(line []string) {
		for i, c := range line {
			fmt.Fprintf(w, "| %-*s ", width[i], c)
		}
		fmt.Fprintln(w, "|")
	}
	put(lines[0])
	rule := make([]string, len(width))
	for i, n := range width {
		rule[i] = strings.Repeat("-", n)
	}
	put(rule)
	for _, line := range lines[1:] {
		put(line)
	}
}
