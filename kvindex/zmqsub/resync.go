package zmqsub

const (
	maxAsks  = 3       // in a row that bring nothing
	maxAhead = 1 << 16 // fingerprints of replayed messages
)

// ending says how a replay ended.
type ending uint8

const (
	endMarker ending = iota // the engine said so
	endEarly                // it was quiet for too long, took too long, or failed
)

// resync is the part of a machine for messages that do not follow one another:
// the replay that was asked for and the live messages that wait for its end.
type resync struct {
	verify   bool // the next reply has to be the last message
	lenient  bool // holes are passed over, and all before them is forgotten
	marked   bool // messages were seen to be missing in this replay
	progress bool
	asks     int
	pending  []message // live ones, in ascending order
	bytes    int       // of their payloads
	spilled  bool      // not all of them
}

// gap takes a message that does not follow the last one.
func (m *machine) gap(p message) {
	m.out.gap(m.last, p.seq)
	if !m.replayable {
		m.forget()
		m.apply(p)
		m.settle("gap")
		return
	}
	m.keep(p)
	m.asks = 0
	m.begin("gap")
}

// missed notes that live messages came and were dropped, after all that live was
// given.
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

// confirm asks once more if nothing has come since the connection is up. A PUB
// sends nothing to a subscription that it has not seen yet, and an idle engine
// would never show that something was lost between the replay and that.
func (m *machine) confirm() {
	if m.connected && m.replayable && !m.liveBegun && m.state != Resyncing {
		m.asks, m.lenient = 0, false
		m.begin("confirm")
	}
}

// begin asks for the missing messages: all, or those after the last message, which
// itself is asked for to see that it is the same.
func (m *machine) begin(why string) {
	m.verify, m.marked, m.progress = m.begun, false, false
	m.out.suspend(true)
	m.become(Resyncing, why)
	start := uint64(0)
	if m.begun {
		start = m.last
	}
	m.asks++
	m.out.ask(start, m.asks)
}

// keep keeps a live message until the replay has ended.
func (m *machine) keep(p message) {
	m.spilled = m.spilled || len(m.pending) >= m.maxPending || m.bytes+len(p.payload) > m.maxBytes
	if m.spilled {
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
			m.otherEngine()
			return
		default:
			// The engine does not keep the last message any more, so nothing shows
			// that it is the same one.
			m.forget()
			m.progress = true
		}
	}
	switch {
	case !m.begun:
		m.applyReplayed(p)
	case p.seq <= m.last: // asked for twice
	case p.seq-m.last == 1:
		m.applyReplayed(p)
	case m.lenient:
		m.forget()
		m.applyReplayed(p)
	default:
		m.marked = true
		m.out.hangUp()
		m.retry("hole in the replay")
	}
}

func (m *machine) applyReplayed(p message) {
	m.progress = true
	m.apply(p)
	if len(m.ahead) == maxAhead {
		m.ahead = append(m.ahead[:0], m.ahead[maxAhead/2:]...)
	}
	m.ahead = append(m.ahead, p.sum)
}

// ended ends the replay that was asked for last.
func (m *machine) ended(how ending) {
	if m.state != Resyncing {
		return
	}
	if how == endMarker && m.verify {
		// The engine has not come to the last message yet: it is a new one.
		m.verify = false
		m.otherEngine()
		return
	}
	if m.verify && !m.lenient || how == endEarly && !m.lenient && !m.joined() {
		m.retry("replay ended early")
		return
	}
	m.merge()
}

// joined reports whether the live messages continue the replay.
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
				// The live messages reach further back than the engine's buffer.
				m.startWith(rest, "older than the replay")
				return
			}
			if !m.known(p) {
				m.restart(rest, "sequence started over")
				return
			}
		case !m.begun && p.seq > 0 && !m.lenient, m.begun && p.seq-m.last > 1:
			if !m.lenient {
				m.setPending(append([]message(nil), m.pending[i:]...))
				m.retry("gap after the replay")
				return
			}
			m.forget()
			m.apply(p)
		case m.predates(p):
			m.liveBegun = true
			m.otherEngine()
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

func (m *machine) setPending(messages []message) {
	m.pending, m.bytes = messages, 0
	for _, p := range messages {
		m.bytes += len(p.payload)
	}
}

// retry asks again, from the first message that is missing; in the end it goes on
// without the messages that the engine does not have.
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

// restart begins another life of the engine with its first messages.
func (m *machine) restart(first []message, why string) {
	if !m.replayable || first[0].seq == 0 {
		m.startWith(first, why) // there is no replay, or nothing before the first one
		return
	}
	m.out.hangUp()
	m.forget()
	m.asks, m.lenient = 0, false
	m.setPending(first)
	m.begin(why)
}

// startWith forgets all that was known and applies messages.
func (m *machine) startWith(messages []message, why string) {
	m.out.hangUp()
	m.forget()
	m.setPending(messages)
	m.lenient = true
	m.merge()
}

// otherEngine begins again: another engine answers than the one with the
// applied messages.
func (m *machine) otherEngine() {
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
