package router_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
)

var errRefused = errors.New("connection refused")

// newView returns a fleet of real counters.
func newView(t testing.TB, cfg loadview.Config, ids ...string) *loadview.View {
	t.Helper()
	v, err := loadview.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	setMembers(t, v, ids...)
	return v
}

func setMembers(t testing.TB, v *loadview.View, ids ...string) {
	t.Helper()
	ms := make([]loadview.Member, len(ids))
	for i, id := range ids {
		ms[i].ID = id
	}
	if err := v.Set(ms); err != nil {
		t.Fatal(err)
	}
}

// inFlight returns what v counts, in the order of its members.
func inFlight(v *loadview.View) []int {
	var out []int
	for _, s := range v.Snapshot() {
		out = append(out, s.Target.Load.InFlight)
	}
	return out
}

func stateOf(t testing.TB, v *loadview.View, id string) router.State {
	t.Helper()
	for _, s := range v.Snapshot() {
		if s.Target.ID == id {
			return s.Target.State
		}
	}
	t.Fatalf("%s is no member", id)
	return 0
}

// wantIdle fails the test unless nothing is counted on any member.
func wantIdle(t testing.TB, v *loadview.View) {
	t.Helper()
	for _, s := range v.Snapshot() {
		if s.Target.Load != (router.Load{Known: true}) {
			t.Errorf("%s ends with %+v", s.Target.ID, s.Target.Load)
		}
	}
}

// wantCounts fails the test unless v counts n.
func wantCounts(t testing.TB, v *loadview.View, n ...int) {
	t.Helper()
	if diff := cmp.Diff(n, inFlight(v)); diff != "" {
		t.Errorf("in flight (-want +got):\n%s", diff)
	}
}

func route(t testing.TB, r *router.Router, ctx context.Context, exclude ...string) *router.Lease {
	t.Helper()
	l, err := r.Route(ctx, prompt, exclude...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var prompt = router.Prompt{Model: "llama", Text: "Why is the sky blue?"}

// pickFunc is a Strategy that learns nothing.
type pickFunc func(ctx context.Context, p router.Prompt, ts []router.Target) (router.Decision, error)

func (f pickFunc) Pick(ctx context.Context, p router.Prompt, ts []router.Target) (router.Decision, error) {
	return f(ctx, p, ts)
}

func (pickFunc) Record(router.Decision, router.Outcome) {}

// first picks the first Ready target and leaves all else in its Decision empty.
var first pickFunc = func(_ context.Context, _ router.Prompt, ts []router.Target) (router.Decision, error) {
	for _, t := range ts {
		if t.State == router.Ready {
			return router.Decision{Target: t}, nil
		}
	}
	return router.Decision{}, router.ErrNoTarget
}

// witness passes everything on to another Strategy, writes down what is recorded
// for each decision, and checks the order of it.
type witness struct {
	router.Strategy
	t testing.TB

	mu      sync.Mutex
	stories []*story
}

// story is what was recorded for one decision.
type story struct {
	memo     any // the other Strategy's
	busy     atomic.Bool
	target   string
	outcomes []router.Outcome
}

func (w *witness) Pick(ctx context.Context, p router.Prompt, ts []router.Target) (router.Decision, error) {
	d, err := w.Strategy.Pick(ctx, p, ts)
	if err != nil {
		return d, err
	}
	s := &story{memo: d.Memo, target: d.Target.ID}
	d.Memo = s
	w.mu.Lock()
	w.stories = append(w.stories, s)
	w.mu.Unlock()
	return d, nil
}

func (w *witness) Record(d router.Decision, o router.Outcome) {
	s, ok := d.Memo.(*story)
	if !ok {
		w.t.Errorf("%v was recorded without the memo", o.Stage)
		return
	}
	if !s.busy.CompareAndSwap(false, true) {
		w.t.Errorf("%v was recorded while another was", o.Stage)
		return
	}
	defer s.busy.Store(false)
	if d.Target.ID != s.target {
		w.t.Errorf("picked for %q, recorded for %q", s.target, d.Target.ID)
	}
	s.outcomes = append(s.outcomes, o)
	d.Memo = s.memo
	w.Strategy.Record(d, o)
}

func (s *story) stages() []router.Stage {
	var out []router.Stage
	for _, o := range s.outcomes {
		out = append(out, o.Stage)
	}
	return out
}

// check fails the test unless every decision came to Sent, FirstToken at most
// once and one final stage, in that order. It is called when all has ended.
func (w *witness) check() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.stories {
		st := s.stages()
		rest := st
		if len(rest) > 0 && rest[0] == router.Sent {
			rest = rest[1:]
			if len(rest) > 0 && rest[0] == router.FirstToken {
				rest = rest[1:]
			}
			if len(rest) == 1 && rest[0].Final() {
				continue
			}
		}
		w.t.Errorf("recorded for one decision: %v", st)
	}
}

// last returns the story of the latest decision.
func (w *witness) last() *story {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stories[len(w.stories)-1]
}

// pool is a Fleet of fixed targets. It hands its own slice to pick, and fails on
// demand.
type pool struct {
	targets []router.Target
	refuse  error // after pick
	crash   any   // panics with it, after pick
	empty   bool  // returns no Flight

	mu     sync.Mutex
	counts map[string]int
	ended  []router.Outcome
}

func newPool(ts ...router.Target) *pool { return &pool{targets: ts, counts: map[string]int{}} }

func ready(ids ...string) []router.Target {
	var ts []router.Target
	for _, id := range ids {
		ts = append(ts, router.Target{ID: id})
	}
	return ts
}

func (f *pool) Choose(
	_ context.Context, pick func([]router.Target) (router.Decision, error),
) (router.Decision, router.Flight, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := slices.Clone(f.targets)
	d, err := pick(f.targets)
	if diff := cmp.Diff(before, f.targets); diff != "" {
		panic("pick changed the targets: " + diff)
	}
	switch {
	case err != nil:
		return router.Decision{}, nil, err
	case f.refuse != nil:
		return router.Decision{}, nil, f.refuse
	case f.crash != nil:
		panic(f.crash)
	case f.empty:
		return d, nil, nil
	}
	f.counts[d.Target.ID]++
	return d, &counted{pool: f, id: d.Target.ID}, nil
}

// counted ends at each call: a second call is detected.
type counted struct {
	pool *pool
	id   string
}

func (c *counted) FirstToken() {}

func (c *counted) Done(o router.Outcome) {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.pool.counts[c.id]--
	c.pool.ended = append(c.pool.ended, o)
}

func ids(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("vllm-%d", i)
	}
	return out
}
