package rivals

import (
	"fmt"
	"sync"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/textcache"
	"github.com/warmroute/router/trie"
)

// flight is a target's requests in flight that this strategy sent.
type flight struct {
	requests int
	waiting  int // those of them without a first token
	bytes    int // of distinct text: leads that prompts share count once
	shared   int // leading bytes of the prompt that is being picked for that are a part of bytes
}

// flights knows every target's flight. Its methods are safe for concurrent use.
type flights struct {
	mu    sync.Mutex
	texts *textcache.Cache // of the requests in flight only
	of    map[string]*flight
	one   textcache.Targets
	all   textcache.Targets
}

func newFlights(c Common) (*flights, error) {
	t, err := trie.New(trie.Config{MaxNodes: c.MaxNodes, MaxBytes: c.MaxBytes})
	if err != nil {
		return nil, fmt.Errorf("rivals: %w", err)
	}
	return &flights{texts: textcache.New(t), of: make(map[string]*flight)}, nil
}

// each calls back with the flight of every Ready target.
func (f *flights) each(v *view, tell func(i int, f flight)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.texts.Look(&v.key, v.targets, &f.all)
	for _, i := range v.ready {
		var is flight
		if of := f.of[v.targets[i].ID]; of != nil {
			is = *of
			is.shared = f.all.Cached[i]
		}
		tell(i, is)
	}
}

// alone returns how many bytes of the prompt no other one in flight at its target
// has.
func (f *flights) alone(d *router.Decision, m *memo) int {
	target := [1]router.Target{{ID: d.Target.ID}}
	f.texts.Look(&m.key, target[:], &f.one)
	return m.key.Size() - f.one.Cached[0]
}

func (f *flights) sent(d *router.Decision, m *memo) {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.of[d.Target.ID]
	if of == nil {
		of = new(flight)
		f.of[d.Target.ID] = of
	}
	of.requests++
	of.waiting++
	of.bytes += f.alone(d, m)
	m.flight = textcache.NewMemo(m.key)
	f.texts.Record(d, m.flight, &router.Outcome{Stage: router.Sent})
}

func (f *flights) token(d *router.Decision, _ *memo) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if of := f.of[d.Target.ID]; of != nil {
		of.waiting = max(of.waiting-1, 0)
	}
}

func (f *flights) ended(d *router.Decision, m *memo) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// As a failure before its first token it leaves nothing behind.
	f.texts.Record(d, m.flight, &router.Outcome{Stage: router.Failed})
	of := f.of[d.Target.ID]
	if of == nil {
		return
	}
	of.bytes = max(of.bytes-f.alone(d, m), 0)
	if m.stage == router.Sent {
		of.waiting = max(of.waiting-1, 0)
	}
	if of.requests--; of.requests <= 0 {
		delete(f.of, d.Target.ID)
	}
}
