package redis

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	redis "github.com/redis/go-redis/v9"

	"github.com/warmroute/router/share"
)

const (
	// ioTimeout bounds a write, or the wait for its reply: frames that are later are of no use.
	ioTimeout = time.Second
	// pingEvery is how often the subscriptions' connection is asked for a sign of life, and silence when it is given up.
	pingEvery, silence = time.Second, 4 * time.Second
	// retryEvery is the pause between attempts to connect.
	retryEvery = 200 * time.Millisecond
	// clusterWait is how long a Request waits for a reply in a cluster: its nodes do not know if anybody serves.
	clusterWait = 2 * time.Second
	// requestWait bounds a Request without a deadline of ctx.
	requestWait = 10 * time.Second
)

// Bus is a share.Bus. Close it at the end.
type Bus struct {
	cfg    Config
	client redis.UniversalClient
	inbox  string // the end of the channel of the replies to this Bus

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	flush   chan struct{} // something waits for the network
	changed chan struct{} // channels were added or removed

	sent, received, dropped atomic.Uint64

	mu       sync.Mutex
	hearing  bool // the subscriptions' connection stands
	speaking bool // the last write succeeded
	since    time.Time
	err      error
	queue    []message
	queued   int // bytes of queue, and of those being written
	subs     map[string][]*subscriber
	asked    map[uint64]chan []byte
	lastID   uint64
	closed   bool // no goroutine begins any more
}

type message struct {
	channel string
	data    []byte
	counts  bool // it is a frame, not a reply
}

var _ share.Bus = (*Bus)(nil)

// New returns a Bus, which connects in the background, also if no server is there yet. The error joins a
// *router.ConfigError for each field with a bad value.
func New(cfg Config) (*Bus, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	b := &Bus{cfg: cfg.WithDefaults(), flush: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		subs: map[string][]*subscriber{}, asked: map[uint64]chan []byte{}}
	var id [16]byte
	rand.Read(id[:]) // it does not fail
	b.inbox = hex.EncodeToString(id[:])
	b.client = redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: cfg.Addrs, MasterName: cfg.Master, IsClusterMode: cfg.Cluster,
		Username: cfg.Username, Password: cfg.Password,
		SentinelUsername: cfg.SentinelUsername, SentinelPassword: cfg.SentinelPassword, TLSConfig: cfg.TLS,
		Protocol: 2, DisableIdentity: true, // as the oldest servers have it
		MaxRetries: -1, DialerRetries: 1, DialTimeout: 2 * time.Second, // a late frame is of no use, a doubled one costs
		ReadTimeout: ioTimeout, WriteTimeout: ioTimeout, ContextTimeoutEnabled: true,
	})
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.running.Go(b.speak)
	b.running.Go(b.hear)
	return b, nil
}

// Close ends the connections, and waits for the goroutines of the Bus; so no receive or answer may stand still.
func (b *Bus) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	_ = b.client.Close() // it ends what waits for the network
	b.running.Wait()
}

func (b *Bus) frames(subject string) string   { return b.cfg.Prefix + ".frame." + subject }
func (b *Bus) requests(subject string) string { return b.cfg.Prefix + ".ask." + subject }
func (b *Bus) replies(inbox string) string    { return b.cfg.Prefix + ".reply." + inbox }

// state changes hearing or speaking, and what follows from it.
func (b *Bus) state(which *bool, to bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.hearing && b.speaking
	*which = to
	if err != nil && b.ctx.Err() == nil {
		b.err = err
	}
	if now := b.hearing && b.speaking; now != before {
		b.since = time.Now()
		if now {
			b.err = nil
		}
	}
}

// State is share.Bus's.
func (b *Bus) State() share.BusState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return share.BusState{Connected: b.hearing && b.speaking, Since: b.since, Err: b.err, Sent: b.sent.Load(),
		Received: b.received.Load(), Dropped: b.dropped.Load()}
}

// Publish is share.Bus's.
func (b *Bus) Publish(subject string, data []byte) error {
	err := b.enqueue(message{channel: b.frames(subject), data: data, counts: true})
	if err != nil {
		b.dropped.Add(1)
		return fmt.Errorf("redis: %w: %w", share.ErrDropped, err)
	}
	return nil
}

var (
	errNotConnected = errors.New("not connected")
	errClosed       = errors.New("redis: the bus is closed")
)

// enqueue appends a copy of m to those that wait for the network.
func (b *Bus) enqueue(m message) error {
	if m.counts && len(m.data) > share.MaxFrame {
		return fmt.Errorf("it has %d bytes", len(m.data))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.hearing || !b.speaking:
		return errNotConnected
	case b.queued >= b.cfg.Buffer:
		return fmt.Errorf("%d bytes wait for the network", b.queued)
	}
	m.data = slices.Clone(m.data)
	b.queue = append(b.queue, m)
	b.queued += len(m.data) + overhead
	wake(b.flush)
	return nil
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is awake
	}
}

// node returns the client of the server that frames are published on: in a cluster that of always the same node, since
// frames by way of different nodes change their order.
func (b *Bus) node(ctx context.Context) (redis.Cmdable, error) {
	if c, ok := b.client.(*redis.ClusterClient); ok {
		return c.MasterForKey(ctx, b.cfg.Prefix)
	}
	return b.client, nil
}

// speak writes what waits for the network, all of it in one piece, and asks for a sign of life after a failure.
func (b *Bus) speak() {
	retry := time.NewTicker(retryEvery)
	defer retry.Stop()
	ok := b.ping()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-retry.C:
			if !ok {
				ok = b.ping()
			}
		case <-b.flush:
			b.mu.Lock()
			batch := b.queue
			b.queue = nil
			b.mu.Unlock()
			ok = b.write(batch)
		}
	}
}

func (b *Bus) ping() bool {
	ctx, cancel := context.WithTimeout(b.ctx, 2*ioTimeout)
	defer cancel()
	node, err := b.node(ctx)
	if err == nil {
		err = node.Ping(ctx).Err()
	}
	b.state(&b.speaking, err == nil, err)
	return err == nil
}

func (b *Bus) write(batch []message) bool {
	ctx, cancel := context.WithTimeout(b.ctx, 2*ioTimeout)
	defer cancel()
	node, err := b.node(ctx)
	if err == nil {
		// The error of the whole is that of the first command that failed; each has its own.
		var all []redis.Cmder
		all, err = node.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, m := range batch {
				p.Publish(ctx, m.channel, m.data)
			}
			return nil
		})
		for i, c := range all {
			switch {
			case c.Err() != nil:
				b.dropped.Add(1)
			case batch[i].counts:
				b.sent.Add(1)
			}
		}
	} else {
		b.dropped.Add(uint64(len(batch)))
	}
	b.mu.Lock()
	for _, m := range batch {
		b.queued -= len(m.data) + overhead
	}
	b.mu.Unlock()
	b.state(&b.speaking, err == nil, err)
	return err == nil
}
