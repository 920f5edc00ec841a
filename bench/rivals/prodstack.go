package rivals

import (
	"sync"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/rendezvous"
	"github.com/warmroute/router/strategy"
)

// LoadAwareConfig is the load-aware policy of the vLLM production stack. The zero
// LoadAwareConfig is its default.
//
//	score = matched tokens / tokens of the prompt - Beta x relative load, the greatest wins
//	relative load = (load - mean load) / max(1, mean load)
//
// where a load is the number of requests that the router has in flight. If no
// target holds a chunk of the prompt: the session's own place, and without a
// session the target with the lowest rate of requests (see SessionConfig).
//
// Sources: vllm-project/production-stack src/vllm_router/routers/routing_logic.py
// and docs.vllm.ai/projects/production-stack, "Load Aware Routing" (1.0).
type LoadAwareConfig struct {
	Common
	// Beta is how many full cache hits a target is docked that has twice the mean
	// load. 0 means 1.
	Beta float64
	// ChunkTokens is the unit of a match. 0 means 256, LMCache's (assumed).
	ChunkTokens int
	// Window is as in SessionConfig.
	Window int
}

// NewLoadAware returns the policy that c describes, or an error that names the bad
// field.
func NewLoadAware(c LoadAwareConfig) (*Strategy, error) {
	chunk, window := float64(c.ChunkTokens), float64(c.Window)
	err := set("LoadAwareConfig",
		value("Beta", &c.Beta, 1, 0, huge),
		value("ChunkTokens", &chunk, 256, 1, 1<<20),
		value("Window", &window, defaultWindow, 1, maxWindow))
	if err != nil {
		return nil, err
	}
	c.ChunkTokens = int(chunk)
	r := newRecent(int(window))
	return newStrategy(c.Common, loadAware{c, r}, r)
}

type loadAware struct {
	c      LoadAwareConfig
	recent *recent
}

func (l loadAware) choose(v *view) (int, router.Reason) {
	bytes := l.c.ChunkTokens * bytesPerToken
	if v.best < bytes {
		return l.recent.choose(v)
	}
	cost := v.loads(v.vals[0], inFlight)
	mean := v.spread(cost).mean
	for _, i := range v.ready {
		chunks, _ := v.blocks(i, bytes)
		cost[i] = l.c.Beta*(cost[i]-mean)/max(1, mean) - float64(chunks*bytes)/float64(v.key.Size())
	}
	return v.least(v.ready, cost, nil), ""
}

// SessionConfig is the session policy of the vLLM production stack: a session's
// own place on a hash ring, and without a session the target with the lowest rate
// of requests. It has no regard for load. The ring is rendezvous hashing here,
// which moves as little.
//
// Source: vllm-project/production-stack src/vllm_router/routers/routing_logic.py.
// There the rate is of the last minute; here it is counted over the last Window
// requests, which ranks the targets alike.
type SessionConfig struct {
	Common
	// Window is in requests. 0 means 512.
	Window int
}

const (
	defaultWindow = 512
	maxWindow     = 1 << 20
)

// NewSession returns the policy that c describes, or an error that names the bad
// field.
func NewSession(c SessionConfig) (*Strategy, error) {
	window := float64(c.Window)
	if err := set("SessionConfig", value("Window", &window, defaultWindow, 1, maxWindow)); err != nil {
		return nil, err
	}
	r := newRecent(int(window))
	return newStrategy(c.Common, r, r)
}

// recent counts the last requests sent.
type recent struct {
	mu   sync.Mutex
	last []string // a ring of target IDs
	next int
	of   map[string]int
}

func newRecent(window int) *recent {
	return &recent{last: make([]string, 0, window), of: make(map[string]int)}
}

func (r *recent) choose(v *view) (int, router.Reason) {
	if v.prompt.Session != "" {
		place := strategy.Tie{Seed: rendezvous.Hash(v.prompt.Session)} // of all places the greatest
		for _, i := range v.ready {
			place.Equal(i, v.targets)
		}
		return place.Best(), router.ReasonHash
	}
	r.mu.Lock()
	for _, i := range v.ready {
		v.vals[0][i] = float64(r.of[v.targets[i].ID]) / v.weight(i)
	}
	r.mu.Unlock()
	return v.least(v.ready, v.vals[0], nil), ""
}

func (r *recent) sent(d *router.Decision, _ *memo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.last) < cap(r.last) {
		r.last = append(r.last, d.Target.ID)
	} else {
		gone := r.last[r.next]
		if r.of[gone]--; r.of[gone] == 0 {
			delete(r.of, gone)
		}
		r.last[r.next] = d.Target.ID
		r.next = (r.next + 1) % len(r.last)
	}
	r.of[d.Target.ID]++
}

func (r *recent) token(*router.Decision, *memo) {}
func (r *recent) ended(*router.Decision, *memo) {}

// PrefixAwareConfig is the prefix-aware policy of the vLLM production stack: the
// target with the most chunks of the prompt, whatever its load; one of them at
// random if several are equal, and of all if none matches. The last chunk of a
// prompt may be shorter.
//
// Sources: vllm-project/production-stack src/vllm_router/routers/routing_logic.py
// and src/vllm_router/prefix/hashtrie.py (128 characters).
type PrefixAwareConfig struct {
	Common
	// ChunkBytes is the size of a chunk. 0 means 128.
	ChunkBytes int
}

// NewPrefixAware returns the policy that c describes, or an error that names the
// bad field.
func NewPrefixAware(c PrefixAwareConfig) (*Strategy, error) {
	chunk := float64(c.ChunkBytes)
	if err := set("PrefixAwareConfig", value("ChunkBytes", &chunk, 128, 1, 1<<20)); err != nil {
		return nil, err
	}
	return newStrategy(c.Common, prefixAware{int(chunk)}, nil)
}

type prefixAware struct{ chunk int }

func (p prefixAware) choose(v *view) (int, router.Reason) {
	cost := v.vals[0]
	for _, i := range v.ready {
		chunks := v.Cached[i] / p.chunk
		if v.Cached[i] == v.key.Size() && v.Cached[i]%p.chunk > 0 {
			chunks++
		}
		cost[i] = -float64(chunks)
	}
	return v.least(v.ready, cost, nil), ""
}
