package warmroute

import (
	"context"
	"fmt"
	"sync"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/warmroute/router"
)

// idle is how many upstreams beyond the offered ones are known with nothing in
// flight before they are let go: a source of dynamic ones may name ever new ones.
const idle = 1024

// fleet is the router.Fleet of the upstreams that a request's pool offers, which
// may be another for each request. It counts; whether an upstream may be picked is
// for Caddy to say. The zero fleet is ready to use.
type fleet struct {
	mu      sync.Mutex
	known   map[string]*counts
	offers  uint64
	targets []router.Target // of the Choose under way
}

// counts are the requests in flight on one upstream. They are guarded by fleet.mu.
type counts struct {
	id                string // the same string in every offer
	inFlight, prefill int
	offer             uint64 // the last one it was part of
}

// Choose offers the pool of the exchange in ctx.
func (f *fleet) Choose(
	ctx context.Context, pick func([]router.Target) (router.Decision, error),
) (router.Decision, router.Flight, error) {
	x, ok := ctx.Value(exchangeKey{}).(*exchange)
	if !ok {
		return router.Decision{}, nil, &router.NoTargetError{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.offer(x.pool, x.policy.Weights)
	defer func() { clear(f.targets) }() // holds no upstream of a configuration that is gone
	d, err := pick(f.targets)
	if err != nil {
		return router.Decision{}, nil, err
	}
	c := f.known[d.Target.ID]
	if c == nil || c.offer != f.offers {
		return router.Decision{}, nil, fmt.Errorf("warmroute: %q was not offered", d.Target.ID)
	}
	fl := &flight{fleet: f, on: c, prefill: max(d.Length-d.Cached, 0)}
	if d.Unit == router.Bytes {
		fl.prefill /= 4 // bytes a token, about
	}
	c.inFlight++
	c.prefill += fl.prefill
	return d, fl, nil
}

// offer makes f.targets of pool. An upstream that is in it twice is offered once.
func (f *fleet) offer(pool reverseproxy.UpstreamPool, weights map[string]float64) {
	f.offers++
	f.targets = f.targets[:0]
	for _, u := range pool {
		c := f.known[u.Dial]
		if c == nil {
			c = &counts{id: u.Dial}
			if f.known == nil {
				f.known = make(map[string]*counts)
			}
			f.known[c.id] = c
		}
		if c.offer == f.offers {
			continue
		}
		c.offer = f.offers
		// Caddy counts too, a little later than this fleet, and includes requests
		// of other handlers to the same address.
		all := max(u.NumRequests(), c.inFlight)
		t := router.Target{
			ID:     c.id,
			Weight: weights[c.id],
			Load:   router.Load{Known: true, InFlight: c.inFlight, Queued: all - c.inFlight, Prefill: c.prefill},
			Ref:    u,
		}
		switch {
		case !u.Healthy():
			t.State = router.Unhealthy
		case u.MaxRequests > 0 && all >= u.MaxRequests:
			t.State = router.Draining // finishes its requests and takes no new ones
		}
		f.targets = append(f.targets, t)
	}
	if len(f.known) > len(f.targets)+idle {
		for id, c := range f.known {
			if c.offer != f.offers && c.inFlight == 0 {
				delete(f.known, id)
			}
		}
	}
}

// inFlight returns the number of requests on each upstream that is known.
func (f *fleet) inFlight() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := make(map[string]int, len(f.known))
	for id, c := range f.known {
		m[id] = c.inFlight
	}
	return m
}

// flight is one counted request.
type flight struct {
	fleet   *fleet
	on      *counts
	prefill int
	done    bool
}

// FirstToken subtracts the prompt from the tokens that wait for prefill.
func (fl *flight) FirstToken() {
	fl.fleet.mu.Lock()
	defer fl.fleet.mu.Unlock()
	fl.on.prefill -= fl.prefill
	fl.prefill = 0
}

// Done takes the request off the counters.
func (fl *flight) Done(router.Outcome) {
	fl.FirstToken()
	fl.fleet.mu.Lock()
	defer fl.fleet.mu.Unlock()
	if !fl.done {
		fl.done = true
		fl.on.inFlight--
	}
}
