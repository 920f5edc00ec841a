package main

import (
	"io"
	"strings"
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	tb := &table{log: io.Discard}
	tb.reading("a reading", "%d us", 3)
	tb.check("kept", "<= 2x", true, "%.1fx", 1.5)
	tb.check("missed", "<= 2x", false, "%.1fx", 2.5)
	var b strings.Builder
	if missed := tb.print(&b); missed != 1 {
		t.Errorf("%d budgets missed, want 1", missed)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines:\n%s", len(lines), b.String())
	}
	for i, want := range []string{"what", "a reading", "pass", "FAIL"} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d is %q, want %q in it", i, lines[i], want)
		}
	}
}

func TestQuantiles(t *testing.T) {
	s := newSamples(0)
	s.clock = time.Microsecond
	for i := range 100 {
		s.add(time.Duration(100-i) * time.Microsecond) // 1..100 us, less the clock's one
	}
	for q, want := range map[float64]time.Duration{0: 0, .5: 50, .99: 99} {
		if got := s.p(q); got != want*time.Microsecond {
			t.Errorf("quantile %v: %v, want %v us", q, got, want)
		}
	}
	if got := s.mean(); got != 49500*time.Nanosecond {
		t.Errorf("mean %v", got)
	}
	if got := newSamples(0).p(.5); got != 0 {
		t.Errorf("quantile of nothing: %v", got)
	}
}
