package zmqsub

import (
	"fmt"
	"math"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/egress"
	"github.com/warmroute/router/internal/configerr"
	"github.com/warmroute/router/kvindex"
	"github.com/warmroute/router/membudget"
	"go.uber.org/zap"
)

// Index is fed by a Subscriber; *[kvindex.Index] implements it. Calls for one target
// come from one goroutine.
type Index interface {
	Apply(id string, seq uint64, b kvindex.Batch) error
	Reset(id string)
	Suspend(id string, out bool)
}

// Target is one engine, or one data-parallel rank, that publishes its events on
// the endpoint. vLLM and SGLang publish those of each rank on a separate port:
// then each has a Subscriber to its [RankEndpoint].
type Target struct {
	// ID is its name in the index.
	ID string
	// Ranks are the names in the index of the data-parallel ranks with events in
	// one stream, rank 0 first, as some publishers send them (Dynamo's for
	// TensorRT-LLM); each message names its rank. Then ID is the name of the stream
	// alone, for hooks, logs and State. "" leaves a rank out. At most 1,024.
	//
	// Without Ranks the events of two ranks in one stream are taken for a mistake:
	// together they are true of neither, so the target is not trusted until the
	// connection is another.
	Ranks []string
	// Topic is a prefix of the topics of its messages, such as "kv@10.0.0.7@llama". Of
	// several that fit the longest counts. "", the default topic of engines, fits all.
	Topic string
	// Replay is the engine's replay endpoint, "tcp://host:port"; "" if it has none.
	// Without it every lost message and every lost connection empties the target,
	// which then learns again from the messages that follow.
	Replay string
}

// Config configures a Subscriber. Endpoint, Targets and Index are required; every
// other zero value means the documented default.
type Config struct {
	// Endpoint is the engine's address, "tcp://host:port", or with Bind the address to
	// listen on, "tcp://*:port".
	Endpoint string
	// Bind listens for engines that connect. It does not use libzmq in any build,
	// because libzmq does not report which of its peers went away.
	Bind bool
	// Targets are distinguished by topic. At most 65,536.
	Targets []Target
	// Index gets the events.
	Index Index
	// Egress decides which addresses may be connected to.
	Egress egress.Policy

	// StaleAfter is how long a target stays trusted when its connection is lost; 0
	// means 30 s, a negative value not at all.
	StaleAfter time.Duration
	// Heartbeat is the time between ZeroMQ heartbeats; a peer that sends nothing
	// for three of them is taken for dead. 0 means 5 s, a negative value none: then
	// a connection that is half open is not noticed.
	Heartbeat time.Duration
	// MinBackoff and MaxBackoff bound the wait before connecting again, which
	// doubles, with a random part. 0 means 100 ms and 10 s.
	MinBackoff, MaxBackoff time.Duration
	// DialTimeout bounds connecting and the handshake; 0 means 5 s.
	DialTimeout time.Duration
	// Queue is the number of live messages that may wait to be applied, and, per
	// target, of those that may wait for the end of a replay. QueueBytes bounds the
	// bytes of all messages that wait, of all targets and in replays: three quarters
	// are for live messages, one is for replies. A live message beyond either bound is
	// dropped, which is a gap like any other; a replay is not read further until its
	// replies have been applied. While nothing waits, one message of any size may.
	// 0 means 8,192, and 64 MiB.
	Queue, QueueBytes int
	// Memory has the bytes of all messages that wait in addition, together with those of other Subscribers, and bounds
	// them in the same way; nil: QueueBytes alone does. A message that it can never have ends its connection.
	Memory *membudget.Account
	// MaxMessage is the greatest message in bytes that is taken; the connection
	// that brings a greater one is closed. 0 means 16 MiB.
	MaxMessage int
	// ReplayTimeout bounds one replay, ReplayQuiet the time in it in which nothing
	// comes: engines drop messages when the reader is slow, the last one among
	// them. 0 means 30 s, and 2 s.
	ReplayTimeout, ReplayQuiet time.Duration
	// MaxPeers bounds the engines that connect with Bind; 0 means 1,024.
	MaxPeers int

	// Logger gets the transitions of each target, at most 10 lines a minute and a count
	// of the rest; nil means none.
	Logger *zap.Logger
	// Trace reports events of the streams.
	Trace Trace
}

// WithDefaults returns c with each zero field that has a default replaced by it.
func (c Config) WithDefaults() Config {
	orDuration := func(v *time.Duration, def time.Duration) {
		if *v == 0 {
			*v = def
		}
	}
	orInt := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
	}
	orDuration(&c.StaleAfter, 30*time.Second)
	orDuration(&c.Heartbeat, 5*time.Second)
	orDuration(&c.MinBackoff, 100*time.Millisecond)
	orDuration(&c.MaxBackoff, max(10*time.Second, c.MinBackoff))
	orDuration(&c.DialTimeout, 5*time.Second)
	orDuration(&c.ReplayTimeout, 30*time.Second)
	orDuration(&c.ReplayQuiet, 2*time.Second)
	orInt(&c.Queue, 8192)
	orInt(&c.QueueBytes, 64<<20)
	orInt(&c.MaxMessage, 16<<20)
	orInt(&c.MaxPeers, 1024)
	return c
}

const (
	maxTopic   = 4 << 10 // bytes
	maxRanks   = 1 << 10
	maxTargets = 1 << 16
)

func (c Config) validate() error {
	bad := configerr.List{Package: "zmqsub"}
	wrap := func(field, value string, err error) {
		if err != nil {
			bad.Add(&router.ConfigError{Field: field, Value: redact(value), Err: err})
		}
	}
	if _, err := address(c.Endpoint, c.Bind); err != nil {
		wrap("Endpoint", c.Endpoint, err)
	} else if !c.Bind {
		wrap("Endpoint", c.Endpoint, c.Egress.CheckURL(c.Endpoint))
	}
	if err := c.Egress.Validate(); err != nil {
		bad.Add(&router.ConfigError{Field: "Egress", Value: c.Egress, Err: err})
	}
	if c.Index == nil {
		bad.Add(&router.ConfigError{Field: "Index", Allowed: "given"})
	}
	if n := len(c.Targets); n == 0 || n > maxTargets {
		bad.Add(&router.ConfigError{
			Field: "Targets", Value: n, Allowed: fmt.Sprintf("between 1 and %d of them", maxTargets),
			Err: fmt.Errorf("there are %d; there must be between 1 and %d", n, maxTargets),
		})
	}
	ids, topics := make(map[string]bool), make(map[string]bool)
	for i, t := range c.Targets {
		field := func(name string) string { return fmt.Sprintf("Targets[%d].%s", i, name) }
		bad.Check(t.ID != "" && !ids[t.ID], field("ID"), t.ID, "there once, and not empty")
		ids[t.ID] = true
		named := len(t.Ranks) == 0 || len(t.names()) > 0
		bad.Check(len(t.Ranks) <= maxRanks && named, field("Ranks"), len(t.Ranks),
			fmt.Sprintf("at most %d names, one of them not empty", maxRanks))
		for j, id := range t.Ranks {
			bad.Check(id == "" || !ids[id], fmt.Sprintf("Targets[%d].Ranks[%d]", i, j), id, "there once")
			ids[id] = true
		}
		bad.Check(!topics[t.Topic], field("Topic"), t.Topic, "there once")
		topics[t.Topic] = true
		bad.Check(len(t.Topic) <= maxTopic, field("Topic"), len(t.Topic), fmt.Sprintf("at most %d bytes long", maxTopic))
		if t.Replay == "" {
			continue
		}
		_, err := address(t.Replay, false)
		if err == nil {
			err = c.Egress.CheckURL(t.Replay)
		}
		wrap(field("Replay"), t.Replay, err)
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"MinBackoff", c.MinBackoff}, {"MaxBackoff", c.MaxBackoff}, {"DialTimeout", c.DialTimeout},
		{"ReplayTimeout", c.ReplayTimeout}, {"ReplayQuiet", c.ReplayQuiet},
	} {
		bad.Check(f.value >= 0, f.name, f.value, "at least 0")
	}
	least := c.WithDefaults().MinBackoff
	bad.Check(c.MaxBackoff <= 0 || c.MaxBackoff >= least, "MaxBackoff", c.MaxBackoff,
		fmt.Sprintf("at least MinBackoff, %v", least))
	for _, f := range []struct {
		name  string
		value int
		most  int64
	}{
		{"Queue", c.Queue, 1 << 20}, {"QueueBytes", c.QueueBytes, 1 << 32},
		{"MaxMessage", c.MaxMessage, 64 << 20}, {"MaxPeers", c.MaxPeers, 1 << 16},
	} {
		most := min(f.most, math.MaxInt)
		bad.Check(f.value >= 0 && int64(f.value) <= most, f.name, f.value, fmt.Sprintf("between 0 and %d", most))
	}
	return bad.Err()
}
