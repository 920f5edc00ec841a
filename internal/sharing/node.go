// Package sharing is the part of package share that other packages of the module call: it keeps one gateway's view of
// the facts and gauges of the others, and publishes its own.
package sharing

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"
)

// Bus is the part of share.Bus that a Node uses.
type Bus interface {
	Publish(subject string, data []byte) error
	Subscribe(subject string, receive func(data []byte)) (stop func(), err error)
	Serve(subject string, answer func(request []byte) (reply []byte)) (stop func(), err error)
	Request(ctx context.Context, subject string, data []byte) ([]byte, error)
}

// Config configures a Node. Every field is needed, but for the hooks and Name.
type Config struct {
	Bus      Bus
	Key      *Key
	Subject  string // the beginning of all subjects
	Name     string // of this gateway, for people
	ID       uint64 // drawn for this process
	MaxMarks int
	Interval time.Duration // the least time from frame to frame
	Hello    time.Duration // the longest
	Silence  time.Duration // after which a peer's gauges vanish
	MaxLag   time.Duration // beyond which, for LagFor, load is not shared
	LagFor   time.Duration
	Cache    bool // share what was sent
	Load     bool // share what is in flight
	Now      func() time.Time
	Spawn    func(func()) // runs a request in the background
	Hooks    Hooks
}

// Hooks are called about changes, without a lock, by the goroutine that saw them.
type Hooks struct {
	LoadChanged func(shared bool, lag time.Duration) // the load half was dropped, or is back
	Ignored     func(err error)                      // a frame of another version, fleet or secret; once for each kind
}

// Node is one gateway's part in the fleet. Its methods are safe for concurrent use; Poll is called by one goroutine
// at a time.
type Node struct {
	cfg     Config
	begin   time.Time
	subject string // of live frames
	targets *targets
	table   *table
	hooks   hooks

	sums      atomic.Pointer[[]*Sum] // by number; only ever longer
	loadOff   atomic.Bool            // the load half is dropped
	unseen    unseen
	place     atomic.Uint64 // see Place
	watchers  watchers
	recorders recorders
	deniers   deniers
	readers   readers

	mu       sync.Mutex // of the following
	peers    map[uint64]*peer
	lag      lag
	reported [2]bool
	joined   bool
	joinedAt time.Duration
	want     bool // a snapshot of any peer
	busy     bool // a request is under way
	log      []logged
	logSize  int
	denied   []denial // to be reported
	unheard  []news
	pins     pins
	waits    time.Duration // how long events wait for their frame, about
	stats    stats

	// Of Poll alone.
	frame, facts     uint64 // numbers of the last ones
	flushed, greeted time.Duration
	full             time.Duration // when all gauges were sent
	out              out
}

type stats struct {
	sent, received, bytesOut, bytesIn uint64
	lost, bad, repaired, snapshots    uint64
	failed                            uint64
}

// never is before all times.
const never = -time.Hour

// New returns a Node that knows nothing yet.
func New(cfg Config) *Node {
	n := &Node{
		cfg: cfg, begin: cfg.Now(), subject: cfg.Subject + ".live", targets: newTargets(cfg.Key),
		table: newTable(cfg.MaxMarks), peers: map[uint64]*peer{}, flushed: never, greeted: never, full: never,
	}
	n.hooks.wake = make(chan struct{}, 1)
	n.sums.Store(new([]*Sum))
	return n
}

// Now returns the time since the Node was made.
func (n *Node) Now() time.Duration { return n.now() }

func (n *Node) now() time.Duration { return n.cfg.Now().Sub(n.begin) }

func stampOf(d time.Duration) stamp { return stamp(max(d, 0)/stampUnit) + firstStamp }

const (
	stampUnit  = time.Second / 16
	firstStamp = 1 << 20 // so that there are times before
)

// timeUnit is the unit of times in frames.
const timeUnit = 64 * time.Microsecond

func serviceOf(subject string, node uint64) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], node)
	return subject + ".ask." + hex.EncodeToString(b[2:])
}

// Open subscribes and serves. The Node hears from then on.
func (n *Node) Open() (stop func(), err error) {
	stop1, err := n.cfg.Bus.Subscribe(n.subject, n.Receive)
	if err != nil {
		return nil, err
	}
	stop2, err := n.cfg.Bus.Serve(serviceOf(n.cfg.Subject, n.cfg.ID), n.answer)
	if err != nil {
		stop1()
		return nil, err
	}
	return func() { stop1(); stop2() }, nil
}

// Wake is written to when Poll has work.
func (n *Node) Wake() <-chan struct{} { return n.hooks.wake }

// Chain returns the marks of a prompt.
func (n *Node) Chain(scope, text string) *Chain { return n.cfg.Key.Chain(scope, text) }

// Extend returns the marks of text, of which c has the marks, and more after it; nil if there are no further ones.
func (n *Node) Extend(c *Chain, text, more string) *Chain { return n.cfg.Key.Extend(c, text, more) }

// Match raises held, the leading bytes of a prompt with these marks that each of ids holds, to the part that others
// said it holds, and returns how many of them at least many prompts begin with.
func (n *Node) Match(c *Chain, ids []string, held []int, many int) (shared int) {
	return n.match(c, ids, held, many, 0)
}

// Recent is Match by the facts of the last time of this length alone.
func (n *Node) Recent(c *Chain, ids []string, held []int, age time.Duration) {
	n.match(c, ids, held, maxSharer, stampOf(n.now()-age))
}

func (n *Node) match(c *Chain, ids []string, held []int, many int, since stamp) (shared int) {
	r := n.targets.resolve(ids, 0) // first, so that facts about them are known to be theirs
	if len(c.Marks) == 0 || !n.cfg.Cache {
		return 0
	}
	var small [64]int
	found := small[:]
	if len(ids) > len(found) {
		found = make([]int, len(ids))
	}
	found = found[:len(ids)]
	t := n.table
	t.mu.RLock()
	shared = t.match(c.Marks, r.index, found, uint16(min(many, maxSharer)), since)
	t.mu.RUnlock()
	r.spread(found)
	for i, k := range found {
		held[i] = max(held[i], k*Chunk)
	}
	return shared * Chunk
}
