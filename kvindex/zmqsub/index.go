package zmqsub

import (
	"errors"
	"time"

	"github.com/warmroute/router/kvindex"
	"go.uber.org/zap"
)

// This file has the calls to the index, the hooks and the log: the sink of a
// stream's machine.

var (
	errMixed  = errors.New("zmqsub: messages of several data-parallel ranks in one stream; set Target.Ranks")
	errNoRank = errors.New("zmqsub: a message that names no data-parallel rank, in a stream of several")
)

// maxScratch is the greatest payload of which the memory of its decoded form is kept for the next.
const maxScratch = 256 << 10

// names returns the names of t in the index.
func (t *Target) names() []string {
	if len(t.Ranks) == 0 {
		return []string{t.ID}
	}
	var ids []string
	for _, id := range t.Ranks {
		if id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

func (st *stream) apply(m message) bool {
	if st.run.ctx.Err() != nil {
		return false // the rest of a long replay is not waited for
	}
	err := st.batch.Decode(m.payload)
	if err == nil {
		err = st.deal(m.seq)
	}
	if len(m.payload) > maxScratch { // nothing of an event that was large stays
		st.batch = kvindex.Batch{}
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

// deal applies st.batch to the target of its rank. The sequence is the stream's: to
// the other ranks in it the message is a sign of life.
func (st *stream) deal(seq uint64) error {
	x, rank := st.run.s.cfg.Index, st.batch.Rank
	if st.batch.UnknownEvents > 0 && len(st.batch.Events) == 0 && !st.foreign {
		st.foreign = true
		st.run.s.log.Warn("KV events of unknown types; the target is not trusted until one is understood",
			zap.String("target", st.target.ID))
	}
	if len(st.target.Ranks) == 0 {
		if rank >= 0 {
			st.mixed = st.mixed || st.ranked && rank != st.rank
			st.rank, st.ranked = rank, true
		}
		if st.mixed {
			return errMixed
		}
		return x.Apply(st.target.ID, seq, st.batch)
	}
	if rank < 0 {
		return errNoRank
	}
	if rank >= len(st.target.Ranks) || st.target.Ranks[rank] == "" {
		st.run.s.n.unknown.Add(1)
	}
	for i, id := range st.target.Ranks {
		if id == "" {
			continue
		}
		b := kvindex.Batch{Time: st.batch.Time, Rank: i}
		if i == rank {
			b = st.batch
		}
		if err := x.Apply(id, seq, b); err != nil {
			return err
		}
	}
	return nil
}

func (st *stream) reset() {
	if !st.mixed {
		st.ranked = false // it may be another engine's from here on
	}
	for _, id := range st.ids {
		st.run.s.cfg.Index.Reset(id)
	}
}

func (st *stream) suspend(out bool) {
	for _, id := range st.ids {
		st.run.s.cfg.Index.Suspend(id, out)
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
	st.staleAt = time.Time{}
	if to == Down {
		st.staleAt, st.run.rearm = time.Now().Add(s.cfg.StaleAfter), true
	}
	st.log(from, to, why)
	if f := s.cfg.Trace.Transition; f != nil {
		f(st.target.ID, from, to, why)
	}
}

// A stream logs its first logBurst transitions within logEvery, and then one line
// at the end of that time: an engine that makes it flap does not fill the
// log.
const (
	logBurst = 10
	logEvery = time.Minute
)

func (st *stream) log(from, to State, why string) {
	if st.logged < logBurst {
		if st.logged++; st.logged == 1 {
			st.logAt, st.run.rearm = time.Now().Add(logEvery), true
		}
		st.run.s.log.Info("KV event stream", zap.String("target", st.target.ID),
			zap.Stringer("from", from), zap.Stringer("to", to), zap.String("why", why))
		return
	}
	st.unlogged++
}

// logRest ends the time in which transitions were counted.
func (st *stream) logRest() {
	if st.unlogged > 0 {
		st.run.s.log.Info("KV event stream: transitions that were not logged", zap.String("target", st.target.ID),
			zap.Int("count", st.unlogged), zap.Stringer("now", st.state))
	}
	st.logged, st.unlogged = 0, 0
}

// malformed counts a message that could not be read. The first of a Subscriber is
// logged.
func (r *run) malformed(id string, err error) {
	if r.s.n.malformed.Add(1) == 1 {
		r.s.log.Warn("malformed KV event message; further ones are counted only",
			zap.String("target", id), zap.String("endpoint", redact(r.s.cfg.Endpoint)), zap.Error(err))
	}
	if f := r.s.cfg.Trace.Malformed; f != nil {
		f(id, err)
	}
}

// contested counts a message for a target that came over another connection than
// the target's. The first of a Subscriber is logged.
func (r *run) contested(id, topic string) {
	if r.s.n.contested.Add(1) == 1 {
		r.s.log.Warn("a second engine publishes under the topic of a target; its messages are dropped and counted",
			zap.String("target", id), zap.String("endpoint", redact(r.s.cfg.Endpoint)))
	}
	if f := r.s.cfg.Trace.Contested; f != nil {
		f(id, topic)
	}
}
