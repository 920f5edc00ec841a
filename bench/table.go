package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/warmroute/router/bench/sim"
	"github.com/warmroute/router/bench/trace"
)

// printStudy prints a table for each workload, number of gateways and rate, the
// policy with the least mean time to first token first.
func printStudy(out io.Writer, s *sim.Study, notes map[cellKey]string) {
	fmt.Fprintf(out, "%s\n%d replicas of %s: %s\n", s.Command, s.Replicas, s.Calibration.Name, s.Calibration.About)
	fmt.Fprintf(out, "%d seeds; ± is the 95%% confidence interval of the mean over them (Student's t); times in seconds\n",
		len(s.Seeds))
	for _, w := range s.Workloads {
		fmt.Fprintf(out, "\n%s: %s\n", w.Name, w.About)
		for from := 0; from < len(s.Cells); {
			c := &s.Cells[from]
			to := from + 1
			for to < len(s.Cells) && s.Cells[to].Workload == c.Workload && s.Cells[to].Rate == c.Rate &&
				s.Cells[to].Gateways == c.Gateways {
				to++
			}
			if c.Workload == w.Name {
				printRate(out, w, s.Cells[from:to], notes)
			}
			from = to
		}
	}
}

func printRate(out io.Writer, w sim.WorkloadInfo, cells []sim.Cell, notes map[cellKey]string) {
	cells = slices.Clone(cells)
	slices.SortStableFunc(cells, func(a, b sim.Cell) int { return cmp.Compare(a.TTFT.Mean, b.TTFT.Mean) })
	fmt.Fprintf(out, "\n%s %g %s", w.Name, cells[0].Rate, w.Unit)
	if g := cells[0].Gateways; g > 1 {
		fmt.Fprintf(out, ", %d gateways", g)
	}
	fmt.Fprintf(out, "; ideal hit share %.3f, in the fleet's memory pooled %.3f\n", cells[0].IdealShare.Mean,
		cells[0].PooledShare.Mean)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "policy\tTTFT mean\tp50\tp90\tp99\tto the end\thits\tideal\trequests max/mean\ttokens max/mean\t\t")
	for _, c := range cells {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.3f\t%.2f\t%.2f\t%s\t\n", c.Policy, interval(c.TTFT, 3),
			short(c.P50.Mean), short(c.P90.Mean),
			short(c.P99.Mean), short(c.E2E.Mean), interval(c.HitShare, 3), c.IdealShare.Mean, c.MaxMean.Mean,
			c.MaxMeanTokens.Mean, remarks(&c, notes[keyOf(&c)]))
	}
	t.Flush()
}

func interval(i sim.Interval, digits int) string {
	return fmt.Sprintf("%.*f ±%.*f", digits, i.Mean, digits, i.Half)
}

// short prints seconds with three figures at the most.
func short(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

func remarks(c *sim.Cell, note string) string {
	var r []string
	if c.Saturated > 0 {
		r = append(r, fmt.Sprintf("saturated in %d of %d", c.Saturated, len(c.Runs)))
	}
	for _, x := range []struct {
		n    int
		what string
	}{{c.Lost, "lost"}, {c.Broken, "broken off"}, {c.Rejected, "too long"}} {
		if x.n > 0 {
			r = append(r, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	if note != "" {
		r = append(r, note)
	}
	return strings.Join(r, ", ")
}

// named is a comparison with the names of its sides.
type named struct {
	sim.Paired
	a, b string
}

func printPaired(out io.Writer, ps []named) {
	fmt.Fprintf(out, "\nmean TTFT, paired. By seed: Student's paired t-test. By request: 95%% interval of the mean "+
		"difference from a\n"+
		"bootstrap of runs of 200 requests that follow each other; faster and slower count pairs that differ by 1%% or "+
		"more.\n")
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "workload\trate\tgateways\tfrom\tagainst\ts\ts\tratio\tdifference by seed\tp\tby "+
		"request\tfaster\tslower\t")
	for _, p := range ps {
		ratio := "-"
		if p.B > 0 {
			ratio = fmt.Sprintf("%.3f", p.A/p.B)
		}
		request := "-"
		if p.BootstrapSamples > 0 {
			request = fmt.Sprintf("%.3f to %.3f", p.Low, p.High)
		}
		fmt.Fprintf(t, "%s\t%g\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%.4f\t%s\t%.0f%%\t%.0f%%\t\n", p.Workload, p.Rate,
			p.Gateways, p.a, p.b,
			short(p.A), short(p.B), ratio, interval(p.Difference, 3), p.P, request, 100*p.Faster, 100*p.Slower)
	}
	t.Flush()
}

// list prints the choices.
func list(out io.Writer, data string) error {
	fmt.Fprintln(out, "workloads:")
	for _, s := range append(trace.Generated(), trace.Recorded(data)...) {
		fmt.Fprintf(out, "  %-22s %v %s: %s\n", s.Name, s.Rates, s.Unit, s.About)
	}
	fmt.Fprintln(out, "policies:")
	for _, p := range policies() {
		fmt.Fprintf(out, "  %-22s %s\n", p.Name, p.About)
	}
	fmt.Fprintln(out, "calibrations:")
	for _, c := range sim.Calibrations() {
		fmt.Fprintf(out, "  %-22s %s\n", c.Name, c.About)
	}
	return nil
}

// fields splits s at sep, without blanks around the parts and without empty ones.
func fields(s string, sep rune) []string {
	out := strings.FieldsFunc(s, func(r rune) bool { return r == sep })
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}
