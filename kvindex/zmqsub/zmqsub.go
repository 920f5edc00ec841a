// Package zmqsub subscribes to an engine's KV events over ZeroMQ.
//
// It speaks ZeroMQ's protocol itself, in Go, and needs nothing installed. The build
// tag libzmq makes it use libzmq instead, with cgo, libzmq3-dev and pkg-config
// (Debian, Ubuntu), zeromq-devel (Fedora) or zeromq and pkg-config (Homebrew). Both
// behave the same.
//
// A [Subscriber] keeps one socket to one endpoint and feeds an index, for as many
// targets as the messages' topics distinguish. It notices missing messages, asks the
// engine's replay socket for them, and keeps a target trusted only while the index's
// blocks of it are true: see [State].
package zmqsub

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/warmroute/router/egress"
	"go.uber.org/zap"
)

// Trace has hooks, each of which may be nil. They are called by the goroutines of
// Run, which wait for them.
type Trace struct {
	// Transition reports a target's new state.
	Transition func(id string, from, to State, why string)
	// Gap reports missing messages: seq came, and last was the one before.
	Gap func(id string, last, seq uint64)
	// Malformed reports a message that could not be read. The id is "" if its target is
	// not known.
	Malformed func(id string, err error)
	// Overflow reports a message that was dropped because the queue was full.
	Overflow func(topic string)
	// Contested reports, with Bind, a message for the target that came over another
	// connection than the target's, which is alive. It was dropped.
	Contested func(id, topic string)
	// Replay reports a replay that was asked for, from the message start on.
	Replay func(id string, start uint64)
	// Lag reports how long before a message was applied the engine had made it. It is
	// called for live messages that have a time, outside of a replay. It is by the
	// clocks of both machines, so it is less than 0 if the engine's is ahead.
	Lag func(id string, lag time.Duration)
}

// Stats are the counters of a Subscriber.
type Stats struct {
	Messages    uint64 // received live
	Replayed    uint64 // received in replays
	Gaps        uint64
	Replays     uint64 // asked for
	Malformed   uint64
	Overflows   uint64 // messages dropped because the queue was full
	Contested   uint64 // messages dropped because the target has another connection, which is alive
	Unknown     uint64 // messages with a topic of no target, or a rank of none of its Ranks
	Connects    uint64
	Disconnects uint64
	// Waiting is the number of bytes of messages that wait to be applied now.
	Waiting int64
	// Transitions counts them by the state that was entered.
	Transitions [Down + 1]uint64
}

type counters struct {
	messages, replayed, gaps, replays, malformed, overflows atomic.Uint64
	contested, unknown, connects, disconnects               atomic.Uint64
	transitions                                             [Down + 1]atomic.Uint64
}

// Subscriber feeds an index. Its methods are safe for concurrent use.
type Subscriber struct {
	cfg     Config
	log     *zap.Logger
	n       counters
	states  []atomic.Uint32 // by target
	running atomic.Bool
	// Messages that wait, and messages in replays.
	liveBytes, replyBytes budget
	addr                  atomic.Pointer[string]
	network               func(egress.Policy) (network, error)
}

// New returns a Subscriber, which does nothing before Run. The error has a
// *router.ConfigError for each field of cfg with a value that is not allowed.
func New(cfg Config) (*Subscriber, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	cfg.Targets = append([]Target(nil), cfg.Targets...)
	for i := range cfg.Targets {
		cfg.Targets[i].Ranks = slices.Clone(cfg.Targets[i].Ranks)
	}
	s := &Subscriber{cfg: cfg, log: cfg.Logger, network: newNetwork, states: make([]atomic.Uint32, len(cfg.Targets))}
	if s.log == nil {
		s.log = zap.NewNop()
	}
	return s, nil
}

// Stats returns the counters.
func (s *Subscriber) Stats() Stats {
	st := Stats{
		Messages: s.n.messages.Load(), Replayed: s.n.replayed.Load(), Gaps: s.n.gaps.Load(), Replays: s.n.replays.Load(),
		Malformed: s.n.malformed.Load(), Overflows: s.n.overflows.Load(),
		Contested: s.n.contested.Load(), Unknown: s.n.unknown.Load(),
		Connects: s.n.connects.Load(), Disconnects: s.n.disconnects.Load(),
	}
	st.Waiting = s.liveBytes.kept() + s.replyBytes.kept()
	for i := range st.Transitions {
		st.Transitions[i] = s.n.transitions[i].Load()
	}
	return st
}

// State returns the state of a target's stream, which the ranks of Target.Ranks
// share; Cold for one that is none of Config.Targets.
func (s *Subscriber) State(id string) State {
	for i := range s.cfg.Targets {
		if t := &s.cfg.Targets[i]; t.ID == id || id != "" && slices.Contains(t.Ranks, id) {
			return State(s.states[i].Load())
		}
	}
	return Cold
}

// Addr returns the address that is listened on with Bind, "" before.
func (s *Subscriber) Addr() string {
	if a := s.addr.Load(); a != nil {
		return *a
	}
	return ""
}
