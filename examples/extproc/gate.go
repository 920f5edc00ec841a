package main

import (
	"context"
	"errors"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/warmroute/router"
)

var errSaturated = errors.New("every replica is full")

// gate is the fleet as one request may use it: the subset that Envoy named, and
// nothing if all of it is full.
type gate struct {
	router.Fleet
	maxLoad int
}

// hint has the data that a request's context passes to its gate.
type hint struct {
	subset  map[string]bool // the endpoints that may be named; nil: all
	explain bool            // the request itself has found its place
}

type hintKey struct{}

// Choose is that of a router.Fleet.
func (g gate) Choose(
	ctx context.Context, pick func([]router.Target) (router.Decision, error),
) (router.Decision, router.Flight, error) {
	return g.Fleet.Choose(ctx, g.offered(ctx, pick))
}

// ChoosePrompt is that of a router.PromptChooser, if the fleet is one: it knows which
// targets are full for the prompt's model and account.
func (g gate) ChoosePrompt(
	ctx context.Context, p router.Prompt, pick func([]router.Target) (router.Decision, error),
) (router.Decision, router.Flight, error) {
	if c, ok := g.Fleet.(router.PromptChooser); ok {
		return c.ChoosePrompt(ctx, p, g.offered(ctx, pick))
	}
	return g.Choose(ctx, pick)
}

// Changed is that of a router.ChangeNotifier; nil if the fleet is none.
func (g gate) Changed() <-chan struct{} {
	if n, ok := g.Fleet.(router.ChangeNotifier); ok {
		return n.Changed()
	}
	return nil
}

// ReadyIn is that of a router.ReadyTimer; 0 if the fleet is none.
func (g gate) ReadyIn(p router.Prompt, ids []string) time.Duration {
	if f, ok := g.Fleet.(router.ReadyTimer); ok {
		return f.ReadyIn(p, ids)
	}
	return 0
}

// OnForget is that of a router.ForgetNotifier.
func (g gate) OnForget(f func(id string)) (stop func()) {
	if n, ok := g.Fleet.(router.ForgetNotifier); ok {
		return n.OnForget(f)
	}
	return func() {}
}

// offered is pick for the targets that the request of ctx may use.
func (g gate) offered(
	ctx context.Context, pick func([]router.Target) (router.Decision, error),
) func([]router.Target) (router.Decision, error) {
	h, _ := ctx.Value(hintKey{}).(*hint)
	if h == nil {
		return pick
	}
	return func(all []router.Target) (router.Decision, error) {
		if h.subset != nil {
			var some []router.Target // all is the fleet's
			for _, t := range all {
				if h.subset[t.ID] {
					some = append(some, t)
				}
			}
			all = some
		}
		if g.maxLoad > 0 && !h.explain && g.full(all) {
			return router.Decision{}, errSaturated
		}
		return pick(all)
	}
}

func (g gate) full(ts []router.Target) bool {
	ready := false
	for _, t := range ts {
		if t.State != router.Ready {
			continue
		}
		weight := t.Weight
		if !(weight > 0) {
			weight = 1
		}
		if float64(t.Load.InFlight+t.Load.Queued) < float64(g.maxLoad)*weight {
			return false
		}
		ready = true
	}
	return ready
}

// The names of the endpoint-picker protocol.
const (
	endpointKey     = "x-gateway-destination-endpoint"
	servedKey       = "x-gateway-destination-endpoint-served"
	subsetKey       = "x-gateway-destination-endpoint-subset"
	lbNamespace     = "envoy.lb"
	subsetNamespace = "envoy.lb.subset_hint"
)

// read takes the subset from a message's metadata: a list, or one string with
// commas.
func (h *hint) read(m *core.Metadata) {
	v := m.GetFilterMetadata()[subsetNamespace].GetFields()[subsetKey]
	if v == nil || h.subset != nil {
		return
	}
	h.subset = map[string]bool{}
	for _, e := range v.GetListValue().GetValues() {
		h.subset[strings.TrimSpace(e.GetStringValue())] = true
	}
	for e := range strings.SplitSeq(v.GetStringValue(), ",") {
		h.subset[strings.TrimSpace(e)] = true
	}
}
