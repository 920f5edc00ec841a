package sim

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/warmroute/router/kvindex"
)

// KVEvents is how the engines' KV events come to the gateways, each of which hears
// all engines. The zero value: at once, all of them.
type KVEvents struct {
	// Lag is the time from the step in which something happens until a gateway's
	// index knows.
	Lag time.Duration
	// Drop is the share of messages that do not arrive, at each gateway others. With
	// the next message the gateway sees that one is missing, trusts the stream no
	// longer and asks again; the answer is there after two Lags.
	Drop float64
	// NoReplay disables replay: after a gap a gateway forgets the engine's blocks,
	// and continues with the next message.
	NoReplay bool
}

// news has the events of an engine's cache, in order. Its simplifications against
// a real one: the events of a row of decode steps are published at the row's end,
// and CPU memory publishes none.
type news struct {
	size   int
	events []kvindex.Event
	seq    *seq // the sequence of the last event's blocks
	from   int  // the first of them
}

// stored adds the event that block k of s can be found.
func (n *news) stored(p *pool, s *seq, k int) {
	if last := len(n.events) - 1; n.seq == s && last >= 0 && n.from+len(n.events[last].Hashes) == k {
		e := &n.events[last]
		e.Hashes = append(e.Hashes, s.hashes[k])
		e.Tokens = s.ids[n.from*n.size : (k+1)*n.size]
		return
	}
	e := kvindex.Event{
		Kind: kvindex.Stored, Group: -1, BlockSize: int32(n.size),
		Hashes: []uint64{s.hashes[k]}, Tokens: s.ids[k*n.size : (k+1)*n.size],
	}
	if k > 0 {
		e.HasParent, e.Parent = true, s.hashes[k-1]
	}
	n.events = append(n.events, e)
	n.seq, n.from = s, k
	// A parent that is named is taken for resident. Of two equal blocks only the
	// first can be found here; when it is gone the second is of no use to others.
	for i := k - 1; i >= 0; i-- {
		if _, ok := p.byHash[s.hashes[i]]; !ok {
			n.removed(s.hashes[i])
		}
	}
}

func (n *news) removed(hash uint64) {
	n.seq = nil
	if last := len(n.events) - 1; last >= 0 && n.events[last].Kind == kvindex.Removed {
		n.events[last].Hashes = append(n.events[last].Hashes, hash)
		return
	}
	n.events = append(n.events, kvindex.Event{Kind: kvindex.Removed, Group: -1, Hashes: []uint64{hash}})
}

// name makes block k of s findable, and adds its event.
func (e *engine) name(s *seq, k int) {
	if e.pool.name(s.blocks[k], s.hashes[k]) && e.pool.news != nil {
		e.pool.news.stored(e.pool, s, k)
	}
}

// stream has the messages that one engine has sent since the run began.
type stream struct {
	log   []kvindex.Batch
	first int // number of log[0]
	born  int // number of the first one since the engine started
}

func (s *stream) end() int { return s.first + len(s.log) }

// listener has one gateway's position in each engine's stream.
type listener struct {
	index *kvindex.Index
	next  []int // number of the message to apply next
	heard []int // and of the one after the last that arrived
	asked []bool
}

// listen lets a gateway hear an engine from its start on.
func (f *fleet) listen(l *listener, k int) error {
	s := &f.streams[k]
	if k == len(l.next) {
		l.next, l.heard, l.asked = append(l.next, 0), append(l.heard, 0), append(l.asked, false)
	}
	l.next[k], l.heard[k], l.asked[k] = s.born, s.born, false
	l.index.Reset(f.ids[k])
	return l.index.Apply(f.ids[k], 0, kvindex.Batch{})
}

// publish sends the events of engine k to all gateways.
func (f *fleet) publish(k int) {
	n := f.engines[k].pool.news
	if n == nil || len(n.events) == 0 {
		return
	}
	s := &f.streams[k]
	number := s.end()
	s.log = append(s.log, kvindex.Batch{Rank: -1, Events: n.events})
	n.events, n.seq = nil, nil
	f.res.Messages++
	for g := range f.gates {
		switch {
		case f.cfg.KV.Drop > 0 && f.drops.Float64() < f.cfg.KV.Drop:
		case f.cfg.KV.Lag == 0:
			f.hear(g, k, number)
		default:
			f.post(event{at: f.now + at(f.cfg.KV.Lag), kind: evHear, index: int32(k*len(f.gates) + g), epoch: uint32(number)})
		}
	}
	f.trim(s, k)
}

// trim drops the messages that all gateways have.
func (f *fleet) trim(s *stream, k int) {
	if len(s.log) < 256 {
		return
	}
	least := s.end()
	for _, g := range f.gates {
		least = min(least, g.listener.next[k])
	}
	if n := least - s.first; n > len(s.log)/2 {
		s.log = append([]kvindex.Batch(nil), s.log[n:]...)
		s.first = least
	}
}

// hear is the arrival of a message of engine k at gateway g.
func (f *fleet) hear(g, k, number int) {
	l, s := &f.gates[g].listener, &f.streams[k]
	if number < s.born {
		return // of a life that is over
	}
	l.heard[k] = max(l.heard[k], number+1)
	if l.asked[k] || number < l.next[k] {
		return // the answer brings it, or has
	}
	err := f.apply(l, k, number)
	switch {
	case err == nil:
	case !errors.Is(err, kvindex.ErrGap):
		f.err = err
	case f.cfg.KV.NoReplay:
		f.res.Gaps++
		l.index.Reset(f.ids[k])
		if err := f.apply(l, k, number); err != nil {
			f.err = err
		}
	default:
		f.res.Gaps++
		l.asked[k] = true
		f.post(event{at: f.now + 2*at(f.cfg.KV.Lag), kind: evReplay, index: int32(k*len(f.gates) + g), epoch: uint32(s.born)})
	}
}

func (f *fleet) apply(l *listener, k, number int) error {
	s := &f.streams[k]
	err := l.index.Apply(f.ids[k], uint64(number-s.born+1), s.log[number-s.first])
	if err == nil {
		l.next[k] = number + 1
	}
	return err
}

// replay is the answer to gateway g, which had missed something of engine k.
func (f *fleet) replay(g, k, born int) {
	l, s := &f.gates[g].listener, &f.streams[k]
	if born != s.born {
		return
	}
	l.asked[k] = false
	for l.next[k] < l.heard[k] {
		if err := f.apply(l, k, l.next[k]); err != nil {
			f.err = err
			return
		}
	}
}

// reborn begins a new stream of an engine that is back; the gateways see it when
// they connect again.
func (f *fleet) reborn(k int) {
	s := &f.streams[k]
	s.born = s.end()
	if n := f.engines[k].pool.news; n != nil {
		n.events, n.seq = nil, nil
		for _, g := range f.gates {
			if err := f.listen(&g.listener, k); err != nil {
				f.err = err
			}
		}
	}
}

// dropSource makes the draws of KVEvents.Drop, apart from all others.
func dropSource(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 3)) }
