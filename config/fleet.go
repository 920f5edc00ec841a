package config

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
)

// Target is the address of a replica. Target.Ref of a decision is a *Target, which must
// not be changed.
type Target struct {
	Provider string
	// Base is the provider's api_base without a /v1 at its end.
	Base *url.URL
	// Model is the engine's name for the model; "": the name in the request. See
	// [Match.Rewrite].
	Model string
	// Rank is the data-parallel rank, -1 if there is one engine only.
	Rank int
	// Role, Zone, Connector and BootstrapPort are the provider's.
	Role, Zone, Connector string
	BootstrapPort         int
	// Header is to be set on the request: the provider's authorization, its other
	// headers, and X-data-parallel-rank. The client's own headers of the same names must
	// not be sent.
	Header http.Header
}

// An offer is one target as a route offers it.
type offer struct {
	id     string
	at     int // its place in the view, as a hint
	weight float64
	target *Target
}

// A fleet is the part of the View that a route offers. It stays the same when the file
// changes, so that a request that was under way finds the new targets.
type fleet struct {
	view   *loadview.View
	change *change
	offers atomic.Pointer[[]offer]
	buf    []router.Target // used inside Choose only, which the View does one at a time
}

// Choose offers the route's targets, with the weights that the route gives them.
func (f *fleet) Choose(
	ctx context.Context, pick func([]router.Target) (router.Decision, error),
) (router.Decision, router.Flight, error) {
	return f.view.ChoosePart(ctx, router.Prompt{}, f.part, pick)
}

// ChoosePrompt is Choose by the limits that hold for p.
func (f *fleet) ChoosePrompt(
	ctx context.Context, p router.Prompt, pick func([]router.Target) (router.Decision, error),
) (router.Decision, router.Flight, error) {
	return f.view.ChoosePart(ctx, p, f.part, pick)
}

// ReadyIn is that of a [router.ReadyTimer].
func (f *fleet) ReadyIn(p router.Prompt, ids []string) time.Duration { return f.view.ReadyIn(p, ids) }

// part returns the route's targets of all.
func (f *fleet) part(all []router.Target) []router.Target {
	buf := f.buf[:0]
	for _, o := range *f.offers.Load() {
		at := o.at
		if at >= len(all) || all[at].ID != o.id {
			if at = find(all, o.id); at < 0 {
				continue
			}
		}
		t := all[at]
		t.Weight, t.Ref = o.weight, o.target
		buf = append(buf, t)
	}
	f.buf = buf
	return buf
}

// Changed returns a channel that is closed when a target joins or becomes Ready, or a
// route has others; see [router.ChangeNotifier].
func (f *fleet) Changed() <-chan struct{} { return f.change.wait() }

// A change is a channel that is closed by the next change of a Gateway's targets.
type change struct {
	mu sync.Mutex
	ch chan struct{} // nil: nobody waits
}

func (c *change) wait() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ch == nil {
		c.ch = make(chan struct{})
	}
	return c.ch
}

func (c *change) notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ch != nil {
		close(c.ch)
		c.ch = nil
	}
}

// find is for the moment in which the View has other members than the offers.
func find(all []router.Target, id string) int {
	for i := range all {
		if all[i].ID == id {
			return i
		}
	}
	return -1
}
