package pipeline_test

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/worthtest"
)

// naive is the strategy written down sentence by sentence: lists that are
// searched from end to end, no trie, no list of the least recently used.
type naive struct {
	static, load, affinity, half, own float64 // weights, below 0: off
	slack, factor                     float64
	ttl                               time.Duration
	max                               int
	filter, relax                     bool // drops what ownKeeps does not keep

	now      time.Time
	uses     int
	sent     []*request
	sessions []*binding
}

type request struct {
	p        router.Prompt
	id       string
	text     string
	stage    router.Stage
	recorded bool // it counts as sent before
	gone     bool // its target was forgotten since
	made     bool // it made its session's binding
	byHand   bool
}

type binding struct {
	scope, session, id string
	expires            time.Time
	used               int
	served             bool
	byHand             int
	gone               bool // its target was forgotten since; it still takes a place
}

// ownScore and ownKeeps are what the caller's own scorer and filter say in the
// oracle's games.
func ownScore(id string) float64 {
	return map[string]float64{"a": 0.5, "b": 1, "c": math.NaN(), "d": -3, "e": math.Inf(1)}[id]
}

func ownKeeps(id string) bool { return id == "b" || id == "d" }

func (n *naive) bound(p router.Prompt) *binding {
	for _, b := range n.sessions {
		if b.scope == p.Scope() && b.session == p.Session && !n.now.After(b.expires) && !b.gone {
			return b
		}
	}
	return nil
}

// bind binds p's session to id, in place of all that was known of it.
func (n *naive) bind(p router.Prompt, id string) *binding {
	n.unbind(p)
	n.sessions = slices.DeleteFunc(n.sessions, func(b *binding) bool { return n.now.After(b.expires) })
	if len(n.sessions) >= n.max {
		oldest := slices.MinFunc(n.sessions, func(a, b *binding) int { return cmp.Compare(a.used, b.used) })
		n.sessions = slices.DeleteFunc(n.sessions, func(b *binding) bool { return b == oldest })
	}
	b := &binding{scope: p.Scope(), session: p.Session, id: id}
	n.sessions = append(n.sessions, b)
	return b
}

func (n *naive) unbind(p router.Prompt) {
	n.sessions = slices.DeleteFunc(n.sessions, func(b *binding) bool {
		return b.scope == p.Scope() &&
			b.session == p.Session
	})
}

func (n *naive) use(b *binding) {
	if b != nil {
		n.uses++
		b.used, b.expires = n.uses, n.now.Add(n.ttl)
	}
}

// record is what becomes of the prompt; then what becomes of the session.
func (n *naive) record(r *request, o router.Outcome) {
	was := r.stage
	under := was == router.Sent || was == router.FirstToken
	switch {
	case o.Stage == router.Sent && was == 0:
		r.stage, r.recorded = router.Sent, true
		n.sent = append(n.sent, r)
	case o.Stage == router.FirstToken && was == router.Sent: // each stage counts once
		r.stage = router.FirstToken
	case o.Stage.Final() && under:
		r.stage = o.Stage
		if o.Stage == router.Failed && was == router.Sent {
			r.recorded = false
		}
	default:
		return
	}
	if r.p.Session != "" && n.ttl > 0 && !r.byHand {
		n.visit(r, was, o)
	}
}

func (n *naive) visit(r *request, was router.Stage, o router.Outcome) {
	b := n.bound(r.p)
	here := b != nil && b.id == r.id
	switch {
	case o.Stage == router.Sent: // binds if nothing is bound
		if b == nil {
			b, r.made = n.bind(r.p, r.id), true
		}
	case r.gone:
	case o.Stage == router.FirstToken, o.Stage == router.Finished:
		// The first sign of being served moves it; a later one brings it back only
		// if nothing is bound.
		if !here && (was == router.Sent || b == nil) {
			b = n.bind(r.p, r.id)
			here = true
		}
		b.served = b.served || here
	case o.Stage == router.Failed && here && o.Blames(): // released
		n.unbind(r.p)
		return
	case o.Stage == router.Failed && here && r.made && !b.served: // taken back
		n.unbind(r.p)
		return
	}
	n.use(b)
}

// sendByHand and endByHand: without a memo, Sent binds at once, and only a
// failure of the target it is bound to says more.
func (n *naive) sendByHand(p router.Prompt, id string) *request {
	r := &request{p: p, id: id, text: p.Text, byHand: true}
	n.record(r, router.Outcome{Stage: router.Sent})
	if p.Session != "" && n.ttl > 0 {
		b := n.bound(p)
		if b == nil || b.id != id {
			b = n.bind(p, id)
		}
		b.byHand++
		n.use(b)
	}
	return r
}

func (n *naive) endByHand(r *request, o router.Outcome) {
	if r.stage != router.Sent {
		return
	}
	n.record(r, o)
	b := n.bound(r.p)
	if r.p.Session == "" || n.ttl <= 0 || b == nil || b.id != r.id || b.byHand == 0 {
		return
	}
	b.byHand--
	b.served = b.served || o.Stage == router.Finished
	if o.Stage == router.Failed && (o.Blames() || b.byHand == 0 && !b.served) {
		n.unbind(r.p)
		return
	}
	n.use(b)
}

func (n *naive) forget(id string) {
	for _, r := range n.sent {
		if r.id == id {
			r.gone, r.recorded = true, false
		}
	}
	for _, b := range n.sessions {
		b.gone = b.gone || b.id == id
	}
}

func (n *naive) cached(p router.Prompt, id string) int {
	best := 0
	for _, r := range n.sent {
		if !r.recorded || r.id != id || r.p.Scope() != p.Scope() {
			continue
		}
		k := 0
		for k < len(p.Text) && strings.HasPrefix(r.text, p.Text[:k+1]) {
			k++
		}
		best = max(best, k)
	}
	return best
}

type fact struct {
	t          router.Target
	cached     int
	worth      int
	warmed     float64
	load       float64
	overloaded bool
	parts      []float64
	score      float64 // weighted mean
}

type verdict struct {
	candidates []fact
	length     int
	home       string // the session's target, if it is bound
	bound, pin bool
	most       int
}

// judge says what is to be said of p and targets.
func (n *naive) judge(p router.Prompt, targets []router.Target) verdict {
	v := verdict{length: len(p.Text)}
	var ready, kept []router.Target
	for _, t := range targets {
		if t.State == router.Ready {
			ready = append(ready, t)
			if ownKeeps(t.ID) {
				kept = append(kept, t)
			}
		}
	}
	if n.filter && (len(kept) > 0 || !n.relax) {
		ready = kept
	}
	weight := func(t router.Target) float64 {
		if t.Weight > 0 {
			return t.Weight
		}
		return 1
	}
	lightest, heaviest := math.Inf(1), 0.0
	for _, t := range ready {
		lightest, heaviest = min(lightest, weight(t)), max(heaviest, weight(t))
	}
	least, sum, known := math.Inf(1), 0.0, 0
	for _, t := range ready {
		f := fact{t: t, cached: n.cached(p, t.ID)}
		if t.Load.Known {
			f.load = float64(t.Load.InFlight+t.Load.Queued) * lightest / weight(t)
			least, sum, known = min(least, f.load), sum+f.load, known+1
		}
		v.candidates = append(v.candidates, f)
	}
	n.weigh(p, &v)
	if b := n.bound(p); b != nil && p.Session != "" && n.ttl > 0 {
		v.home, v.bound = b.id, true
	}
	for i := range v.candidates {
		f := &v.candidates[i]
		switch {
		case f.t.Load.Known:
			f.overloaded = f.load > least+n.slack && f.load > n.factor*least
		case known > 0:
			f.load = sum / float64(known)
		default:
			f.load, least = 0, 0
		}
		v.pin = v.pin || v.bound && f.t.ID == v.home && !f.overloaded
		own := ownScore(f.t.ID)
		if math.IsNaN(own) {
			own = 0
		}
		own = min(max(own, 0), 1)
		share := 0.0
		if v.length > 0 {
			share = float64(f.worth) / float64(v.length)
		}
		total := 0.0
		for _, x := range [][2]float64{
			{n.static, weight(f.t) / heaviest}, {n.load, n.half / (n.half + f.load - least)}, {n.affinity, share}, {n.own, own},
		} {
			if x[0] > 0 {
				f.parts = append(f.parts, x[1])
				f.score += x[0] * x[1]
				total += x[0]
			}
		}
		f.score /= total // NaN if nothing is scored
	}
	return v
}

// weigh returns how much of the candidates' cached parts counts, and how many prompts
// are recorded for them.
func (n *naive) weigh(p router.Prompt, v *verdict) {
	sent := make(map[string][]string)
	for _, r := range n.sent {
		if r.recorded && r.p.Scope() == p.Scope() {
			sent[r.id] = append(sent[r.id], r.text)
		}
	}
	recorded := func(id string) int {
		all := make(map[[2]string]bool)
		for _, r := range n.sent {
			if r.recorded && r.id == id && r.text != "" {
				all[[2]string{r.p.Scope(), r.text}] = true
			}
		}
		return len(all)
	}
	var ts []router.Target
	var held []int
	for i, f := range v.candidates {
		ts, held = append(ts, f.t), append(held, f.cached)
		if n.affinity >= 0 && v.length > 0 {
			v.candidates[i].warmed = worthtest.Warmed(sent, recorded, f.t)
		}
	}
	for i, w := range worthtest.Worth(sent, recorded, p.Text, ts, held, v.length, false) {
		v.candidates[i].worth = w
		v.most = max(v.most, w)
	}
}

func (v *verdict) fact(id string) *fact {
	i := slices.IndexFunc(v.candidates, func(f fact) bool { return f.t.ID == id })
	if i < 0 {
		return nil
	}
	return &v.candidates[i]
}

const rounding = 1e-9

// mayTake: the session's target, else one that no other one's score beats, of several that are alike the one with the
// fewest recorded prompts.
func (v *verdict) mayTake(f *fact) bool {
	if v.pin {
		return f.t.ID == v.home
	}
	return !slices.ContainsFunc(v.candidates, func(o fact) bool {
		return o.score > f.score+rounding || slices.Equal(o.parts, f.parts) && o.worth == f.worth && o.warmed < f.warmed
	})
}

func (n *naive) reason(v *verdict, f *fact) router.Reason {
	switch {
	case v.pin:
		return "session"
	case len(v.candidates) == 1:
		return "only_target"
	case math.IsNaN(f.score):
		return "random"
	case n.affinity < 0:
		return "best_score"
	case v.length == 0:
		return "empty_prompt"
	case v.most == 0:
		return "cold"
	case f.worth < v.most:
		return "spill"
	}
	return "warm"
}
