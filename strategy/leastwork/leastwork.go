// Package leastwork sends each prompt to the target with the least total work:
// the tokens that wait there for prefill, the uncached part of the prompt, and
// the context of the requests in flight.
package leastwork

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/warmroute/router"
	"github.com/warmroute/router/adapters"
	"github.com/warmroute/router/internal/peering"
	"github.com/warmroute/router/internal/textcache"
	"github.com/warmroute/router/internal/tokencache"
	"github.com/warmroute/router/strategy"
	"github.com/warmroute/router/trie"
)

// Name is the strategy's name in configuration files.
const Name = "least_work"

// Strategy picks the Ready target of the least cost, in tokens for each unit of
// Weight:
//
//	cost = (Prefill + MissWeight x uncached + ContextWeight x context) / Weight
//
// uncached is the part of the prompt that the target has not been sent before; four
// bytes of text count as a token. With Config.Index, and if the stream of any Ready
// target can be trusted, a prompt with Tokens is counted in tokens: for a trusted
// target uncached is the part that is not resident there and, for the time of
// PresumeFor, was not sent there; for the others it is the share of the text that
// they have not been sent. context is the context of the requests in flight and
// queued there: the mean length of those that this Strategy sent there (or, for the
// queued ones and if it sent none, anywhere) times their number. As long as no
// length is known, a request costs RequestTokens. A target of unknown load has the
// mean work of the others. Of equal costs the one that holds most of the prompt is
// taken, then the one with the fewest recorded prompts for its Weight, then each
// with equal chances. Config.Agree decides which costs are equal for a cold prompt.
//
// So that an idle fleet spreads, the cached part counts by these rules: less than a
// tenth of the prompt counts as nothing; an estimate is rounded down to 50ths of the
// prompt; and if a target has more than 8 recorded prompts and half again as many as
// the one with the fewest, a beginning that 32 or more recorded prompts share counts
// on it only as much as on the others. A common system prompt is thus computed once
// on each target, and a conversation stays.
//
// A prompt with an Adapter costs more at targets that do not have it loaded, by Config.Adapters: the tokens of a load,
// and of the load that it will cost to have the evicted adapter back. Weight does not divide these.
//
// There is no threshold: a hot prefix spills when the queue at its target costs
// more than computing it again, and a slow target, which keeps its requests
// longer, gets fewer. The constants were chosen on simulated fleets. From 2 to 8
// for the first, with a second that is a thirtieth to a twentieth of it, the
// results differ by less than 2% there; on traces that were set aside smaller
// second ones do a little better (bench/RESULTS.md).
//
// A prompt is recorded when it is sent, so the next Pick sees it, and taken back
// if the request fails before its first token. A Strategy is safe for
// concurrent use.
type Strategy struct {
	cfg      Config
	cache    *textcache.Cache
	tokens   *tokencache.Cache
	contexts contexts
	peers    peering.Node // nil: none
	scratch  sync.Pool    // of *scratch
}

var (
	_ router.Strategy  = (*Strategy)(nil)
	_ router.Explainer = (*Strategy)(nil)
	_ router.Forgetter = (*Strategy)(nil)
	_ router.Preparer  = (*Strategy)(nil)
)

// New returns a Strategy that has seen nothing yet. The error is a
// *router.ConfigError for each field that is not allowed, joined.
func New(c Config) (*Strategy, error) {
	c = c.WithDefaults()
	text, tokens, err := c.open()
	if err != nil {
		return nil, err
	}
	s := &Strategy{cfg: c, cache: text, tokens: tokens, peers: peering.Of(c.Share)}
	s.scratch.New = func() any { return new(scratch) }
	return s, nil
}

// Stats returns the size of the record of sent prompts.
func (s *Strategy) Stats() trie.Stats { return s.cfg.Trie.Stats() }

// scratch is the memory of one look at the targets.
type scratch struct {
	textcache.Targets
	exact    tokencache.Targets
	worth    []int
	work     []float64   // of the Ready targets, for each unit of Weight, and the load of the prompt's adapter
	inFlight []*inFlight // shared
	peers    []peering.Gauge
	poured   []textcache.Glass
	loads    []float64 // the cost of the prompt's adapter
}

// view is the result of one look at the targets.
type view struct {
	*scratch
	key     textcache.Key
	tokens  bool  // sizes are tokens, by the Index; else bytes of the trie
	size    int   // of the whole prompt
	held    []int // of it, by target
	ready   int
	best    int     // the most that a Ready target holds
	most    int     // the most of it that counts for the choice
	level   float64 // costs up to it count as equal
	request float64 // the cost of a request unless more is known of its target
}

// look fills v, which is zero.
func (s *Strategy) look(v *view, p *router.Prompt, targets []router.Target, r *scratch) {
	v.scratch, v.key, v.request = r, r.KeyOf(p), s.cfg.RequestTokens
	s.lookCached(v, p, targets)
	r.worth = s.cache.Worth(&textcache.Prompt{
		Key: &v.key, Targets: &r.Targets, Held: v.held, Size: v.size, Exact: v.tokens,
	}, targets, r.worth)
	r.inFlight = s.contexts.find(r.IDs)
	r.peers = r.peers[:0]
	if s.peers != nil {
		r.peers = s.peers.Elsewhere(r.IDs, r.peers)
	}
	var requests, tokens int64
	for i := range targets {
		if targets[i].State != router.Ready {
			continue
		}
		v.ready++
		v.best = max(v.best, v.held[i])
		v.most = max(v.most, v.worth[i])
		if f := r.inFlight[i]; f != nil {
			requests += f.requests.Load()
			tokens += f.tokens.Load()
		}
		if len(r.peers) > 0 {
			requests += r.peers[i].InFlight
			tokens += r.peers[i].Context
		}
	}
	if requests > 0 && tokens > 0 {
		v.request = s.cfg.ContextWeight * float64(tokens) / float64(requests)
	}
	r.work = slices.Grow(r.work[:0], len(targets))[:len(targets)]
	known := 0
	for i := range targets {
		if t := &targets[i]; t.State == router.Ready && t.Load.Known {
			known++
			r.work[i] = s.workOf(v, t, i)
		}
	}
	if known < v.ready {
		v.assume(targets, known)
	}
	if p.Adapter != "" {
		r.loads = s.cfg.Adapters.Costs(p.Adapter, targets, r.loads[:0])
		for i, load := range r.loads {
			r.work[i] += load
		}
	}
	v.level = s.level(v, targets)
}

// assume gives the Ready targets of unknown load the mean work of the others, 0 if there are none.
func (v *view) assume(targets []router.Target, known int) {
	var sum strategy.Sum
	for i := range targets {
		if t := &targets[i]; t.State == router.Ready && t.Load.Known {
			sum.Add(v.work[i])
		}
	}
	mean := 0.0
	if known > 0 {
		mean = sum.Float() / float64(known)
	}
	for i := range targets {
		if t := &targets[i]; t.State == router.Ready && !t.Load.Known {
			v.work[i] = mean
		}
	}
}

// lookCached fills in the targets' cached parts.
func (s *Strategy) lookCached(v *view, p *router.Prompt, targets []router.Target) {
	if s.cfg.Index != nil && len(p.Tokens) > 0 {
		v.Offer(targets)
		if s.tokens.Look(p, &v.key, true, targets, &v.Targets, &v.exact) {
			v.tokens, v.size, v.held = true, len(p.Tokens), v.exact.Held
			return
		}
	}
	s.cache.Look(&v.key, targets, &v.Targets)
	v.size, v.held = v.key.Size(), v.Cached
}

// units turns n of a view into the unit of decisions.
func (v *view) units(n int) int {
	if v.tokens {
		return n
	}
	return v.key.Units(n)
}

func (v *view) unit() router.Unit {
	if v.tokens {
		return router.Tokens
	}
	return v.key.Unit()
}

// asTokens turns n of a view into tokens.
func (v *view) asTokens(n int) float64 {
	if v.tokens {
		return float64(n)
	}
	return float64(n) / 4 // bytes of the trie, four to a token
}

// workOf is the work of targets[i], with a known load, for each unit of Weight.
func (s *Strategy) workOf(v *view, t *router.Target, i int) float64 {
	request := v.request
	if c := v.inFlight[i].cost(s.cfg.ContextWeight); c > 0 {
		request = c
	}
	queued, context := max(t.Load.Queued, 0), 0.0
	if len(v.peers) > 0 { // of these the context is known
		p := &v.peers[i]
		queued = max(queued-int(p.InFlight), 0)
		context = s.cfg.ContextWeight * float64(p.Context)
	}
	load := float64(max(t.Load.Prefill, 0)) + request*float64(max(t.Load.InFlight, 0)) + context +
		v.request*float64(queued)
	return load / strategy.Weight(t)
}

// cost is the cost of the prompt at targets[i].
func (s *Strategy) cost(v *view, targets []router.Target, i int) float64 {
	return v.work[i] + s.cfg.MissWeight*v.asTokens(v.size-v.worth[i])/strategy.Weight(&targets[i])
}

// rank is the first value that targets are compared by: less is better.
type rank struct {
	cost  float64
	worth int // negative
}

func (s *Strategy) rank(v *view, targets []router.Target, i int) rank {
	r := rank{cost: max(s.cost(v, targets, i), v.level)}
	if v.level == 0 { // else they count as equal, whatever they hold
		r.worth = -v.worth[i]
	}
	return r
}

func (r *rank) compare(o *rank) int {
	return cmp.Or(cmp.Compare(r.cost, o.cost), cmp.Compare(r.worth, o.worth))
}

// byWarmed reports whether targets of equal rank are compared by their recorded prompts.
func (v *view) byWarmed() bool { return v.level == 0 && v.size > 0 }

// compareWarmed compares targets[i] and targets[j] of equal rank by their recorded
// prompts: less is better.
func (s *Strategy) compareWarmed(v *view, targets []router.Target, i, j int) int {
	if !v.byWarmed() {
		return 0
	}
	s.cache.LookWarmed(&v.Targets)
	return cmp.Compare(textcache.WarmedByWeight(v.Warmed[i], &targets[i]),
		textcache.WarmedByWeight(v.Warmed[j], &targets[j]))
}

// Pick chooses a target. It draws one random number a call if a target is Ready, and
// allocates the Memo alone.
func (s *Strategy) Pick(_ context.Context, p router.Prompt, targets []router.Target) (router.Decision, error) {
	return s.pick(&p, targets, s.scratch.Get().(*scratch))
}

// Prepare matches p with the targets that were offered lately, unless the Index is
// used, because its Match takes no lock and should not be outdated.
func (s *Strategy) Prepare(_ context.Context, p router.Prompt) any {
	if s.cfg.Index != nil && len(p.Tokens) > 0 {
		return nil
	}
	r := s.scratch.Get().(*scratch)
	s.cache.Prepare(&p, &r.Targets)
	return r
}

// PickPrepared is Pick for a prompt that Prepare has matched. It takes in the prompts
// that were sent since.
func (s *Strategy) PickPrepared(_ context.Context, p router.Prompt, targets []router.Target,
	prepared any) (router.Decision, error) {
	r, ok := prepared.(*scratch)
	if !ok {
		r = s.scratch.Get().(*scratch)
	}
	return s.pick(&p, targets, r)
}

func (s *Strategy) pick(p *router.Prompt, targets []router.Target, r *scratch) (router.Decision, error) {
	defer s.scratch.Put(r)
	var v view
	s.look(&v, p, targets, r)
	if v.ready == 0 {
		return router.Decision{}, strategy.NoTarget(targets)
	}
	i := s.choose(&v, p, targets)
	m := &memo{text: *textcache.NewMemo(v.key), tokens: int64(v.asTokens(v.size))}
	if p.Adapter != "" {
		m.work = float64(max(targets[i].Load.Prefill, 0)) + v.asTokens(v.size-v.held[i])
	}
	if v.tokens {
		m.indexed = s.tokens.Indexed(targets[i].ID, i, &v.exact)
	}
	return router.Decision{
		Prompt: *p,
		Target: targets[i],
		Cached: v.units(v.held[i]),
		Length: v.units(v.size),
		Unit:   v.unit(),
		Reason: v.reason(i),
		Memo:   m,
	}, nil
}

// choose returns the index of the Ready target to take.
func (s *Strategy) choose(v *view, p *router.Prompt, targets []router.Target) int {
	tie := strategy.Tie{Seed: s.cfg.Rand()}
	if s.peers != nil && v.level == 0 {
		if i := s.spread(v, targets); i >= 0 {
			return i
		}
	}
	if v.level > 0 {
		tie.Seed = leading(p, v.known(p))
	}
	first, equal := -1, 0
	var least rank
	for i := range targets {
		if targets[i].State != router.Ready {
			continue
		}
		r := s.rank(v, targets, i)
		switch {
		case first < 0 || r.cost < least.cost || r.cost == least.cost && r.worth < least.worth:
			first, equal, least = i, 1, r
		case r == least:
			equal++
		}
	}
	if equal == 1 {
		return first
	}
	tie.Better(first)
	for i := first + 1; equal > 1; i++ {
		if targets[i].State != router.Ready || s.rank(v, targets, i) != least {
			continue
		}
		equal--
		switch c := s.compareWarmed(v, targets, i, tie.Best()); {
		case c < 0:
			tie.Better(i)
		case c == 0:
			tie.Equal(i, targets)
		}
	}
	return tie.Best()
}

// reason returns why targets[i] was chosen.
func (v *view) reason(i int) router.Reason {
	return strategy.ByCached(v.ready, v.size, v.worth[i], v.most)
}

// memo is the data that a Decision carries from Pick to Record.
type memo struct {
	text     textcache.Memo
	tokens   int64                   // of the prompt
	work     float64                 // tokens to prefill until its first token, if it has an adapter
	adapter  *adapters.Use           // nil if it has none
	indexed  int                     // as tokencache.Cache.Indexed
	inFlight *inFlight               // while the request is counted there
	presumed *tokencache.Presumption // nil once it is settled
}

// Record records the prompt that the target was sent and its context in flight,
// and removes them if the request failed.
func (s *Strategy) Record(d router.Decision, o router.Outcome) {
	m, _ := d.Memo.(*memo)
	if m == nil { // made by hand: counted by the fleet alone, presumed to the end
		s.cache.Record(&d, nil, &o)
		if o.Stage == router.Sent {
			s.tokens.Sent(&d.Prompt, d.Target.ID)
		}
		return
	}
	switch stage := s.cache.Record(&d, &m.text, &o); {
	case stage == router.Sent:
		m.presumed = s.tokens.Sent(&d.Prompt, d.Target.ID)
		if m.tokens > 0 {
			m.inFlight = s.contexts.add(d.Target.ID, m.tokens)
		}
		if d.Prompt.Adapter != "" {
			m.adapter = s.cfg.Adapters.Sent(d.Target.ID, d.Prompt.Adapter, m.work)
		}
	case stage == router.FirstToken:
		m.adapter.FirstToken()
	case stage.Final():
		if m.text.TakenBack() {
			s.tokens.Drop(m.presumed)
		} else {
			s.tokens.Ended(&d.Prompt, d.Target.ID, m.presumed)
		}
		m.presumed = nil
		s.tokens.Report(d.Target.ID, m.indexed, &o)
		if m.inFlight != nil {
			m.inFlight.end(m.tokens)
			m.inFlight = nil
		}
		m.adapter.End(stage)
	}
}

// Forget drops the prompts that the target was sent. It does not change the
// Index: its own stream reports restarts, and several strategies may read it.
func (s *Strategy) Forget(id string) {
	s.cache.Forget(id)
	s.tokens.Forget(id)
	s.contexts.forget(id)
	s.cfg.Adapters.Forget(id)
}
