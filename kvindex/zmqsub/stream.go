package zmqsub

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/warmroute/router/kvindex"
)

// stream is one target. It belongs to the goroutine of run.loop.
type stream struct {
	*machine
	run    *run
	i      int
	target Target
	ids    []string // in the index
	batch  kvindex.Batch

	peer      *peer     // the connection; nil: none
	topic     string    // of the messages that are applied
	named     bool      // topic is set
	staleAt   time.Time // zero: no time is running
	confirmAt time.Time
	rejoin    bool

	rank    int // of the messages, if ranked
	ranked  bool
	mixed   bool // and they are of several ranks, which target does not distinguish
	foreign bool // events that are not understood were logged

	lost   atomic.Bool // messages were dropped because the queue was full
	kept   int         // bytes of run.liveBytes for pending messages
	asked  uint64
	cancel context.CancelFunc

	logAt            time.Time
	logged, unlogged int // transitions until logAt
}

// confirmAfter is how long an engine may take to see a subscription: its publisher
// looks at least ten times a second.
const confirmAfter = time.Second

func (st *stream) join(p *peer) {
	st.peer, st.staleAt = p, time.Time{}
	st.ranked, st.mixed = false, false
	st.confirmAt, st.run.rearm = time.Now().Add(confirmAfter), true
	st.up()
}

func (st *stream) leave(why string) {
	st.peer = nil
	st.down(why)
}

// arrived takes a live message.
func (st *stream) arrived(e event) {
	if st.peer != e.peer && !st.adopt(e) {
		return
	}
	other := st.named && st.topic != e.topic
	st.topic, st.named = e.topic, true
	if other {
		st.liveBegun, st.lastLive = true, e.msg.seq
		st.restart([]message{e.msg}, "another topic")
		return
	}
	st.live(e.msg)
}

// adopt makes the connection of a message the target's, unless it has another that
// is alive: otherwise any process that can connect could take over a target.
func (st *stream) adopt(e event) bool {
	switch old := st.peer; {
	case !st.run.s.cfg.Bind, e.peer.gone.Load() && old != nil:
		return false // of a connection that has been replaced
	case old == nil:
	case old.gone.Load():
		st.leave("another engine came")
	case old.quiet != nil && old.quiet() > st.run.silence():
		st.leave("another engine came, and this one is silent")
	default:
		st.run.contested(st.target.ID, e.topic)
		return false
	}
	st.join(e.peer)
	return true
}

// silence is the time after which a connection does not keep its topics to itself.
func (r *run) silence() time.Duration {
	if r.s.cfg.Heartbeat > 0 {
		return 3 * r.s.cfg.Heartbeat
	}
	return max(r.s.cfg.StaleAfter, time.Second)
}

// after joins again if the machine has asked for it.
func (st *stream) after() {
	if st.rejoin {
		st.rejoin = false
		st.up()
	}
	st.account()
}

// account brings run.liveBytes to the bytes of pending messages.
func (st *stream) account() {
	if st.kept != st.bytes {
		st.run.liveBytes.give(st.kept - st.bytes)
		st.kept = st.bytes
	}
}
