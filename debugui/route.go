package debugui

import (
	"container/list"
	"context"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/observe"
)

// decision is one choice and its outcome. Its route's lock guards it.
type decision struct {
	seq            uint64
	at             time.Time
	target, model  string
	reason         string
	spill          bool
	cached, length int
	unit           router.Unit
	load           router.Load
	attempt        int
	took           time.Duration
	cands          []candidate
	of             int
	prompt         string

	key           any    // the key that finds it again; nil if none does
	stage         string // final; "" while in flight
	status        int
	first, whole  time.Duration // from the choice to the first token, to the end
	prompts, hits int           // tokens, as the engine reported them
}

// bad reports whether d is of those that one looks for.
func (d *decision) bad() bool {
	return d.spill || d.stage == "failed" || d.target == "" || d.attempt > 1
}

// totals are counted from the start.
type totals struct {
	Picks    uint64 `json:"picks"`
	Spills   uint64 `json:"spills"`
	Finished uint64 `json:"finished"`
	Failed   uint64 `json:"failed"`
	Canceled uint64 `json:"canceled"`
	Retries  uint64 `json:"retries"`
	NoTarget uint64 `json:"noTarget"`
	InFlight int64  `json:"inFlight"`
	// Of the prompts for which both are known, in tokens.
	Judged    uint64 `json:"judged"`
	Predicted uint64 `json:"predicted"`
	Reported  uint64 `json:"reported"`
}

// perTarget counts the prompts that a route has sent to one target.
type perTarget struct {
	id    string
	picks uint64
	series
	bySize
}

// route is the data of one name.
type route struct {
	page *Page
	name string

	mu      sync.Mutex
	watched Route
	seq     uint64
	all     ring[*decision]
	notable ring[*decision]
	flying  map[any]*decision // decisions without an outcome yet, by their memo
	targets map[string]*list.Element
	recent  *list.List // of *perTarget, the most recently picked first
	whole   series
	totals  totals
	model   string // of the last prompt that had one
	usage   observe.Usage
	first   firstTokens
}

func newRoute(p *Page, name string) *route {
	few := newRing[time.Duration](recentTimes)
	return &route{
		first: firstTokens{few, few, few},
		page:  p, name: name,
		all: newRing[*decision](p.cfg.Decisions), notable: newRing[*decision](p.cfg.Decisions),
		flying: make(map[any]*decision), targets: make(map[string]*list.Element), recent: list.New(),
	}
}

// Trace returns hooks for router.Options.Trace, which show the decisions under a
// route's name and call those of next. Routers of one name are
// shown as one. Beyond 100 names all are "other".
func (p *Page) Trace(name string, next router.Trace) router.Trace {
	r := p.route(name)
	return router.Trace{
		Routed: func(ctx context.Context, i router.RouteInfo) {
			r.routed(i)
			if next.Routed != nil {
				next.Routed(ctx, i)
			}
		},
		NoTarget: func(ctx context.Context, p router.Prompt, err error) {
			r.noTarget(ctx, p, err)
			if next.NoTarget != nil {
				next.NoTarget(ctx, p, err)
			}
		},
		FirstToken: func(ctx context.Context, d router.Decision) {
			r.firstToken(d)
			if next.FirstToken != nil {
				next.FirstToken(ctx, d)
			}
		},
		Done: func(ctx context.Context, d router.Decision, o router.Outcome) {
			r.done(d, o)
			if next.Done != nil {
				next.Done(ctx, d, o)
			}
		},
		Retry: func(ctx context.Context, i router.RetryInfo) {
			r.mu.Lock()
			r.totals.Retries++
			r.mu.Unlock()
			if next.Retry != nil {
				next.Retry(ctx, i)
			}
		},
		Timed: func(ctx context.Context, t router.Timing) {
			r.timed(t)
			if next.Timed != nil {
				next.Timed(ctx, t)
			}
		},
	}
}

// tokens are n units.
func tokens(n int, u router.Unit) uint64 {
	if n <= 0 {
		return 0
	}
	if u == router.Bytes {
		return uint64(n+3) / 4
	}
	return uint64(n)
}

func (r *route) routed(i router.RouteInfo) {
	now := time.Now()
	looking := r.page.open(now)
	d := &i.Decision
	e := decision{
		at: now, reason: observe.Reason(d.Reason), spill: observe.Spill(d.Reason), cached: d.Cached, length: d.Length,
		unit: d.Unit,
		load: d.Target.Load, attempt: i.Attempt, took: i.Took, key: keyOf(d.Memo), model: r.page.models.Get(d.Prompt.Model),
	}
	if m, ok := d.Memo.(*memo); ok {
		e.cands, e.of = m.cands, m.of
	}
	if e.key == nil {
		e.stage = "untold" // its outcome cannot be distinguished from others
	}
	if looking && r.page.cfg.ShowPrompts {
		e.prompt = excerpt(d.Prompt)
	}
	cached, length, at := tokens(d.Cached, d.Unit), tokens(d.Length, d.Unit), clock(now)

	r.mu.Lock()
	defer r.mu.Unlock()
	r.totals.Picks++
	r.totals.InFlight++
	if e.spill {
		r.totals.Spills++
	}
	r.whole.add(at, cached, length)
	t := r.target(d.Target.ID)
	t.picks++
	t.series.add(at, cached, length)
	t.bySize.add(at, cached, length)
	e.target = t.id
	if e.model != "" {
		r.model = e.model
	}
	r.keep(e)
}

// target returns the data of a target and makes it the most recent one.
func (r *route) target(id string) *perTarget {
	if e, ok := r.targets[id]; ok {
		r.recent.MoveToFront(e)
		return e.Value.(*perTarget)
	}
	if r.recent.Len() >= r.page.cfg.Targets {
		last := r.recent.Back()
		delete(r.targets, last.Value.(*perTarget).id)
		r.recent.Remove(last)
	}
	t := &perTarget{id: strings.Clone(id)}
	r.targets[t.id] = r.recent.PushFront(t)
	return t
}

// keep adds a decision to those that are shown. The storage of one that goes is
// used again.
func (r *route) keep(e decision) {
	r.seq++
	e.seq = r.seq
	d, full := r.all.oldest()
	if !full || d.bad() { // a bad one is maybe in the other list
		d = new(decision)
	} else {
		r.release(d)
	}
	*d = e
	r.all.add(d)
	if d.key != nil {
		r.flying[d.key] = d
	}
	if d.bad() {
		r.note(d)
	}
}

// release lets go of a decision that is not shown any more.
func (r *route) release(d *decision) {
	if d.key != nil && r.flying[d.key] == d {
		delete(r.flying, d.key)
	}
}

// note adds a decision to those that one looks for.
func (r *route) note(d *decision) {
	if gone, full := r.notable.add(d); full {
		r.release(gone)
	}
}

// keyOf returns the key that identifies a decision until it is done: its memo, if
// that is a pointer.
func keyOf(memo any) any {
	if memo == nil {
		return nil
	}
	if t := reflect.TypeOf(memo); t.Kind() != reflect.Pointer || t.Elem().Size() == 0 {
		return nil
	}
	return memo
}

func (r *route) noTarget(ctx context.Context, p router.Prompt, err error) {
	now := time.Now()
	e := decision{at: now, reason: "no_target_" + observe.NoTarget(err), model: r.page.models.Get(p.Model),
		stage: "no_target"}
	e.length, e.unit = p.Length()
	if r.page.open(now) {
		if r.page.cfg.ShowPrompts {
			e.prompt = excerpt(p)
		}
		r.mu.Lock()
		ask := r.watched.Router
		r.mu.Unlock()
		if ask != nil && r.page.sample.take(now) {
			if cs, err := ask.Explain(context.WithoutCancel(ctx), p); err == nil {
				e.cands, e.of = candidates(cs, "", maxCandidates), len(cs)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.totals.NoTarget++
	r.keep(e)
}

func (r *route) firstToken(d router.Decision) {
	key := keyOf(d.Memo)
	if key == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.flying[key]; e != nil {
		e.first = r.page.scaled(time.Since(e.at))
	}
}

func (r *route) done(d router.Decision, o router.Outcome) {
	key := keyOf(d.Memo)
	predicted, reported, judged := r.usage.Judge(d, o)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.totals.InFlight--
	switch o.Stage {
	case router.Finished:
		r.totals.Finished++
	case router.Failed:
		r.totals.Failed++
	default:
		r.totals.Canceled++
	}
	if judged {
		r.totals.Judged += uint64(o.PromptTokens)
		r.totals.Predicted += uint64(predicted)
		r.totals.Reported += uint64(reported)
	}
	e := r.flying[key]
	if key == nil || e == nil {
		return
	}
	delete(r.flying, key)
	was := e.bad()
	e.key = nil
	e.stage, e.status, e.whole = observe.Stage(o.Stage), o.Status, r.page.scaled(time.Since(e.at))
	e.prompts, e.hits = max(o.PromptTokens, 0), max(o.CachedTokens, 0)
	if e.bad() && !was {
		r.note(e)
	}
}

// excerpt is the displayed part of a prompt.
func excerpt(p router.Prompt) string {
	s := p.Text
	if len(s) <= promptHead+promptTail {
		return legible(s)
	}
	return legible(s[:promptHead]) + "\n…\n" + legible(s[len(s)-promptTail:])
}

// legible converts package prompt's canonical text for display: each mark, a byte
// that valid text does not have and a byte for the kind of the turn, becomes a new
// line.
func legible(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == 0xFF && i+1 < len(s) {
			i++
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			if name, ok := turns[s[i]]; ok {
				b.WriteString("[" + name + "] ")
			}
			continue
		}
		b.WriteByte(s[i])
	}
	return strings.ToValidUTF8(b.String(), "�")
}

var turns = map[byte]string{
	'd': "tool", 's': "system", 'v': "developer", 'u': "user", 'a': "assistant", 't': "result", 'f': "function",
	'i': "media",
}
