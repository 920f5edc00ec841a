package routertest_test

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy"
)

// naive is a strategy with a memory, as plain as can be: the target that was
// sent most of the prompt, among equals the least loaded. The faults that it can
// be given are those that the kit has to catch.
type naive struct {
	rand func() uint64
	bug  bug

	mu   sync.Mutex
	sent map[place][]string
	kept []router.Target
}

type place struct{ scope, id string }

type memo struct {
	at   place
	text string
	sent bool
	done bool
}

type bug string

const (
	sound          bug = ""
	takesAny       bug = "takes targets that are not Ready"
	ownErrors      bug = "returns errors of its own"
	givesUp        bug = "fails though one is Ready"
	changesTarget  bug = "returns the target with its load counted"
	overcounts     bug = "more cached than there is"
	losesPrompt    bug = "forgets the prompt"
	firstOfTies    bug = "takes the first of equals"
	lastIDOfTies   bug = "takes the greatest ID of equals"
	sorts          bug = "sorts the offered slice"
	appends        bug = "appends behind the offered slice"
	keeps          bug = "reads the last slice again"
	blamesContext  bug = "returns garbage under a done context"
	trustsWeights  bug = "sums weights and counts on it"
	needsMemo      bug = "panics without a memo"
	learnsUnsent   bug = "learns at the final stage"
	learnsZero     bug = "learns from no stage"
	takesBackTwice bug = "takes back as often as told"
	mixesScopes    bug = "does not look at the scope"
	joinsScopes    bug = "joins the scope without lengths"
	losesNotReady  bug = "explains Ready ones only"
	overwritesDst  bug = "writes over dst"
	scoresBeyond   bug = "scores beyond 1"
	scoresOther    bug = "scores the worst best"
	explainsOther  bug = "explains another choice"
	drawsToExplain bug = "draws while it explains"
	preparesOther  bug = "picks another if it prepared"
	forgetsNothing bug = "forgets nothing"
	forgetsAll     bug = "forgets all"
)

func newNaive(b bug) func(func() uint64) router.Strategy {
	return func(rand func() uint64) router.Strategy {
		return &naive{rand: rand, bug: b, sent: make(map[place][]string)}
	}
}

func (n *naive) scope(p *router.Prompt) string {
	switch n.bug {
	case mixesScopes:
		return ""
	case joinsScopes:
		return p.Model + p.Adapter + p.Salt
	}
	return p.Scope()
}

// cached is called with the lock held.
func (n *naive) cached(p *router.Prompt, id string) int {
	best := 0
	for _, text := range n.sent[place{n.scope(p), id}] {
		i := 0
		for i < len(text) && i < len(p.Text) && text[i] == p.Text[i] {
			i++
		}
		best = max(best, i)
	}
	return best
}

func (n *naive) judge(p *router.Prompt, ts []router.Target) (strategy.Summary, []int) {
	cached := make([]int, len(ts))
	for i := range ts {
		cached[i] = n.cached(p, ts[i].ID)
	}
	return strategy.Scan(ts), cached
}

func (n *naive) Pick(ctx context.Context, p router.Prompt, ts []router.Target) (router.Decision, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch n.bug {
	case sorts:
		slices.SortFunc(ts, func(a, b router.Target) int { return strings.Compare(a.ID, b.ID) })
	case appends:
		_ = append(ts, router.Target{ID: "mine"})
	case keeps:
		if len(n.kept) > 0 && n.kept[0].Load.InFlight > 100 {
			n.rand()
		}
		n.kept = ts
	case blamesContext:
		if ctx.Err() != nil {
			return router.Decision{}, nil
		}
	}
	s, cached := n.judge(&p, ts)
	if n.bug == takesAny && len(ts) > 0 && ts[0].State == router.Draining {
		return strategy.NewDecision(p, &ts[0], router.ReasonCold), nil
	}
	if s.Ready == 0 {
		if n.bug == ownErrors {
			return router.Decision{}, context.DeadlineExceeded
		}
		return router.Decision{}, strategy.NoTarget(ts)
	}
	if n.bug == givesUp && s.Ready == 1 {
		return router.Decision{}, strategy.NoTarget(ts)
	}
	tie := strategy.Tie{Seed: n.rand()}
	if n.bug == trustsWeights {
		x, sum := float64(tie.Seed>>11)/(1<<53), 0.0
		for i := range ts {
			sum += ts[i].Weight
		}
		i := 0
		for x -= ts[0].Weight / sum; !(x < 0); x -= ts[i].Weight / sum {
			i++
		}
		return strategy.NewDecision(p, &ts[i], router.ReasonRandom), nil
	}
	best := -1
	for i := range ts {
		if ts[i].State != router.Ready {
			continue
		}
		c := -1
		if best >= 0 {
			c = n.compare(&s, ts, cached, i, best)
		}
		switch {
		case c < 0:
			best = i
			tie.Better(i)
		case c == 0 && n.bug == lastIDOfTies:
			if ts[i].ID > ts[tie.Best()].ID {
				tie.Better(i)
			}
		case c == 0 && n.bug != firstOfTies:
			tie.Equal(i, ts)
		}
	}
	i := tie.Best()
	d := strategy.NewDecision(p, &ts[i], router.ReasonCold)
	if p.Text != "" {
		d.Length, d.Unit, d.Cached = len(p.Text), router.Bytes, cached[i]
	}
	if n.bug != needsMemo || len(p.Text)%2 == 0 {
		d.Memo = &memo{at: place{n.scope(&p), d.Target.ID}, text: p.Text}
	}
	switch n.bug {
	case changesTarget:
		d.Target.Load.InFlight++
	case overcounts:
		if d.Cached > 0 {
			d.Cached = d.Length + 1
		}
	case losesPrompt:
		d.Prompt.Session = ""
	}
	return d, nil
}

func (n *naive) Prepare(context.Context, router.Prompt) any {
	if n.bug == preparesOther {
		return n
	}
	return nil
}

func (n *naive) PickPrepared(
	ctx context.Context, p router.Prompt, ts []router.Target, prepared any,
) (router.Decision, error) {
	if prepared != nil && len(ts) > 1 {
		ts = ts[:len(ts)-1]
	}
	return n.Pick(ctx, p, ts)
}

// compare is below 0 where i is better than j.
func (n *naive) compare(s *strategy.Summary, ts []router.Target, cached []int, i, j int) int {
	if cached[i] != cached[j] {
		return cached[j] - cached[i]
	}
	a, b := s.Load(&ts[i]), s.Load(&ts[j])
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (n *naive) Record(d router.Decision, o router.Outcome) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, ok := d.Memo.(*memo)
	if !ok {
		if n.bug == needsMemo {
			panic("no memo")
		}
		return
	}
	switch {
	case o.Stage == router.Sent && !m.sent && n.bug != learnsUnsent,
		o.Stage.Final() && !m.sent && n.bug == learnsUnsent,
		o.Stage == 0 && !m.sent && n.bug == learnsZero:
		m.sent = true
		n.sent[m.at] = append(n.sent[m.at], m.text)
	case o.Stage == router.Failed && m.sent && (!m.done || n.bug == takesBackTwice):
		m.done = true
		if i := slices.Index(n.sent[m.at], m.text); i >= 0 {
			n.sent[m.at] = slices.Delete(n.sent[m.at], i, i+1)
		}
	case o.Stage == router.FirstToken || o.Stage.Final():
		m.done = true
	}
}

func (n *naive) Explain(
	_ context.Context, p router.Prompt, ts []router.Target, dst []router.Candidate,
) []router.Candidate {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.bug == drawsToExplain {
		n.rand()
	}
	if n.bug == overwritesDst {
		dst = dst[:0]
	}
	s, cached := n.judge(&p, ts)
	from := len(dst)
	dst = strategy.Candidates(&p, ts, dst)
	cs := dst[from:]
	for i := range cs {
		if p.Text != "" {
			cs[i].Length, cs[i].Unit, cs[i].Cached = len(p.Text), router.Bytes, cached[i]
			cs[i].Score = float64(cached[i]) / float64(len(p.Text))
		}
		switch n.bug {
		case scoresBeyond:
			cs[i].Score *= 2
		case scoresOther:
			cs[i].Score = 1 - cs[i].Score
		}
	}
	better := func(a, b *router.Candidate) int {
		return n.compare(&s, []router.Target{a.Target, b.Target}, []int{a.Cached, b.Cached}, 0, 1)
	}
	strategy.Sort(cs, better)
	for i := range cs[:s.Ready] {
		switch {
		case i == 0:
			cs[i].Reason = router.ReasonCold
		case better(&cs[i], &cs[0]) == 0:
			cs[i].Reason = router.ReasonTied
		default:
			cs[i].Reason = router.ReasonColder
		}
	}
	switch {
	case n.bug == explainsOther && s.Ready > 1:
		cs[0].Target, cs[s.Ready-1].Target = cs[s.Ready-1].Target, cs[0].Target
	case n.bug == losesNotReady:
		return dst[:from+s.Ready]
	}
	return dst
}

func (n *naive) Forget(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.bug == forgetsNothing {
		return
	}
	for at := range n.sent {
		if at.id == id || n.bug == forgetsAll {
			delete(n.sent, at)
		}
	}
}
