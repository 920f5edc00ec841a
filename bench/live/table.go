package main

import (
	"fmt"
	"io"
	"slices"
	"unicode/utf8"
)

// tally has the counts of the requests of a phase or of a run.
type tally struct {
	requests, judged, exact int
	first                   int // of requests: at the first engine
	over, under             int // of judged: predicted too much, too little
	cached, tokens          int // as reported
	causes                  map[cause]int
	reasons                 map[string]int // of those not judged
}

func (t *tally) add(x *exchange, c cause) {
	t.requests++
	t.cached += x.reported
	t.tokens += len(x.tokens)
	switch {
	case !x.judged():
		if t.reasons == nil {
			t.reasons = make(map[string]int)
		}
		t.reasons[x.reason]++
		return
	case x.exact():
		t.exact++
	case x.predicted > x.reported:
		t.over++
	default:
		t.under++
	}
	t.judged++
	if !x.exact() {
		if t.causes == nil {
			t.causes = make(map[cause]int)
		}
		t.causes[c]++
	}
}

// share is a part of a whole in percent, "-" of nothing.
func share(part, whole int) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(whole))
}

// enough reports whether at least 99% of the judged predictions are exact. It is
// false if none was judged.
func (t *tally) enough() bool { return t.judged > 0 && 100*t.exact >= 99*t.judged }

func (t *tally) row(name string) []string {
	return []string{name, fmt.Sprint(t.requests), fmt.Sprintf("%d + %d", t.first, t.requests-t.first),
		fmt.Sprint(t.judged), fmt.Sprint(t.exact), share(t.exact, t.judged),
		fmt.Sprint(t.over), fmt.Sprint(t.under), share(t.cached, t.tokens)}
}

var phaseHead = []string{"phase", "requests", "at each engine", "judged", "exact", "share", "too much", "too little",
	"tokens cached"}

// writeTable writes lines of equally many cells as Markdown, the first one its
// head.
func writeTable(w io.Writer, lines [][]string) {
	width := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, c := range line {
			width[i] = max(width[i], utf8.RuneCountInString(c), 3)
		}
	}
	for n, line := range lines {
		for i, c := range line {
			fmt.Fprintf(w, "| %-*s ", width[i], c)
		}
		fmt.Fprintln(w, "|")
		if n == 0 {
			for _, k := range width {
				fmt.Fprintf(w, "| %s ", fill('-', k))
			}
			fmt.Fprintln(w, "|")
		}
	}
}

func fill(r rune, n int) string { return string(slices.Repeat([]rune{r}, n)) }
