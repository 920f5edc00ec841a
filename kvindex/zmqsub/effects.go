package zmqsub

// What a machine does once it has decided: ask, begin anew, apply, say so.

// begin asks for what is missing: all, or what follows the last message, which
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

// restart begins anew with rest, the first messages of another life.
func (m *machine) restart(rest []message, why string) {
	if !m.replayable || rest[0].seq == 0 {
		m.anew(rest, why) // there is nobody to ask, or nothing before the first one
		return
	}
	m.out.hangUp()
	m.forget()
	m.asks, m.lenient = 0, false
	m.pending = rest
	m.recount()
	m.begin(why)
}

// anew begins anew with rest, whatever was before it.
func (m *machine) anew(rest []message, why string) {
	m.out.hangUp()
	m.forget()
	m.pending, m.lenient = rest, true
	m.merge()
}

// forget empties the target.
func (m *machine) forget() {
	m.out.reset()
	m.begun, m.complete, m.blank, m.ahead = false, false, true, nil
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

// settle ends Resyncing, or keeps the state true to what has been applied.
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

// known reports whether p, at or before the last message, is one that was
// replayed.
func (m *machine) known(p message) bool {
	back := m.last - p.seq
	if back == 0 {
		return p.sum == m.sum
	}
	return back < uint64(len(m.ahead)) && m.ahead[uint64(len(m.ahead))-1-back] == p.sum
}

func (m *machine) become(s State, why string) {
	if s != m.state {
		from := m.state
		m.state = s
		m.out.changed(from, s, why)
	}
}
