package main

import (
	"fmt"
	"io"
	"strings"
)

const sweepStyle = `svg{font:12px system-ui,sans-serif;background:var(--bg)}text{fill:var(--ink)}.soft{fill:var(--soft)}.big{font-size:14px;font-weight:600}
.w{font-size:10px}.cell{fill:#0b4fb3}.on{fill:#fff}.pick{fill:none;stroke:var(--ink);stroke-width:2.5}
svg{--bg:#fff;--ink:#1b1f24;--soft:#57606a}@media(prefers-color-scheme:dark){svg{--bg:#0d1117;--ink:#e6edf3;--soft:#9198a1}}`

// writeSweep draws one map for each part: the darker, the nearer to the best.
func writeSweep(w io.Writer, all []swept) error {
	const cell, high, left, top, gap = 62, 42, 44, 76, 36
	wide := len(contextWeights)*cell + left + gap
	width, height := len(all)*wide, top+len(missWeights)*high+66
	var b strings.Builder
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img"><title>Mean time to first token over the constants of least_work</title>`,
		width, height, width, height)
	fmt.Fprintf(&b, "<style>%s</style>\n<rect width=\"%d\" height=\"%d\" style=\"fill:var(--bg)\"/>\n", sweepStyle,
		width, height)
	for k, s := range all {
		x0 := k*wide + left
		fmt.Fprintf(&b, `<text class="big" x="%d" y="24">%s: %d scenes, seed %d</text>`, x0, s.part.name, len(s.part.scenes),
			s.part.seed)
		fmt.Fprintf(&b, `<text class="soft" x="%d" y="44">TTFT over the best policy's: geometric mean, worst</text>`, x0)
		for j, c := range contextWeights {
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%g</text>`, x0+j*cell+cell/2, top-8, c)
		}
		for i, m := range missWeights {
			y := top + i*high
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%g</text>`, x0-8, y+high/2+4, m)
			for j, c := range contextWeights {
				v, x := s.scores[variant(m, c)], x0+j*cell
				shade, class := shadeOf(v.mean), ""
				if shade > 0.68 { // white on it has more contrast than ink in light mode
					class = "on"
				}
				fmt.Fprintf(&b, `<rect class="cell" x="%d" y="%d" width="%d" height="%d" fill-opacity="%.2f"/>`, x+1, y+1, cell-2,
					high-2, shade)
				fmt.Fprintf(&b, `<text class="%s" x="%d" y="%d" text-anchor="middle">%.3f</text>`, class, x+cell/2, y+18, v.mean)
				fmt.Fprintf(&b, `<text class="w %s" x="%d" y="%d" text-anchor="middle">%.2f</text>`, class, x+cell/2, y+32, v.worst)
				if m == chosenMiss && c == chosenContext {
					fmt.Fprintf(&b, `<rect class="pick" x="%d" y="%d" width="%d" height="%d"/>`, x+1, y+1, cell-2, high-2)
				}
			}
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, `<text class="soft" x="%d" y="%d">across ContextWeight, down MissWeight; framed: the default</text>`+
		"\n</svg>\n", left, top+len(missWeights)*high+24)
	_, err := io.WriteString(w, b.String())
	return err
}

// shadeOf is 1 at the best possible and falls to 0.05 at 25% above it.
func shadeOf(mean float64) float64 { return max(0.05, 1-4*(mean-1)) }
