package zmqsub

import (
	"time"

	"go.uber.org/zap"
)

// What a stream does for its machine.

func (st *stream) apply(m message) bool {
	err := st.batch.Decode(m.payload)
	if err == nil {
		err = st.deal(m.seq)
	}
	if err != nil {
		st.run.malformed(st.target.ID, err)
		return false
	}
	if f := st.run.s.cfg.Trace.Lag; f != nil && m.time != 0 && st.state != Resyncing {
		f(st.target.ID, since(m.time))
	}
	return true
}

// since returns the time since t, in seconds since 1970, within 30 years of now.
func since(t float64) time.Duration {
	const most = 1e9 // seconds; a Duration holds nine times as much
	s := float64(time.Now().UnixNano())/1e9 - t
	return time.Duration(min(max(s, -most), most) * 1e9)
}

func (st *stream) reconnect() {
	if st.run.s.cfg.Bind {
		st.rejoin = true // it is the engines who connect
		return
	}
	select {
	case st.run.again <- struct{}{}:
	default:
	}
}

func (st *stream) gap(last, seq uint64) {
	st.run.s.n.gaps.Add(1)
	if f := st.run.s.cfg.Trace.Gap; f != nil {
		f(st.target.ID, last, seq)
	}
}

func (st *stream) changed(from, to State, why string) {
	s := st.run.s
	s.states[st.i].Store(uint32(to))
	s.n.transitions[to].Add(1)
	if to == Down {
		st.staleAt = time.Now().Add(s.cfg.StaleAfter)
		st.run.rearm = true
	} else {
		st.staleAt = time.Time{}
	}
	s.log.Info("KV event stream", zap.String("target", st.target.ID), zap.Stringer("from", from), zap.Stringer("to", to),
		zap.String("why", why))
	if f := s.cfg.Trace.Transition; f != nil {
		f(st.target.ID, from, to, why)
	}
}
