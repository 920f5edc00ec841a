// Package zmqsub subscribes to an engine's KV events over ZeroMQ.
//
// It speaks ZeroMQ's protocol itself, in Go, and needs nothing installed. The build
// tag libzmq makes it use libzmq instead, with cgo, libzmq3-dev and pkg-config
// (Debian, Ubuntu), zeromq-devel (Fedora) or zeromq and pkg-config (Homebrew). Both
// behave the same.
//
// A [Subscriber] keeps one socket to one endpoint and feeds an index, for as many
// targets as the messages' topics tell apart. It notices what is missing, asks
// the engine's replay socket for it, and sees to it that a target is trusted only
// while what the index holds of it is true: see [State].
package zmqsub

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/kvindex"
	"go.uber.org/zap"
)

// Index is what a Subscriber feeds; *[kvindex.Index] is one. Each target's
// methods are called by one goroutine.
type Index interface {
	Apply(id string, seq uint64, b kvindex.Batch) error
	Reset(id string)
	Suspend(id string, out bool)
}

// Target is one engine, or one data-parallel rank, whose events come in over the
// endpoint. vLLM and SGLang publish those of each rank on a port of its own: then
// each has a Subscriber to its [RankEndpoint].
type Target struct {
	// ID is its name in the index.
	ID string
	// Ranks are the names in the index of the data-parallel ranks whose events come
	// in one stream, rank 0 first, as some publishers send them (Dynamo's for
	// TensorRT-LLM); the rank that a message names tells whose it is. Then ID is the
	// name of the stream alone, for hooks, logs and State. "" leaves a rank out. At
	// most 1,024.
	//
	// Without Ranks the events of two ranks in one stream are taken for a mistake:
	// what they tell together is true of neither, so the target is not trusted
	// until the connection is another.
	Ranks []string
	// Topic is what the topics of its messages begin with, such as
	// "kv@10.0.0.7@llama". Of several that fit the longest counts. "", the default
	// topic of engines, fits all.
	Topic string
	// Replay is the engine's replay endpoint, "tcp://host:port"; "" where it has
	// none. Without it every lost message and every lost connection empties the
	// target, which then learns anew from what comes.
	Replay string
}

// Config is what a Subscriber is made of. Endpoint, Targets and Index are needed;
// every other zero value is the documented default.
type Config struct {
	// Endpoint is where the engine publishes, "tcp://host:port", or with Bind the
	// address to listen on, "tcp://*:port".
	Endpoint string
	// Bind listens for engines that connect. It does not use libzmq in any build,
	// because libzmq does not report which of its peers went away.
	Bind bool
	// Targets are told apart by topic. At most 65,536.
	Targets []Target
	// Index is fed.
	Index Index
	// Egress says which addresses may be connected to.
	Egress egress.Policy

	// StaleAfter is how long a target stays trusted when its connection is lost; 0
	// means 30 s, a negative value not at all.
	StaleAfter time.Duration
	// Heartbeat is the time between ZeroMQ heartbeats; a peer that says nothing
	// for three of them is taken for dead. 0 means 5 s, a negative value none: then
	// a connection that is half open is not noticed.
	Heartbeat time.Duration
	// MinBackoff and MaxBackoff bound the wait before connecting again, which
	// doubles, with a random part. 0 means 100 ms and 10 s.
	MinBackoff, MaxBackoff time.Duration
	// DialTimeout bounds connecting and the handshake; 0 means 5 s.
	DialTimeout time.Duration
	// Queue is the number of messages, and QueueBytes that of their bytes, that
	// may wait to be applied; and, once more, per target, to wait for the end of a
	// replay. What comes beyond is dropped, which is a gap like any other. 0 means
	// 8,192, and 64 MiB.
	Queue, QueueBytes int
	// MaxMessage is the greatest message in bytes that is taken; the connection
	// that brings a greater one is closed. 0 means 16 MiB.
	MaxMessage int
	// ReplayTimeout bounds one replay, ReplayQuiet the time in it in which nothing
	// comes: engines drop messages when the reader is slow, the last one among
	// them. 0 means 30 s, and 2 s.
	ReplayTimeout, ReplayQuiet time.Duration
	// MaxPeers bounds the engines that connect with Bind; 0 means 1,024.
	MaxPeers int

	// Logger is told every transition once; nil: nobody.
	Logger *zap.Logger
	// Trace is told what happens.
	Trace Trace
}

// Trace has hooks, each of which may be nil. They are called by the goroutines of
// Run, which wait for them.
type Trace struct {
	// Transition tells of a target's new state.
	Transition func(id string, from, to State, why string)
	// Gap tells of missing messages: seq came, and last was the one before.
	Gap func(id string, last, seq uint64)
	// Malformed tells of a message that could not be read. The id is "" where it
	// could not be told whose it was.
	Malformed func(id string, err error)
	// Overflow tells of a message that was dropped because the queue was full.
	Overflow func(topic string)
	// Replay tells of a replay that was asked for, from the message start on.
	Replay func(id string, start uint64)
	// Lag tells of a message that was applied as it came, outside of a replay, how
	// long before that the engine had made it. It is by the clocks of both machines,
	// so it is less than 0 where the engine's is ahead. Messages without a time are
	// not told of.
	Lag func(id string, lag time.Duration)
}

// Stats is what a Subscriber has counted.
type Stats struct {
	Messages   uint64 // received live
	Replayed   uint64 // received in replays
	Gaps       uint64
	Replays    uint64 // asked for
	Malformed  uint64
	Overflows  uint64 // messages dropped because the queue was full
	Unknown    uint64 // messages whose topic fits no target, or whose rank none of its Ranks
	Connects   uint64
	Disconnect uint64
	// Transitions counts them by the state that was entered.
	Transitions [Down + 1]uint64
}

type counters struct {
	messages, replayed, gaps, replays, malformed, overflows, unknown, connects, disconnects atomic.Uint64
	transitions                                                                             [Down + 1]atomic.Uint64
}

// Subscriber feeds an index. Its methods are safe for concurrent use.
type Subscriber struct {
	cfg     Config
	log     *zap.Logger
	n       counters
	states  []atomic.Uint32 // by target
	running atomic.Bool
	addr    atomic.Pointer[string]
	network func(egress.Policy) (network, error)
}

// New returns a Subscriber, which does nothing before Run. A bad value is an
// error that names the field.
func New(cfg Config) (*Subscriber, error) {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf("zmqsub: "+format, a...)) }
	if _, err := address(cfg.Endpoint, cfg.Bind); err != nil {
		bad("Endpoint: %w", err)
	} else if !cfg.Bind {
		if err := cfg.Egress.CheckURL(cfg.Endpoint); err != nil {
			bad("Endpoint: %w", err)
		}
	}
	if err := cfg.Egress.Validate(); err != nil {
		bad("Egress: %w", err)
	}
	if cfg.Index == nil {
		bad("Index is nil")
	}
	if len(cfg.Targets) == 0 || len(cfg.Targets) > 1<<16 {
		bad("Targets: there are %d; it must be between 1 and 65,536", len(cfg.Targets))
	}
	ids, topics := make(map[string]bool), make(map[string]bool)
	for i, t := range cfg.Targets {
		if t.ID == "" || ids[t.ID] {
			bad("Targets[%d].ID: %q is empty or there twice", i, t.ID)
		}
		ids[t.ID] = true
		if len(t.Ranks) > maxRanks || len(t.Ranks) > 0 && len(t.names()) == 0 {
			bad("Targets[%d].Ranks: there are %d, %d with a name; it must be at most %d, and one with a name", i, len(t.Ranks), len(t.names()), maxRanks)
		}
		for _, id := range t.Ranks {
			if id != "" && ids[id] {
				bad("Targets[%d].Ranks: %q is there twice", i, id)
			}
			ids[id] = true
		}
		if topics[t.Topic] {
			bad("Targets[%d].Topic: %q is there twice", i, t.Topic)
		}
		if len(t.Topic) > maxTopic {
			bad("Targets[%d].Topic has more than %d bytes", i, maxTopic)
		}
		topics[t.Topic] = true
		if t.Replay == "" {
			continue
		}
		if _, err := address(t.Replay, false); err != nil {
			bad("Targets[%d].Replay: %w", i, err)
		} else if err := cfg.Egress.CheckURL(t.Replay); err != nil {
			bad("Targets[%d].Replay: %w", i, err)
		}
	}
	defaults := func(name string, v *time.Duration, def time.Duration, negative bool) {
		if *v == 0 {
			*v = def
		}
		if *v < 0 && !negative {
			bad("%s is %v; it must not be negative", name, *v)
		}
	}
	defaults("StaleAfter", &cfg.StaleAfter, 30*time.Second, true)
	defaults("Heartbeat", &cfg.Heartbeat, 5*time.Second, true)
	defaults("MinBackoff", &cfg.MinBackoff, 100*time.Millisecond, false)
	defaults("MaxBackoff", &cfg.MaxBackoff, max(10*time.Second, cfg.MinBackoff), false)
	defaults("DialTimeout", &cfg.DialTimeout, 5*time.Second, false)
	defaults("ReplayTimeout", &cfg.ReplayTimeout, 30*time.Second, false)
	defaults("ReplayQuiet", &cfg.ReplayQuiet, 2*time.Second, false)
	if cfg.MaxBackoff < cfg.MinBackoff {
		bad("MaxBackoff is %v, less than MinBackoff, %v", cfg.MaxBackoff, cfg.MinBackoff)
	}
	for _, f := range []struct {
		name     string
		v        *int
		def, top int
	}{
		{"Queue", &cfg.Queue, 8192, 1 << 20}, {"QueueBytes", &cfg.QueueBytes, 64 << 20, 1 << 32},
		{"MaxMessage", &cfg.MaxMessage, 16 << 20, 64 << 20}, {"MaxPeers", &cfg.MaxPeers, 1024, 1 << 16},
	} {
		if *f.v < 0 || *f.v > f.top {
			bad("%s is %d; it must be between 0 and %d", f.name, *f.v, f.top)
		}
		if *f.v == 0 {
			*f.v = f.def
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
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

const (
	maxTopic = 4 << 10 // bytes
	maxRanks = 1 << 10
)

// Stats returns what has been counted.
func (s *Subscriber) Stats() Stats {
	st := Stats{
		Messages: s.n.messages.Load(), Replayed: s.n.replayed.Load(), Gaps: s.n.gaps.Load(), Replays: s.n.replays.Load(),
		Malformed: s.n.malformed.Load(), Overflows: s.n.overflows.Load(), Unknown: s.n.unknown.Load(),
		Connects: s.n.connects.Load(), Disconnect: s.n.disconnects.Load(),
	}
	for i := range st.Transitions {
		st.Transitions[i] = s.n.transitions[i].Load()
	}
	return st
}

// State returns what is known of a target's stream, which the ranks of Target.Ranks
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

// RankEndpoint returns the endpoint of a data-parallel rank, as engines choose
// it: the port of rank 0 and the rank.
func RankEndpoint(endpoint string, rank int) (string, error) {
	a, err := address(endpoint, true)
	if err != nil {
		return "", fmt.Errorf("zmqsub: endpoint: %w", err)
	}
	host, port, _ := net.SplitHostPort(a)
	n, _ := strconv.Atoi(port)
	if rank < 0 || rank > 65535-n {
		return "", fmt.Errorf("zmqsub: %s has no port for rank %d", endpoint, rank)
	}
	if host == "" {
		host = "*"
	}
	return "tcp://" + net.JoinHostPort(host, strconv.Itoa(n+rank)), nil
}

// address returns the host and port of an endpoint. To listen, "*" stands for
// all addresses, and port 0 is one of the system's choice.
func address(endpoint string, listen bool) (string, error) {
	rest, ok := strings.CutPrefix(endpoint, "tcp://")
	if !ok {
		return "", fmt.Errorf("%q does not begin with tcp://", redact(endpoint))
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		return "", fmt.Errorf("%q is not tcp://host:port", redact(endpoint))
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 && !listen {
		return "", fmt.Errorf("%q is not a port", port)
	}
	if host == "*" {
		host = ""
	}
	if host == "" && !listen {
		return "", fmt.Errorf("%q names no host to connect to", endpoint)
	}
	if strings.ContainsAny(host, "@/?# ") {
		return "", fmt.Errorf("%q is not tcp://host:port", redact(endpoint))
	}
	return net.JoinHostPort(host, port), nil
}

// redact keeps a password out of an error.
func redact(endpoint string) string {
	if u, err := url.Parse(endpoint); err == nil {
		return u.Redacted()
	}
	if strings.Contains(endpoint, "@") {
		return "the endpoint"
	}
	return endpoint
}
