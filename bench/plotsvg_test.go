package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/warmroute/router/bench/sim"
)

// wellFormed fails if text is no XML.
func wellFormed(t *testing.T, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
}

// TestPlot: a bar for each policy of the first rate, as long as its time; and the drawing in docs is one of these.
func TestPlot(t *testing.T) {
	s := &sim.Study{
		Replicas: 8, Seeds: []uint64{1}, Calibration: sim.Calibration{About: "a <model>"},
		Workloads: []sim.WorkloadInfo{{Name: "w", Unit: "x"}},
		Cells: []sim.Cell{
			{Workload: "w", Rate: 2, Policy: "least_work", TTFT: sim.Interval{Mean: 0.5}},
			{Workload: "w", Rate: 2, Policy: "round_robin", TTFT: sim.Interval{Mean: 2}},
			{Workload: "w", Rate: 3, Policy: "round_robin", TTFT: sim.Interval{Mean: 9}},
		},
	}
	var b bytes.Buffer
	if err := writePlot(&b, s); err != nil {
		t.Fatal(err)
	}
	wellFormed(t, b.String())
	for _, want := range []string{`width="125.0"`, `width="500.0"`, "0.50 s", "2.00 s", "round robin", "w at 2x", "a &lt;model&gt;"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in\n%s", want, b.String())
		}
	}
	if n := strings.Count(b.String(), `class="bar`); n != 2 {
		t.Errorf("%d bars", n)
	}
	committed, err := os.ReadFile("../docs/images/ttft.svg")
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, string(committed))
	if !strings.Contains(string(committed), plotStyle) || strings.Count(string(committed), `class="bar`) < 6 {
		t.Error("docs/images/ttft.svg is an older drawing; make pictures draws it again")
	}
	s.Cells = s.Cells[:1]
	s.Cells[0].TTFT.Mean = 0
	if writePlot(&b, s) == nil {
		t.Error("a plot of nothing")
	}
}
