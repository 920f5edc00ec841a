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

// progress shows how far a phase is: a bar on a terminal, a line for each
// quarter elsewhere. Its methods are safe for concurrent use.
type progress struct {
	mu    sync.Mutex
	out   io.Writer
	label string
	bar   *progressbar.ProgressBar // nil where there is no terminal
	start time.Time
	total int
	n     int
}

func newProgress(out io.Writer, label string, total int) *progress {
	p := &progress{out: out, label: label, total: total, start: time.Now()}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(out),
			progressbar.OptionSetDescription(fmt.Sprintf("%-12s", label)),
			progressbar.OptionSetWidth(30),
			progressbar.OptionShowCount(),
			progressbar.OptionThrottle(50*time.Millisecond),
			progressbar.OptionSetRenderBlankState(true))
	}
	return p
}

// step tells that one more request is done.
func (p *progress) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	if p.bar != nil {
		_ = p.bar.Add(1) // a terminal that is gone is no reason to stop
		return
	}
	if p.n*4/p.total != (p.n-1)*4/p.total {
		fmt.Fprintf(p.out, "%-12s %5d of %d requests, %.1f s\n", p.label, p.n, p.total, time.Since(p.start).Seconds())
	}
}

// end leaves the line of the bar.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		fmt.Fprintln(p.out)
	}
}
