package routertest

import (
	"context"
	"sync"

	"github.com/warmroute/router"
)

// Lease is a lease for the test of a host: its reports go nowhere but into the
// Lease itself. Its methods are safe for concurrent use.
type Lease struct {
	*router.Lease

	mu      sync.Mutex
	token   bool
	settled bool
	outcome router.Outcome
}

// NewLease returns a lease of d, for the life of ctx, as a Router over a fleet of
// d.Target alone gives it. The error is ctx's cause if ctx is done.
func NewLease(ctx context.Context, d router.Decision) (*Lease, error) {
	l := new(Lease)
	d.Target.State = router.Ready // whatever it was, it has been chosen
	var err error
	l.Lease, err = router.New(given(d), oneTarget{l, d.Target}, router.Options{Attempts: -1}).Route(ctx, d.Prompt)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// SawToken reports whether the first token was reported.
func (l *Lease) SawToken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// Outcome returns the lease's Outcome, with its Stage derived, and whether it was
// settled.
func (l *Lease) Outcome() (o router.Outcome, settled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outcome, l.settled
}

// given is a strategy that always decides the same.
type given router.Decision

func (g given) Pick(context.Context, router.Prompt, []router.Target) (router.Decision, error) {
	return router.Decision(g), nil
}

func (given) Record(router.Decision, router.Outcome) {}

// oneTarget is a fleet of one target, and the flight of the one lease on it.
type oneTarget struct {
	lease  *Lease
	target router.Target
}

func (f oneTarget) Choose(
	_ context.Context, pick func([]router.Target) (router.Decision, error),
) (router.Decision, router.Flight, error) {
	d, err := pick([]router.Target{f.target})
	if err != nil {
		return router.Decision{}, nil, err
	}
	return d, f, nil
}

func (f oneTarget) FirstToken() {
	f.lease.mu.Lock()
	defer f.lease.mu.Unlock()
	f.lease.token = true
}

func (f oneTarget) Done(o router.Outcome) {
	f.lease.mu.Lock()
	defer f.lease.mu.Unlock()
	f.lease.settled = true
	f.lease.outcome = o
}
