package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// redrawEvery is the least time between two drawings of a bar.
const redrawEvery = 50 * time.Millisecond

// progress shows how far a phase is: a bar on a terminal, a line for each
// quarter elsewhere. Its methods are safe for concurrent use.
type progress struct {
	out   io.Writer
	label string
	bar   bool
	total int
	start time.Time

	mu    sync.Mutex // guards the fields below
	n     int
	drawn time.Time
}

func newProgress(out io.Writer, label string, total int) *progress {
	return &progress{out: out, label: label, bar: isTerminal(out), total: total, start: time.Now()}
}

// isTerminal reports whether out is a character device: a terminal, or a device
// that loses nothing by a bar.
func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// step records that one more request is done.
func (p *progress) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	switch now := time.Now(); {
	case p.bar && (now.Sub(p.drawn) >= redrawEvery || p.n == p.total):
		p.drawn = now
		p.draw()
	case !p.bar && p.n*4/p.total != (p.n-1)*4/p.total:
		fmt.Fprintf(p.out, "%-20s %5d of %d requests, %.1f s\n", p.label, p.n, p.total, now.Sub(p.start).Seconds())
	}
}

// draw writes the bar over the line's former text. The caller holds mu.
func (p *progress) draw() {
	const width = 30
	fmt.Fprintf(p.out, "\r%-20s [%-*s] %d of %d", p.label, width, strings.Repeat("=", width*p.n/p.total), p.n, p.total)
}

// end leaves the line of the bar.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar {
		fmt.Fprintln(p.out)
	}
}
