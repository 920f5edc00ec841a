package config

import (
	"context"
	"net/http"
	"net/url"
	"sync/atomic"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
)

// rankHeader chooses among the data-parallel ranks behind one address (vLLM).
const rankHeader = "X-Data-Parallel-Rank"

// Target is what a decision's Target.Ref holds, as a *Target: where to send. It
// is not to be changed.
type Target struct {
	Provider string
	// Base is the provider's api_base without a /v1 at its end.
	Base *url.URL
	// Model is the name that the engine knows the model by, "" where the request's
	// own will do; see [Match.Rewrite].
	Model string
	// Rank is the data-parallel rank, -1 where there is one engine only.
	Rank int
	// Header is to be set on the request: the provider's authorization, its other
	// headers, and X-data-parallel-rank. What the client sent under the same names
	// must not go along.
	Header http.Header
}

// An offer is one target as a route offers it.
type offer struct {
	id     string
	at     int // its place in the view, as a hint
	weight float64
	target *Target
}

// A fleet is the part of the View that a route's targets are. It stays the same
// when the file changes, so that a request that was under way finds the new
// targets.
type fleet struct {
	view   *loadview.View
	offers atomic.Pointer[[]offer]
	buf    []router.Target // used inside Choose only, which the View does one at a time
}

// Choose offers the route's targets, with the weights that the route gives them.
func (f *fleet) Choose(ctx context.Context, pick func([]router.Target) (router.Decision, error)) (router.Decision, router.Flight, error) {
	return f.view.Choose(ctx, func(all []router.Target) (router.Decision, error) {
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
		return pick(buf)
	})
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
