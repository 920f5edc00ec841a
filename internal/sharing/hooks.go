package sharing

import (
	"slices"
	"sync"
	"time"
)

// hooks has what happened since the last Poll.
type hooks struct {
	mu      sync.Mutex
	ops     []op
	dirty   []*Local
	dropped uint64
	wake    chan struct{}
	waiting bool
	since   time.Duration // when the first of them was
}

// maxOps bounds the events between two Polls.
const maxOps = 8192

type op struct {
	kind  uint8
	id    string
	chain *Chain
	at    stamp  // of an expiry
	news  []byte // to be sealed
	pin   Mark   // a session
}

func (n *Node) add(o op) {
	if !n.cfg.Cache && o.kind != factNews && o.kind != factPin && o.kind != factMoved {
		return
	}
	h := &n.hooks
	h.mu.Lock()
	if len(h.ops) >= maxOps {
		h.dropped++
		h.mu.Unlock()
		return
	}
	h.ops = append(h.ops, o)
	h.signal(n.now())
}

// signal wakes the goroutine of Poll, and unlocks h.
func (h *hooks) signal(now time.Duration) {
	first := !h.waiting
	if first {
		h.waiting, h.since = true, now
	}
	h.mu.Unlock()
	if first {
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}

// Sent notes that the target was sent a prompt with these marks.
func (n *Node) Sent(id string, c *Chain) {
	if len(c.Marks) > 0 {
		n.add(op{kind: factSent, id: id, chain: c})
	}
}

// More notes that the target holds these marks by a reply.
func (n *Node) More(id string, c *Chain) {
	if c != nil && len(c.Marks) > 0 {
		n.add(op{kind: factMore, id: id, chain: c})
	}
}

// Unsent takes back a Sent of the same chain.
func (n *Node) Unsent(id string, c *Chain) {
	if len(c.Marks) > 0 {
		n.add(op{kind: factUnsent, id: id, chain: c})
	}
}

// Deny notes that the target does not hold what it was sent so long ago, and so nothing older.
func (n *Node) Deny(id string, age time.Duration) {
	n.add(op{kind: factExpire, id: id, at: stampOf(n.now() - age)})
}

// OnDeny has f called when another gateway denies, without a lock, until it returns false.
func (n *Node) OnDeny(f func(id string, age time.Duration) bool) {
	n.deniers.mu.Lock()
	defer n.deniers.mu.Unlock()
	n.deniers.all = append(n.deniers.all, f)
}

// deniers are called about denials.
type deniers struct {
	mu  sync.Mutex
	all []func(id string, age time.Duration) bool
}

func (d *deniers) call(denied []denial) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range denied {
		d.all = slices.DeleteFunc(d.all, func(f func(string, time.Duration) bool) bool { return !f(x.id, x.age) })
	}
}

type denial struct {
	id  string
	age time.Duration
}

// Confirm notes that the target holds what it was sent so long ago.
func (n *Node) Confirm(id string, age time.Duration) {
	n.add(op{kind: factConfirm, id: id, at: stampOf(n.now() - age)})
}

// Forget notes that the target lost its cache.
func (n *Node) Forget(id string) {
	n.add(op{kind: factForget, id: id})
}

// Known returns how many leading bytes of the prompt others said the target holds when it was sent, and how long ago
// the last of them said so. It is known once a Poll has passed since Sent.
func (n *Node) Known(c *Chain) (held int, age time.Duration) {
	k := c.known.Load()
	if k == 0 {
		return 0, 0
	}
	return int(k>>32) * Chunk, time.Duration(stampOf(n.now())-stamp(k)) * stampUnit
}
