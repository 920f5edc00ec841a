package main

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/warmroute/router/debugui"
	"github.com/warmroute/router/internal/workload"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/roundrobin"
)

// story is the demo's, as its page and its tables show it.
type story struct {
	page *debugui.Page // nil: there is none
	all  []*chapter
}

// chapter is one of its measurements. Its methods are safe for concurrent use.
type chapter struct {
	story   *story
	work    *workload.Workload
	title   string
	about   string
	rows    func([]*tally) []debugui.Row
	verdict func([]*tally) string

	mu      sync.Mutex
	columns []debugui.Column
	tallies []*tally // of the columns
	now     int      // the column that runs
	over    bool
	shown   time.Time
}

// tally is the measurements of a column.
type tally struct {
	ttft           []time.Duration // by the engines' clocks
	targets        map[string]int
	prompt, cached int // tokens, as the replicas report them
	answered       int
	retried        int // attempts beyond the first
	cut            int // replies that broke off
	failed         int // requests without a reply
	over           bool
}

// showEvery is the least time between two showings of a chapter that runs.
const showEvery = 200 * time.Millisecond

// chapters returns the demo's story before its begin.
func (d demo) chapters(all, brief, half *workload.Workload) *story {
	s := &story{page: d.live}
	add := func(c *chapter, of int, names ...string) {
		c.story = s
		for _, n := range names {
			c.columns = append(c.columns, debugui.Column{Name: n, Of: of})
			c.tallies = append(c.tallies, &tally{targets: make(map[string]int)})
		}
		s.all = append(s.all, c)
	}
	add(&chapter{
		work: all, title: "Cache-aware routing against round robin",
		about: fmt.Sprintf("The same %d chats through one gateway to %d replicas, first with %s, then with %s, "+
			"each on fresh replicas.",
			len(all.Conversations), d.replicas, roundrobin.Name, leastwork.Name),
		rows:    func(t []*tally) []debugui.Row { return append(comparison(t), byReplica(d.replicas, t)) },
		verdict: won(leastwork.Name),
	}, len(all.Requests), roundrobin.Name, leastwork.Name)
	add(&chapter{
		work: brief, title: "A replica dies and returns",
		about: fmt.Sprintf("%d chats with %s. After a third of the requests %s dies with all of its cache, "+
			"after two thirds it is back.",
			len(brief.Conversations), leastwork.Name, replicaName(1%d.replicas)),
		rows:    func(t []*tally) []debugui.Row { return append(loss(t), byReplica(d.replicas, t)) },
		verdict: survived,
	}, len(brief.Requests)/3, "before", "while it is away", "when it is back")
	add(&chapter{
		work: half, title: fmt.Sprintf("%d gateways, without and with a shared view", d.gateways),
		about: fmt.Sprintf("%d chats with %s, each request through any of %d gateways: alone, each knows only the "+
			"prompts that it sent itself; then they share.",
			len(half.Conversations), leastwork.Name, d.gateways),
		rows:    func(t []*tally) []debugui.Row { return append(comparison(t), byReplica(d.replicas, t)) },
		verdict: won("sharing"),
	}, len(half.Requests), "alone", "sharing")
	return s
}

// present shows the story as it is.
func (s *story) present() {
	if s.page == nil {
		return
	}
	v := debugui.Story{About: "Simulated replicas, real gateways, requests over HTTP. " +
		"Times in these tables are the engines' own: a busy machine changes none of them. " +
		"Times further down are by this machine's clock, and grow if it is late."}
	for _, c := range s.all {
		v.Chapters = append(v.Chapters, c.state())
	}
	s.page.Present(v)
}

// state returns the chapter as it is.
func (c *chapter) state() debugui.Chapter {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := debugui.Chapter{Title: c.title, About: c.about, Columns: slices.Clone(c.columns), Rows: c.rows(c.tallies)}
	if c.over {
		v.Verdict = c.verdict(c.tallies)
	}
	return v
}

// begin runs a column.
func (c *chapter) begin(column int) {
	c.change(func() {
		if c.now != column {
			c.finish()
		}
		c.now = column
		c.columns[column].State = debugui.Running
	})
}

// next ends the column that runs and begins the one behind it.
func (c *chapter) next() {
	c.mu.Lock()
	n := c.now
	c.mu.Unlock()
	if n+1 < len(c.columns) {
		c.begin(n + 1)
	}
}

// finish ends the column that runs.
func (c *chapter) finish() {
	c.columns[c.now].State = debugui.Over
	c.tallies[c.now].over = true
}

// end ends the chapter.
func (c *chapter) end() {
	c.change(func() {
		c.finish()
		c.over = true
	})
}

func (c *chapter) change(f func()) {
	c.mu.Lock()
	f()
	c.shown = time.Now()
	c.mu.Unlock()
	c.story.present()
}

// firstToken counts a time to a first token.
func (c *chapter) firstToken(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tallies[c.now]
	t.ttft = append(t.ttft, d)
}

// count changes the tally of the column that runs, for a request that is over.
func (c *chapter) count(f func(*tally)) {
	c.mu.Lock()
	f(c.tallies[c.now])
	if col := &c.columns[c.now]; col.Done < col.Of {
		col.Done++
	}
	tell := time.Since(c.shown) >= showEvery
	if tell {
		c.shown = time.Now()
	}
	c.mu.Unlock()
	if tell {
		c.story.present()
	}
}

func (t *tally) cachedShare() float64 { return float64(t.cached) / float64(max(t.prompt, 1)) }

func (t *tally) mean() time.Duration {
	var sum time.Duration
	for _, d := range t.ttft {
		sum += d
	}
	return sum / time.Duration(max(len(t.ttft), 1))
}

// quantile is by nearest rank.
func (t *tally) quantile(q float64) time.Duration {
	if len(t.ttft) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(t.ttft))
	return s[min(int(q*float64(len(s))), len(s)-1)]
}

// row returns a row of numbers. better compares the last with the first, when both are over; nil: nothing does. What is
// not measured yet is left empty.
func row(label string, t []*tally, value func(*tally) string, better func(first, last *tally) string) debugui.Row {
	r := debugui.Row{Label: label}
	for _, x := range t {
		v := ""
		if x.answered > 0 {
			v = value(x)
		}
		r.Values = append(r.Values, v)
	}
	if last := t[len(t)-1]; better != nil && last.over {
		r.Better = better(t[0], last)
	}
	return r
}

// less says by how much the second of two costs is less than the first.
func less(first, last float64) string {
	switch {
	case first <= 0 || last <= 0 || first/last > 0.95 && last/first > 0.95:
		return "the same"
	case first > last:
		return fmt.Sprintf("%.1fx better", first/last)
	}
	return fmt.Sprintf("%.1fx worse", last/first)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.0f ms", 1e3*d.Seconds()) }

// grouped writes a number with commas.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func percentOf(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }

// comparison has the rows of a chapter with two columns.
func comparison(t []*tally) []debugui.Row {
	times := func(label string, f func(*tally) time.Duration) debugui.Row {
		return row(label, t, func(t *tally) string { return ms(f(t)) },
			func(a, b *tally) string { return less(f(a).Seconds(), f(b).Seconds()) })
	}
	return []debugui.Row{
		row("cached prompt tokens", t, func(t *tally) string { return percentOf(t.cachedShare()) }, nil),
		row("prompt tokens to compute", t, func(t *tally) string { return grouped(t.prompt - t.cached) },
			func(a, b *tally) string { return less(float64(a.prompt-a.cached), float64(b.prompt-b.cached)) }),
		times("time to first token, mean", (*tally).mean),
		times("p50", func(t *tally) time.Duration { return t.quantile(0.50) }),
		times("p95", func(t *tally) time.Duration { return t.quantile(0.95) }),
	}
}

// loss has the rows of the chapter in which a replica dies.
func loss(t []*tally) []debugui.Row {
	number := func(label string, f func(*tally) int) debugui.Row {
		return row(label, t, func(t *tally) string { return fmt.Sprint(f(t)) }, nil)
	}
	return []debugui.Row{
		number("answered", func(t *tally) int { return t.answered }),
		number("sent again to another replica", func(t *tally) int { return t.retried }),
		number("replies cut off by the death", func(t *tally) int { return t.cut }),
		number("failed", func(t *tally) int { return t.failed }),
		row("cached prompt tokens", t, func(t *tally) string { return percentOf(t.cachedShare()) }, nil),
		row("time to first token, p50", t, func(t *tally) string { return ms(t.quantile(0.5)) }, nil),
	}
}

// byReplica has the requests of each replica, in the order of their names.
func byReplica(n int, t []*tally) debugui.Row {
	return row(fmt.Sprintf("requests of %s to %s", replicaName(0), replicaName(n-1)), t, func(t *tally) string {
		s := ""
		for i := range n {
			s += fmt.Sprintf(" %d", t.targets[replicaName(i)])
		}
		return s[1:]
	}, nil)
}

// won returns the verdict on two columns.
func won(name string) func([]*tally) string {
	return func(t []*tally) string {
		a, b := t[0], t[1]
		tokens := less(float64(a.prompt-a.cached), float64(b.prompt-b.cached))
		first := less(a.mean().Seconds(), b.mean().Seconds())
		if b.prompt-b.cached >= a.prompt-a.cached {
			return fmt.Sprintf("%s did not win: prompt tokens to compute %s, mean time to first token %s.", name, tokens, first)
		}
		return fmt.Sprintf("%s wins: %s of the prompt tokens came from a cache instead of %s. Tokens to compute: %s; "+
			"mean time to first token: %s.", name, percentOf(b.cachedShare()), percentOf(a.cachedShare()), tokens, first)
	}
}

// survived is the verdict on a replica's death.
func survived(t []*tally) string {
	var sum tally
	for _, x := range t {
		sum.answered += x.answered
		sum.retried += x.retried
		sum.cut += x.cut
		sum.failed += x.failed
	}
	v := fmt.Sprintf("%d requests answered, %d failed, %d sent again to another replica", sum.answered, sum.failed,
		sum.retried)
	if sum.cut > 0 {
		v += fmt.Sprintf("; %d cut off in the midst of a reply from the replica that died", sum.cut)
	}
	return v + "."
}
