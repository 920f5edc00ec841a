package zmqsub

import (
	"errors"

	"github.com/warmroute/router/kvindex"
)

var (
	errMixed  = errors.New("zmqsub: messages of several data-parallel ranks in one stream; Target.Ranks tells them apart")
	errNoRank = errors.New("zmqsub: a message that names no data-parallel rank, in a stream of several")
)

// names are those of t in the index.
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

// deal applies st.batch to the target that it is about. The sequence is the
// stream's: to the other ranks in it the message is a sign of life.
func (st *stream) deal(seq uint64) error {
	x, rank := st.run.s.cfg.Index, st.batch.Rank
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
