package rivals

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/rendezvous"
	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/strategy"
)

// CHWBLConfig is consistent hashing with bounded loads over a prompt's lead, as
// KubeAI's PrefixHash does it. The zero CHWBLConfig is its default.
//
//	key = the first PrefixBytes of the first user message; of a text without messages, its first bytes
//	from the key's place on the ring, the first target with
//	  requests + 1 <= LoadFactor x (all requests + 1) / targets
//	none -> the first one at that place
//
// Requests are those in flight from this process. With few in flight the bound is
// below 1 for everybody, so that the second rule decides: a burst stays at the
// key's own place until LoadFactor x (all + 1) reaches the number of targets.
//
// A prompt without a user message has the empty key, as there. The key is hashed
// with the prompt's scope (assumed: KubeAI keeps a ring for each model and puts the
// adapter before the key).
//
// Sources: substratusai/kubeai internal/loadbalancer/balance_chwbl.go,
// api/k8s/v1/model_types.go (125 %, 100, 256), api/openai/v1/chat_completion.go.
type CHWBLConfig struct {
	Common
	// LoadFactor is at least 1. 0 means 1.25.
	LoadFactor float64
	// PrefixBytes is the key's length. 0 means 100, characters in the original.
	PrefixBytes int
	// Replication is how often each target is on the ring. 0 means 256.
	Replication int
}

// NewCHWBL returns the policy that c describes, or an error that names the bad
// field.
func NewCHWBL(c CHWBLConfig) (*Strategy, error) {
	prefix, replication := float64(c.PrefixBytes), float64(c.Replication)
	err := set("CHWBLConfig",
		value("LoadFactor", &c.LoadFactor, 1.25, 1, huge),
		value("PrefixBytes", &prefix, 100, 1, 1<<20),
		value("Replication", &replication, 256, 1, 1<<12))
	if err != nil {
		return nil, err
	}
	c.PrefixBytes, c.Replication = int(prefix), int(replication)
	// How package prompt opens a user's message, learned from it.
	like, err := prompt.FromChat([]byte(`{"messages":[{"role":"user","content":"x"}]}`))
	if err != nil {
		return nil, fmt.Errorf("rivals: CHWBLConfig: %w", err)
	}
	return newStrategy(c.Common, &chwbl{c: c, user: strings.TrimSuffix(like.Text, "x")}, nil)
}

type chwbl struct {
	c    CHWBLConfig
	user string // opens a user's message

	mu   sync.Mutex
	ids  []string // that ring was made for, in the order in which they were offered
	ring []point
}

// point is a place on the ring.
type point struct {
	at uint64
	id string
}

func (c *chwbl) choose(v *view) (int, router.Reason) {
	load := v.loads(v.vals[0], inFlight)
	var all, room strategy.Sum
	for _, i := range v.ready {
		all.Add(load[i] * v.weight(i))
		room.Add(v.weight(i))
	}
	bound := c.c.LoadFactor * (all.Float() + 1) / room.Float()
	ring := c.points(v)
	index := make(map[string]int, len(v.ready))
	for _, i := range v.ready {
		if _, twice := index[v.targets[i].ID]; !twice {
			index[v.targets[i].ID] = i
		}
	}
	from, _ := slices.BinarySearchFunc(ring, c.key(&v.prompt),
		func(p point, key uint64) int { return cmp.Compare(p.at, key) })
	first := index[ring[from%len(ring)].id]
	for n := range ring {
		i := index[ring[(from+n)%len(ring)].id]
		if load[i]+1/v.weight(i) <= bound {
			if i != first {
				return i, router.ReasonHashOverflow
			}
			break
		}
	}
	return first, router.ReasonHash
}

// key is the prompt's place on the ring.
func (c *chwbl) key(p *router.Prompt) uint64 {
	lead := p.Text
	opening := c.user[:min(len(c.user), 1)] // of any message
	if opening != "" && strings.Contains(lead, opening) {
		_, lead, _ = strings.Cut(lead, c.user) // "" if there is none
		lead, _, _ = strings.Cut(lead, opening)
	}
	h := rendezvous.Hash(p.Scope() + "\x00" + lead[:min(len(lead), c.c.PrefixBytes)])
	if p.Text == "" {
		for _, id := range p.Tokens[:min(len(p.Tokens), max(c.c.PrefixBytes/bytesPerToken, 1))] {
			h = rendezvous.Mix(h ^ uint64(id))
		}
	}
	return h
}

// points returns the ring of the Ready targets. It is rebuilt when they change.
func (c *chwbl) points(v *view) []point {
	c.mu.Lock()
	defer c.mu.Unlock()
	same := len(c.ids) == len(v.ready)
	for n := 0; same && n < len(v.ready); n++ {
		same = c.ids[n] == v.targets[v.ready[n]].ID
	}
	if same {
		return c.ring
	}
	c.ids, c.ring = nil, nil // readers of the old ring keep it
	for _, i := range v.ready {
		id := v.targets[i].ID
		c.ids = append(c.ids, id)
		for n := range c.c.Replication {
			c.ring = append(c.ring, point{at: rendezvous.Hash(fmt.Sprint(id, n)), id: id})
		}
	}
	slices.SortFunc(c.ring, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id))
	})
	return c.ring
}
