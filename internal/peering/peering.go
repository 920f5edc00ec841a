// Package peering is the line between the packages that use the other gateways of a fleet and package share, which
// knows them: a program without share links nothing of it.
package peering

import "time"

// Inside keeps methods of public packages inside the module: nobody else can name it.
type Inside struct{}

// Mark is a fingerprint on the bus: 48 bits, and not 0.
type Mark uint64

// Gauge is the load on one target.
type Gauge struct {
	InFlight int64 // requests
	Prefill  int64 // tokens that wait for prefill
	Context  int64 // tokens of the requests in flight
	Recorded int64 // prompts
}

// Kind is the kind of a piece of news.
type Kind uint8

// The kinds of news. The first ones are what an engine said, and hold for all gateways; a hint is a conclusion of one
// gateway, and changes nothing by itself.
const (
	Refused     Kind = iota + 1 // it is full for a model and an account for a time
	Paused                      // it asked to be left alone for a time
	Restarted                   // it was started again, at a time by its own clock
	Asleep                      // it sleeps, or not
	Bound                       // it has the state with an id
	Hint                        // a gateway leaves it alone for a time
	AdapterUsed                 // an adapter is loaded at it, and was used so often
)

// LeastAge is the least age of a prompt at which a denial counts: a younger one may not be computed yet.
const LeastAge = 10 * time.Second

// Chain has the marks of one prompt.
type Chain any

// Local is the gauge of this gateway's own load on one target.
type Local interface {
	Set(inFlight, prefill, context int64)
}

// Sum is the load of all other gateways on one target.
type Sum interface{ Load() Gauge }

// Node is one gateway's part in the fleet. Its methods are those of sharing.Node.
type Node interface {
	Now() time.Duration

	Chain(scope, text string) Chain
	Extend(c Chain, text, more string) Chain // nil if there are no further marks
	Match(c Chain, ids []string, held []int, many int) (shared int)
	Recent(c Chain, ids []string, held []int, age time.Duration)
	Sent(id string, c Chain)
	More(id string, c Chain)
	Unsent(id string, c Chain)
	Known(c Chain) (held int, age time.Duration)
	Deny(id string, age time.Duration)
	Confirm(id string, age time.Duration)
	OnDeny(f func(id string, age time.Duration) bool)
	Recorder(r any, f func(id string) (n int, ok bool))
	Forget(id string)

	Local(id string) Local
	Sum(id string) Sum // nil beyond the bound of targets
	Leave(id string)   // ends the use of a Sum
	Elsewhere(ids []string, dst []Gauge) []Gauge
	LoadShared() bool
	Watch(f func(ids []string)) (stop func())
	Unseen() float64
	Position(moment int) float64

	Pass(kind Kind, id string, body []byte)
	OnNews(kind Kind, f func(id string, body []byte, age time.Duration) bool)
	Session(parts ...string) Mark
	Pin(session Mark, id string, moved bool)
	Pinned(session Mark) (id string, age time.Duration, moved, ok bool)
}

// Of returns the Node of s, nil if there is none.
func Of(s interface{ Inside(Inside) Node }) Node {
	if s == nil {
		return nil
	}
	return s.Inside(Inside{})
}
