package cacheaware_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/cacheaware"
)

// naive is the strategy written down sentence by sentence: no trie, but a list of
// all that was sent.
type naive struct {
	threshold, held [2]int // numerator, denominator
	slack, factor   float64
	sent            []*request
}

// request is one that was sent to a target.
type request struct {
	id       string
	scope    [4]string // model, adapter, salt, what the units are
	units    []uint32  // bytes or tokens
	byHand   bool
	stage    router.Stage // how far it has come
	recorded bool         // it counts as sent before
	gone     bool         // its target was forgotten since
}

func scopeOf(p router.Prompt) [4]string {
	_, u := unitsOf(p)
	return [4]string{p.Model, p.Adapter, p.Salt, u.String()}
}

// unitsOf: the text, or, if there is none, the tokens.
func unitsOf(p router.Prompt) ([]uint32, router.Unit) {
	if p.Text == "" && len(p.Tokens) > 0 {
		return p.Tokens, router.Tokens
	}
	var units []uint32
	for i := range len(p.Text) {
		units = append(units, uint32(p.Text[i]))
	}
	return units, router.Bytes
}

func newRequest(id string, p router.Prompt) *request {
	units, _ := unitsOf(p)
	return &request{id: id, scope: scopeOf(p), units: slices.Clone(units)}
}

func (r *request) same(o *request) bool {
	return r.id == o.id && r.scope == o.scope && slices.Equal(r.units, o.units)
}

// record: Sent records the prompt, spilled and cold ones too. Failed before the
// first token takes it back. A reply, where the caller has it, extends the text.
func (n *naive) record(r *request, o router.Outcome) {
	switch {
	case o.Stage == router.Sent && r.stage == 0:
		r.stage, r.recorded = router.Sent, true
		n.sent = append(n.sent, r)
	case o.Stage == router.FirstToken && r.stage == router.Sent:
		r.stage = router.FirstToken
	case o.Stage.Final() && (r.stage == router.Sent || r.stage == router.FirstToken):
		token := r.stage == router.FirstToken || o.OutputTokens > 0 || o.Reply != ""
		r.stage = o.Stage
		switch {
		case r.gone:
		case o.Stage == router.Failed && !token:
			r.recorded = false
		case r.scope[3] == router.Bytes.String() && len(r.units) > 0:
			reply, _ := unitsOf(router.Prompt{Text: o.Reply})
			r.units = append(r.units, reply...)
		}
	}
}

// recordByHand: a decision without a memo is known by its prompt and target; of
// several equal ones, one that has seen its first token ends first.
func (n *naive) recordByHand(d router.Decision, o router.Outcome) {
	r := newRequest(d.Target.ID, d.Prompt)
	r.byHand = true
	if o.Stage == router.Sent {
		n.record(r, o)
		return
	}
	var found *request
	for _, q := range n.sent {
		live := q.stage == router.Sent || q.stage == router.FirstToken
		if !q.byHand || !live || q.gone || !q.same(r) {
			continue
		}
		if found == nil || o.Stage.Final() && q.stage > found.stage || o.Stage == router.FirstToken && q.stage < found.stage {
			found = q
		}
	}
	if found != nil {
		n.record(found, o)
	}
}

func (n *naive) forget(id string) {
	for _, r := range n.sent {
		if r.id == id {
			r.gone, r.recorded = true, false
		}
	}
}

// cached: leading units of the prompt that the target has been sent before.
func (n *naive) cached(p router.Prompt, id string) int {
	units, _ := unitsOf(p)
	best := 0
	for _, r := range n.sent {
		if !r.recorded || r.id != id || r.scope != scopeOf(p) {
			continue
		}
		k := 0
		for k < len(units) && k < len(r.units) && units[k] == r.units[k] {
			k++
		}
		best = max(best, k)
	}
	return best
}

// warmed: recorded prompts, equal ones once.
func (n *naive) warmed(id string) int {
	var seen []*request
	for _, r := range n.sent {
		if r.recorded && r.id == id && len(r.units) > 0 && !slices.ContainsFunc(seen, r.same) {
			seen = append(seen, r)
		}
	}
	return len(seen)
}

// fact is what the rules look at in one target.
type fact struct {
	target         router.Target
	load           float64
	cached, warmed int
	overloaded     bool
}

// verdict is what section "rules" says of a prompt and its targets.
type verdict struct {
	ready   []fact
	allowed []string // sorted IDs of those that may be picked
	length  int
	unit    router.Unit
	reason  router.Reason
	warm    bool // somebody holds enough
	pinned  bool
	known   bool // some load is
}

func (n *naive) facts(p router.Prompt, targets []router.Target) (ready []fact, known bool) {
	weight := func(t router.Target) float64 {
		if t.Weight > 0 {
			return t.Weight
		}
		return 1
	}
	smallest, least, sum, count := math.Inf(1), math.Inf(1), 0.0, 0
	for _, t := range targets {
		if t.State == router.Ready {
			smallest = min(smallest, weight(t))
		}
	}
	for _, t := range targets {
		if t.State != router.Ready {
			continue
		}
		f := fact{target: t, cached: n.cached(p, t.ID), warmed: n.warmed(t.ID)}
		if t.Load.Known {
			f.load = float64(t.Load.InFlight+t.Load.Queued) / (weight(t) / smallest)
			least = min(least, f.load)
			sum += f.load
			count++
		}
		ready = append(ready, f)
	}
	for i := range ready {
		f := &ready[i]
		if f.target.Load.Known {
			f.overloaded = f.load > least+n.slack && f.load > n.factor*least
		} else if count > 0 {
			f.load = sum / float64(count)
		}
	}
	return ready, count > 0
}

// keep returns those of fs for which f is greatest.
func keep(fs []fact, f func(fact) float64) []fact {
	var out []fact
	for _, x := range fs {
		switch {
		case len(out) == 0 || f(x) > f(out[0]):
			out = []fact{x}
		case f(x) == f(out[0]):
			out = append(out, x)
		}
	}
	return out
}

func byCached(f fact) float64 { return float64(f.cached) }
func byLoad(f fact) float64   { return -f.load }
func byWarmed(f fact) float64 { return -float64(f.warmed) }

func (n *naive) judge(p router.Prompt, targets []router.Target) verdict {
	var v verdict
	v.ready, v.known = n.facts(p, targets)
	units, unit := unitsOf(p)
	v.length, v.unit = len(units), unit
	if len(v.ready) == 0 {
		return v
	}
	share := func(cached int, of [2]int) bool { return cached > 0 && cached*of[1] >= of[0]*v.length }

	// The best score >= threshold: pin to that target, unless it is overloaded.
	best := keep(v.ready, byCached)
	v.warm = share(best[0].cached, n.threshold)
	chosen := slices.DeleteFunc(slices.Clone(best), func(f fact) bool { return f.overloaded })
	switch {
	case v.warm && len(chosen) > 0:
		// Among equals, the least loaded.
		v.pinned, v.reason = true, router.ReasonWarm
		chosen = keep(chosen, byLoad)
	default:
		// Otherwise the least loaded target; the least warmed when no load is known.
		chosen = keep(v.ready, byLoad)
		if !v.known {
			chosen = keep(v.ready, byWarmed)
		}
		// Among targets equal in that, the one that holds most of the prompt, where
		// that is at least a tenth of it; then the least warmed.
		if most := keep(chosen, byCached); share(most[0].cached, n.held) {
			chosen = most
		}
		chosen = keep(chosen, byWarmed)
		switch {
		case v.warm:
			v.reason = router.ReasonSpill
		case len(v.ready) == 1:
			v.reason = router.ReasonOnly
		case v.length == 0:
			v.reason = router.ReasonEmpty
		default:
			v.reason = router.ReasonCold
		}
	}
	for _, f := range chosen {
		v.allowed = append(v.allowed, f.target.ID)
	}
	slices.Sort(v.allowed)
	return v
}

func (v *verdict) fact(id string) *fact {
	i := slices.IndexFunc(v.ready, func(f fact) bool { return f.target.ID == id })
	if i < 0 {
		return nil
	}
	return &v.ready[i]
}

// why says what Explain has to say of a Ready target that is not the first.
func (n *naive) why(v *verdict, id string) router.Reason {
	f, first := v.fact(id), v.fact(v.allowed[0])
	best := keep(v.ready, byCached)[0].cached
	held := func(f *fact) int {
		if f.cached*n.held[1] < n.held[0]*v.length {
			return 0
		}
		return f.cached
	}
	switch {
	case slices.Contains(v.allowed, id):
		return router.ReasonTied
	case v.warm && f.cached == best && f.overloaded:
		return router.ReasonOverloaded
	case v.pinned && f.cached < best:
		return router.ReasonColder
	case v.known && f.load != first.load:
		return router.ReasonBusier
	case !v.known && f.warmed != first.warmed:
		return router.ReasonMoreWarmed
	case held(f) != held(first):
		return router.ReasonColder
	}
	return router.ReasonMoreWarmed
}

// program is a stream of choices: random bytes make a random history, and a
// fuzzer can shrink it.
type program []byte

// n chooses one of k.
func (p *program) n(k int) int {
	if len(*p) == 0 {
		return 0
	}
	b := (*p)[0]
	*p = (*p)[1:]
	return int(b) % k
}

// config chooses a Config and the oracle for it.
func (p *program) config() (cacheaware.Config, *naive) {
	n := &naive{threshold: [2]int{1, 2}, held: [2]int{1, 10}, slack: 2, factor: 1.5}
	if p.n(3) > 0 {
		return cacheaware.Config{}, n
	}
	n.threshold = [][2]int{{3, 10}, {1, 1}, {1, 100}}[p.n(3)]
	n.held = [][2]int{{1, 4}, {1, 1}, {1, 100}}[p.n(3)]
	n.slack, n.factor = []float64{0.5, 1, 4}[p.n(3)], []float64{1, 2, 3}[p.n(3)]
	return cacheaware.Config{
		Threshold:     float64(n.threshold[0]) / float64(n.threshold[1]),
		HeldShare:     float64(n.held[0]) / float64(n.held[1]),
		OverloadSlack: n.slack, OverloadFactor: n.factor,
	}, n
}

var ids = []string{"a", "b", "c", "d", "e"}

// targets chooses which of ids are offered and what is known of them.
func (p *program) targets() []router.Target {
	var ts []router.Target
	n := 1 + p.n(len(ids))
	first := p.n(len(ids))
	kind := p.n(4) // idle, loaded, loaded or unknown, unknown
	for i := range n {
		t := router.Target{ID: ids[(first+i)%len(ids)]}
		if p.n(4) == 0 {
			t.Weight = []float64{1, 2, 4, 0.5}[p.n(4)]
		}
		if p.n(8) == 0 {
			t.State = router.State(p.n(6))
		}
		t.Load.Known = kind < 2 || kind == 2 && p.n(2) == 0
		if t.Load.Known && kind > 0 {
			t.Load.InFlight, t.Load.Queued = p.n(10), p.n(3)
		}
		ts = append(ts, t)
	}
	return ts
}

// prompt chooses a prompt, most often one that begins like one of those before.
func (p *program) prompt(before []router.Prompt) router.Prompt {
	q := router.Prompt{Model: []string{"m", "m", "m", "m", "n", "\x00m"}[p.n(6)]}
	if p.n(6) == 0 {
		q.Adapter, q.Salt = []string{"", "x"}[p.n(2)], []string{"", "y", "xy"}[p.n(3)]
	}
	if len(before) > 0 && p.n(8) > 0 {
		old := before[p.n(len(before))]
		q.Model, q.Adapter, q.Salt = old.Model, old.Adapter, old.Salt
		q.Text = old.Text[:len(old.Text)-min(len(old.Text), p.n(8)*p.n(2))]
		q.Tokens = slices.Clone(old.Tokens[:len(old.Tokens)-min(len(old.Tokens), p.n(6)*p.n(2))])
		if len(q.Text) > 200 { // the oracle is slow
			q.Text = q.Text[:20]
		}
	}
	more := p.n(10)
	switch kind := p.n(8); {
	case kind == 0 || q.Text == "" && len(q.Tokens) > 0:
		for range more {
			// Tokens that share some of their bytes, and all bytes of a text.
			q.Tokens = append(q.Tokens, []uint32{1, 257, 1 << 24, binary.NativeEndian.Uint32([]byte("abab"))}[p.n(4)])
		}
		if kind == 0 && p.n(2) == 0 {
			q.Text = ""
		}
	default:
		for range more {
			q.Text += string("ab\x00\xff"[p.n(3)])
		}
	}
	return q
}

func (v *verdict) String() string {
	s := fmt.Sprintf("%v %s, length %d %s, known %v:", v.allowed, v.reason, v.length, v.unit, v.known)
	for _, f := range v.ready {
		s += fmt.Sprintf(" {%s load %v cached %d warmed %d overloaded %v}", f.target.ID, f.load, f.cached, f.warmed,
			f.overloaded)
	}
	return s
}
