package main

import (
	"fmt"
	"html"
	"io"
	"strings"

	"github.com/warmroute/router/bench/sim"
)

const plotStyle = `svg{font:14px system-ui,sans-serif}text{fill:var(--ink)}.soft{fill:var(--soft);font-size:12px}` +
	`.big{font-size:16px;font-weight:600}.bar{fill:var(--bar)}.ours{fill:var(--ours)}.own{font-weight:600}
svg{--bg:#fff;--ink:#1b1f24;--soft:#57606a;--bar:#c3ccd8;--ours:#b8400f}` +
	`@media(prefers-color-scheme:dark){svg{--bg:#0d1117;--ink:#e6edf3;--soft:#9198a1;--bar:#3d4653;--ours:#f0763f}}`

// plotNames are policies by the names that people know.
var plotNames = map[string]string{
	"lmetric": "LMetric", "dynamo": "Dynamo", "llmd_weighted": "llm-d", "sglang_threshold": "SGLang's router",
	"aibrix": "AIBrix", "vllm_router_threshold": "vLLM router", "round_robin": "round robin",
}

// writePlot draws the mean time to first token of each policy of the first workload and rate, in light and dark.
func writePlot(w io.Writer, s *sim.Study) error {
	var cells []sim.Cell
	for _, c := range s.Cells {
		if c.Workload == s.Cells[0].Workload && c.Rate == s.Cells[0].Rate && c.Gateways == s.Cells[0].Gateways {
			cells = append(cells, c)
		}
	}
	const left, right, high, top, width = 150, 110, 30, 68, 760
	most := 0.0
	for _, c := range cells {
		most = max(most, c.TTFT.Mean)
	}
	if most == 0 {
		return fmt.Errorf("nothing to plot")
	}
	height := top + len(cells)*high + 34
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`, width,
		height, width, height)
	about := ""
	for _, i := range s.Workloads {
		if i.Name == cells[0].Workload {
			about = i.Name + " at " + fmt.Sprintf("%g%s", cells[0].Rate, i.Unit)
		}
	}
	title := "Mean time to first token: " + about
	fmt.Fprintf(&b, "<title>%s</title><style>%s</style>\n", html.EscapeString(title), plotStyle)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" style="fill:var(--bg)"/>`, width, height)
	fmt.Fprintf(&b, `<text class="big" x="16" y="28">%s</text>`, html.EscapeString(title))
	fmt.Fprintf(&b, `<text class="soft" x="16" y="48">%d simulated replicas: %s; %d seeds; less is better</text>`+"\n",
		s.Replicas, html.EscapeString(s.Calibration.About), len(s.Seeds))
	scale := float64(width-left-right) / most
	for i, c := range cells {
		y, name, class, own := top+i*high, c.Policy, "bar", ""
		if n, ok := plotNames[name]; ok {
			name = n
		} else {
			class, own = "bar ours", ` class="own"`
		}
		fmt.Fprintf(&b, `<text%s x="%d" y="%d" text-anchor="end">%s</text>`, own, left-10, y+20, html.EscapeString(name))
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>`, class, left, y+4,
			c.TTFT.Mean*scale, high-8)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%.2f s</text>`+"\n", float64(left)+c.TTFT.Mean*scale+8, y+20, c.TTFT.Mean)
	}
	fmt.Fprintf(&b, `<text class="soft" x="16" y="%d">%s</text>`+"\n</svg>\n", height-14,
		html.EscapeString("the other routers' published rules, in the same simulator: bench/RESULTS.md"))
	_, err := io.WriteString(w, b.String())
	return err
}
