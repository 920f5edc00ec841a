package zmqsub

// message is one message of a stream.
type message struct {
	seq     uint64
	time    float64 // by the engine's clock, in seconds; 0: not known
	sum     uint64  // a fingerprint of the payload, which the engine's clock makes unique
	payload []byte
}

// sink is the index, for one target, and the connections that a machine controls.
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

// machine keeps the sequence of one target's messages. It does no I/O, reads no
// clock and is not safe for concurrent use. This file has the messages that follow
// one another; resync.go has the handling of the others.
//
// Two rules keep it from believing in a cache that is gone. A sequence number is
// no identity: an engine that has been restarted counts from 0 again and may be
// anywhere by the time it is seen. So after a gap or a lost connection the replay
// begins with the last message that was applied, and only if its payload is the
// same is it the same engine. And a live message that was replayed already is a
// duplicate only if its payload is the same; otherwise it is a restart.
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

	connected bool
	liveBegun bool // on this connection
	lastLive  uint64
	ahead     []uint64 // fingerprints of replayed messages, the last one's at the end

	resync
}

func newMachine(out sink, replayable bool, maxPending, maxBytes int) *machine {
	return &machine{out: out, replayable: replayable, maxPending: maxPending, maxBytes: maxBytes, blank: true}
}

// up begins a connection.
func (m *machine) up() {
	m.connected, m.liveBegun = true, false
	m.ahead, m.resync = nil, resync{}
	if m.replayable {
		m.begin("connected")
		return
	}
	// This may be another engine than the one that was there before.
	m.forget()
	m.out.suspend(false)
	m.become(Cold, "connected")
}

// down ends a connection.
func (m *machine) down(why string) {
	if !m.connected {
		return
	}
	m.connected = false
	m.out.hangUp()
	m.pending, m.bytes, m.ahead = nil, 0, nil
	m.become(Down, why)
}

// stale ends the trust in a target with a connection that has been lost for long.
func (m *machine) stale() {
	if m.state == Down {
		m.out.suspend(true)
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
		m.keep(p)
		return
	}
	switch {
	case again || m.begun && p.seq <= m.last && !m.known(p):
		m.restart([]message{p}, "sequence started over")
	case m.begun && p.seq <= m.last: // replayed before it came
	case m.predates(p):
		m.otherEngine()
	case !m.begun && m.replayable && p.seq > 0: // there was nothing to replay, and by now there is
		m.asks = 0
		m.keep(p)
		m.begin("joined late")
	case !m.begun || p.seq-m.last == 1:
		m.ahead = nil
		m.apply(p)
		m.settle("message")
	default:
		m.gap(p)
	}
}

// known reports whether p, at or before the last message, is one that was
// replayed.
func (m *machine) known(p message) bool {
	back := m.last - p.seq
	if back == 0 {
		return p.sum == m.sum
	}
	return back < uint64(len(m.ahead)) && m.ahead[uint64(len(m.ahead))-1-back] == p.sum
}

// predates reports whether p follows the last replayed message, but is older: then
// the replay is a new engine's, and p came from the one before it.
func (m *machine) predates(p message) bool {
	return m.begun && len(m.ahead) > 0 && p.seq-m.last == 1 && p.time != 0 && p.time < m.time
}

func (m *machine) apply(p message) {
	first := !m.begun
	m.begun, m.last, m.sum, m.time = true, p.seq, p.sum, p.time
	if first {
		m.base, m.complete = p.seq, p.seq == 0
	}
	if m.blank && m.state == Resyncing {
		m.out.suspend(true) // the reset before has ended it
	}
	if !m.out.apply(p) {
		m.out.reset()
		m.complete, m.blank = false, true
		return
	}
	m.blank = false
}

// settle ends Resyncing, or makes the state that of the messages that have been
// applied.
func (m *machine) settle(why string) {
	if m.state == Resyncing {
		m.out.suspend(false)
	}
	switch {
	case m.blank:
		m.become(Cold, why)
	case m.complete:
		m.become(Live, why)
	default:
		m.become(Partial, why)
	}
}

// forget empties the target.
func (m *machine) forget() {
	m.out.reset()
	m.begun, m.complete, m.blank, m.ahead = false, false, true, nil
}

func (m *machine) become(s State, why string) {
	if s != m.state {
		from := m.state
		m.state = s
		m.out.changed(from, s, why)
	}
}
