// Package kvobserve tells one of the modules for metrics what a subscriber to KV
// events tells.
package kvobserve

import (
	"time"

	"github.com/warmroute/router/kvindex/zmqsub"
)

// Sink counts what happens to streams. It is safe for concurrent use.
type Sink interface {
	Transition(to string)
	Gap(id string, last, seq uint64)
	Malformed(id string)
	Overflow()
	Replay(id string)
	Lag(id string, lag time.Duration)
}

// Trace returns hooks that tell what sink returns, and then call those of next.
func Trace(sink func() Sink, next zmqsub.Trace) zmqsub.Trace {
	t := next
	t.Transition = func(id string, from, to zmqsub.State, why string) {
		sink().Transition(to.String())
		if next.Transition != nil {
			next.Transition(id, from, to, why)
		}
	}
	t.Gap = func(id string, last, seq uint64) {
		sink().Gap(id, last, seq)
		if next.Gap != nil {
			next.Gap(id, last, seq)
		}
	}
	t.Malformed = func(id string, err error) {
		sink().Malformed(id)
		if next.Malformed != nil {
			next.Malformed(id, err)
		}
	}
	t.Overflow = func(topic string) {
		sink().Overflow()
		if next.Overflow != nil {
			next.Overflow(topic)
		}
	}
	t.Replay = func(id string, start uint64) {
		sink().Replay(id)
		if next.Replay != nil {
			next.Replay(id, start)
		}
	}
	t.Lag = func(id string, lag time.Duration) {
		sink().Lag(id, lag)
		if next.Lag != nil {
			next.Lag(id, lag)
		}
	}
	return t
}
