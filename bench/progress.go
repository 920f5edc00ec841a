package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress reports the number of finished runs: by a bar on a terminal, by a
// line for each tenth elsewhere. It is safe for concurrent use.
type progress struct {
	out   io.Writer
	label string
	total int
	bar   *progressbar.ProgressBar // nil if there is no terminal
	start time.Time

	mu   sync.Mutex
	done int
}

func newProgress(out io.Writer, label string, total int) *progress {
	p := &progress{out: out, label: label, total: total, start: time.Now()}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(out),
			progressbar.OptionSetDescription(label),
			progressbar.OptionSetWidth(40),
			progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetRenderBlankState(true))
	}
	return p
}

func (p *progress) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	switch {
	case p.bar != nil:
		_ = p.bar.Add(1) // a terminal that went away is no reason to stop
	case p.done*10/p.total != (p.done-1)*10/p.total:
		fmt.Fprintf(p.out, "%s: %d of %d runs, %.0f s\n", p.label, p.done, p.total, time.Since(p.start).Seconds())
	}
}

// end leaves the bar's line.
func (p *progress) end() {
	if p.bar != nil {
		fmt.Fprintln(p.out)
	}
}
