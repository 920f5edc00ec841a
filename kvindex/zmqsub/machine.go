package zmqsub

import "strconv"

// State is what is known of a target's stream.
type State uint8

const (
	// Cold: nothing has been applied, so the target is not trusted.
	Cold State = iota
	// Partial: all since some message has been applied, what was before it is
	// not known. The target is trusted; it holds at least what the index says.
	Partial
	// Live: all since the engine's first message has been applied.
	Live
	// Resyncing: messages may be missing and the engine has been asked for them.
	// The target is not trusted.
	Resyncing
	// Down: the connection is lost. A target that was trusted is trusted for
	// Config.StaleAfter.
	Down
)

// String returns the state's name in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "state_" + strconv.Itoa(int(s))
}

var stateNames = [...]string{"cold", "partial", "live", "resyncing", "down"}

// message is one message of a stream.
type message struct {
	seq     uint64
	time    float64 // by the engine's clock, in seconds; 0: not known
	sum     uint64  // a fingerprint of the payload, which the engine's clock makes unique
	payload []byte
}

// sink is what a machine drives: the index, for one target.
type sink interface {
	apply(message) bool // false: it could not be read, so the cache's state is unknown
	reset()
	suspend(bool) // ended by reset too
	ask(start uint64, attempt int)
	hangUp() // ends the replay that was asked for, if any
	reconnect()
	changed(from, to State, why string)
	gap(last, seq uint64)
}

// ending says how a replay ended.
type ending uint8

const (
	endMarker ending = iota // the engine said so
	endEarly                // it was quiet for too long, took too long, or failed
)

const (
	maxAsks  = 3       // in a row that bring nothing
	maxAhead = 1 << 16 // fingerprints of replayed messages
)

// machine decides what happens to one target. It does no I/O, reads no clock and
// is not safe for concurrent use.
//
// Two rules keep it from believing in a cache that is gone. A sequence number is
// no identity: an engine that has been restarted counts from 0 again and may be
// anywhere by the time it is seen. So after a gap or a lost connection the replay
// begins with the last message that was applied, and only if its payload is the
// same is it the same engine. And a live message that was replayed already is a
// double only if its payload is the same; otherwise it is a restart.
type machine struct {
	out        sink
	replayable bool
	maxPending int // messages
	maxBytes   int // of their payloads

	state    State
	begun    bool   // base, last and sum are set
	base     uint64 // the first message since forget
	last     uint64
	sum      uint64
	time     float64
	complete bool // since the engine's first message
	blank    bool // nothing has been applied since the last reset

	liveBegun bool // on this connection
	lastLive  uint64
	ahead     []uint64 // fingerprints of what was replayed, the last one's at the end

	// While Resyncing.
	verify    bool // the next reply has to be the last message
	lenient   bool // holes are passed over, what was before them is forgotten
	marked    bool // messages were seen to be missing in this replay
	progress  bool
	asks      int
	pending   []message // live ones, in ascending order
	bytes     int
	spilled   bool // not all of them
	connected bool
}

func newMachine(out sink, replayable bool, maxPending, maxBytes int) *machine {
	return &machine{out: out, replayable: replayable, maxPending: maxPending, maxBytes: maxBytes, blank: true}
}

// up says that the connection is there.
func (m *machine) up() {
	m.connected, m.liveBegun = true, false
	m.ahead, m.pending, m.bytes, m.spilled = nil, nil, 0, false
	m.asks, m.lenient = 0, false
	if m.replayable {
		m.begin("connected")
		return
	}
	// Nobody can say whether this is the engine that was there before.
	m.forget()
	m.out.suspend(false)
	m.become(Cold, "connected")
}

// down says that the connection is lost.
func (m *machine) down(why string) {
	if !m.connected {
		return
	}
	m.connected = false
	m.out.hangUp()
	m.pending, m.bytes, m.ahead = nil, 0, nil
	m.become(Down, why)
}

// stale ends the trust in a target whose connection has been lost for long.
func (m *machine) stale() {
	if m.state == Down {
		m.out.suspend(true)
	}
}

// confirm asks once more where nothing has come since the connection is up. A PUB
// sends nothing to a subscription that it has not seen yet, and an idle engine
// would never show that something was lost between the replay and that.
func (m *machine) confirm() {
	if m.connected && m.replayable && !m.liveBegun && m.state != Resyncing {
		m.asks, m.lenient = 0, false
		m.begin("confirm")
	}
}

// live takes a message of the connection that is up.
func (m *machine) live(p message) {
	if !m.connected {
		return
	}
	again := m.liveBegun && p.seq <= m.lastLive
	m.liveBegun, m.lastLive = true, p.seq
	if m.state == Resyncing {
		if again {
			m.restart([]message{p}, "sequence started over")
			return
		}
		m.hold(p)
		return
	}
	switch {
	case again || m.begun && p.seq <= m.last && !m.known(p):
		m.restart([]message{p}, "sequence started over")
	case m.begun && p.seq <= m.last: // replayed before it came
	case m.seam(p):
		m.stranger()
	case !m.begun && m.replayable && p.seq > 0: // there was nothing to replay, and by now there is
		m.asks = 0
		m.hold(p)
		m.begin("joined late")
	case !m.begun || p.seq-m.last == 1:
		m.ahead = nil
		m.apply(p)
		m.settle("message")
	default:
		m.out.gap(m.last, p.seq)
		if !m.replayable {
			m.forget()
			m.apply(p)
			m.settle("gap")
			return
		}
		m.hold(p)
		m.asks = 0
		m.begin("gap")
	}
}

// missed says that live messages came and were not taken, after all that live was
// told of.
func (m *machine) missed() {
	switch {
	case !m.connected || m.state == Resyncing:
	case m.replayable:
		m.asks, m.lenient = 0, false
		m.begin("overflow")
	default:
		m.forget()
		m.become(Cold, "overflow")
	}
}

// hold keeps a live message until the replay has ended.
func (m *machine) hold(p message) {
	if m.spilled = m.spilled || len(m.pending) >= m.maxPending || m.bytes+len(p.payload) > m.maxBytes; m.spilled {
		return
	}
	m.pending = append(m.pending, p)
	m.bytes += len(p.payload)
}

// replayed takes a message of the replay that was asked for last.
func (m *machine) replayed(p message) {
	if m.state != Resyncing || m.marked {
		return
	}
	if m.verify {
		m.verify = false
		switch {
		case p.seq == m.last && p.sum == m.sum:
			return
		case p.seq == m.last:
			m.stranger()
			return
		default:
			// The engine does not keep the last message any more, so nothing tells
			// that it is the same one.
			m.forget()
			m.progress = true
		}
	}
	switch {
	case !m.begun:
		m.take(p)
	case p.seq <= m.last: // asked for twice
	case p.seq-m.last == 1:
		m.take(p)
	case m.lenient:
		m.forget()
		m.take(p)
	default:
		m.marked = true
		m.out.hangUp()
		m.retry("hole in the replay")
	}
}

// seam reports whether p follows what was replayed, but is older: then the replay
// is a new engine's, and p came from the one before it.
func (m *machine) seam(p message) bool {
	return m.begun && len(m.ahead) > 0 && p.seq-m.last == 1 && p.time != 0 && p.time < m.time
}

// stranger: another engine answers than the one whose messages were applied.
func (m *machine) stranger() {
	m.forget()
	m.pending, m.bytes = nil, 0
	m.asks = 0
	if m.liveBegun {
		// The old engine's messages may still be on their way here.
		m.connected = false
		m.out.hangUp()
		m.become(Down, "another engine answered the replay")
		m.out.reconnect()
		return
	}
	m.begin("restarted while away")
}

// take applies a replayed message.
func (m *machine) take(p message) {
	m.progress = true
	m.apply(p)
	if len(m.ahead) == maxAhead {
		m.ahead = append(m.ahead[:0], m.ahead[maxAhead/2:]...)
	}
	m.ahead = append(m.ahead, p.sum)
}

// ended says that the replay that was asked for last brings no more.
func (m *machine) ended(how ending) {
	if m.state != Resyncing {
		return
	}
	if how == endMarker && m.verify {
		// The engine has not come to the last message yet: it is a new one.
		m.verify = false
		m.stranger()
		return
	}
	if m.verify && !m.lenient || how == endEarly && !m.lenient && !m.joined() {
		m.retry("replay ended early")
		return
	}
	m.merge()
}

// joined reports whether the live messages go on where the replay ended.
func (m *machine) joined() bool {
	return m.begun && len(m.pending) > 0 && m.pending[0].seq <= m.last+1
}

// merge goes on with the live messages that came during the replay.
func (m *machine) merge() {
	for i, p := range m.pending {
		switch {
		case m.begun && p.seq <= m.last:
			rest := append([]message(nil), m.pending[i:]...)
			if p.seq < m.base {
				// The live messages reach further back than what the engine keeps.
				m.anew(rest, "older than the replay")
				return
			}
			if !m.known(p) {
				m.restart(rest, "sequence started over")
				return
			}
		case !m.begun && p.seq > 0 && !m.lenient, m.begun && p.seq-m.last > 1:
			if !m.lenient {
				m.pending = append([]message(nil), m.pending[i:]...)
				m.recount()
				m.retry("gap after the replay")
				return
			}
			m.forget()
			m.apply(p)
		case m.seam(p):
			m.liveBegun = true
			m.stranger()
			return
		default:
			m.ahead = nil
			m.apply(p)
		}
	}
	m.pending, m.bytes, m.asks, m.lenient = nil, 0, 0, false
	if m.spilled && m.replayable {
		m.spilled = false
		m.begin("more came than could wait")
		return
	}
	m.settle("replay done")
}

func (m *machine) recount() {
	m.bytes = 0
	for _, p := range m.pending {
		m.bytes += len(p.payload)
	}
}

// retry asks again, from the first message that is missing; in the end it goes on
// without what the engine does not have.
func (m *machine) retry(why string) {
	if m.progress {
		m.asks = 0
	}
	if m.lenient {
		m.merge()
		return
	}
	if m.asks < maxAsks {
		m.begin(why)
		return
	}
	m.forget()
	m.lenient, m.asks = true, 0
	m.begin(why + ", given up")
}
