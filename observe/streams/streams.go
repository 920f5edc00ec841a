// Package streams counts the events of KV event streams for a metrics library.
package streams

import (
	"time"

	"github.com/warmroute/router/kvindex/zmqsub"
)

// Sink counts the events of streams. It is safe for concurrent use. The arguments
// are those of zmqsub.Trace: id is the target's, to the name of a stream's new state,
// last and seq the sequence numbers before and after a gap, lag the age of a live
// message when it was applied.
type Sink interface {
	Transition(to string)
	Gap(id string, last, seq uint64)
	Malformed(id string)
	Overflow()
	Replay(id string)
	Lag(id string, lag time.Duration)
}

// Trace returns hooks that call the Sink that sink returns at the time, and then the
// hooks of next, each of which may be nil.
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
