package loadview

import (
	"encoding/binary"
	"hash/maphash"
	"time"

	"github.com/warmroute/router"
)

// The bounds of the memory of failed prompts.
const (
	maxSuspects = 64
	maxBlamed   = 8       // members for each
	maxHashed   = 1 << 20 // bytes of a text; of a longer one its two ends
	suspectFor  = 30 * time.Second
)

// suspects are the prompts that failed lately with a status. A prompt that fails on
// a second member is at fault itself: the blame of the first member is removed. If
// the prompt is served after all, the members that failed on it are blamed again.
// A member has at most maxExcuses such excuses in a row.
type suspects struct {
	seed maphash.Seed
	list []suspect // the oldest first
}

type suspect struct {
	key    uint64
	since  time.Duration
	blamed []blame
}

// blame is the effect of a failure on a member.
type blame struct {
	member        *member
	epoch         uint32
	counted       bool  // as a failure
	cooled, broke bool  // it was the one too many
	pause         int64 // that its Retry-After began; 0: none
}

// key returns the identity of a prompt: of its text, or of its tokens if it has none; 0
// without both. The model is no part of it: a client cannot make a second identity of
// a text without a change.
func (s *suspects) key(text string, tokens []uint32) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	if text == "" {
		if len(tokens) == 0 {
			return 0
		}
		const most = maxHashed / 4
		if len(tokens) > most {
			maphash.WriteComparable(&h, len(tokens))
			tokens = append(tokens[:most/2:most/2], tokens[len(tokens)-most/2:]...)
		}
		var b [4]byte
		for _, t := range tokens {
			binary.LittleEndian.PutUint32(b[:], t)
			_, _ = h.Write(b[:])
		}
		return max(h.Sum64(), 1)
	}
	if len(text) > maxHashed {
		_, _ = h.WriteString(text[:maxHashed/2])
		text = text[len(text)-maxHashed/2:]
	}
	_, _ = h.WriteString(text)
	return max(h.Sum64(), 1)
}

// find returns the suspect with this key, nil if there is none. It drops those that
// are too old.
func (s *suspects) find(key uint64, now time.Duration) *suspect {
	old := 0
	for old < len(s.list) && now-s.list[old].since >= suspectFor {
		old++
	}
	if old > 0 {
		s.list = append(s.list[:0], s.list[old:]...)
		clear(s.list[len(s.list):cap(s.list)])
	}
	for i := range s.list {
		if s.list[i].key == key {
			return &s.list[i]
		}
	}
	return nil
}

// add makes a prompt a suspect.
func (s *suspects) add(key uint64, now time.Duration) *suspect {
	if len(s.list) == maxSuspects {
		copy(s.list, s.list[1:])
		s.list = s.list[:maxSuspects-1]
	}
	s.list = append(s.list, suspect{key: key, since: now})
	return &s.list[len(s.list)-1]
}

// drop ends a suspicion.
func (s *suspects) drop(x *suspect) {
	for i := range s.list {
		if &s.list[i] == x {
			s.list = append(s.list[:i], s.list[i+1:]...)
			s.list[:len(s.list)+1][len(s.list)] = suspect{}
			return
		}
	}
}

// suspect decides whether a failure of m with the prompt of this key speaks of the
// member: it does while no other member failed on it. If so, the blame goes to x.
func (p *pool) suspect(m *member, key uint64, now time.Duration) (x *suspect, member bool) {
	if x = p.suspects.find(key, now); x == nil {
		x = p.suspects.add(key, now)
		p.suspected.Store(true)
		return x, true
	}
	known, others := false, false
	for _, b := range x.blamed {
		known = known || b.member == m
		others = others || b.member != m
	}
	if !others {
		return x, true
	}
	if m.excuse(!known, now) {
		return x, true
	}
	for i := range x.blamed {
		if b := &x.blamed[i]; b.counted {
			b.member.excuse(true, now)
		}
		p.acquit(&x.blamed[i], now)
	}
	if !known && len(x.blamed) < maxBlamed {
		x.blamed = append(x.blamed, blame{member: m, epoch: m.epoch})
	}
	return nil, false
}

// maxExcuses is how many requests in a row, none of them served, are to blame in a
// member's place. If still others fail, it is the members, or the world.
const maxExcuses = 3

// excuse notes that a request is to blame for a failure of m, another one than before
// if fresh is set. It reports whether m had too many excuses to have another.
func (m *member) excuse(fresh bool, now time.Duration) (tooMany bool) {
	if now-m.excused >= suspectFor {
		m.excuses = 0
	}
	if fresh {
		m.excuses = min(m.excuses+1, maxExcuses+1)
		m.excused = now
	}
	return m.excuses > maxExcuses
}

// acquit takes back a blame, unless the member has recovered from it by itself.
func (p *pool) acquit(b *blame, now time.Duration) {
	m := b.member
	if b.pause != 0 && m.pause.CompareAndSwap(b.pause, 0) && !b.counted {
		p.putState(m, now)
	}
	if !b.counted || m.gone || m.epoch != b.epoch {
		b.counted = false
		return
	}
	b.counted = false
	if n := m.fails.Load(); n > 0 {
		m.fails.Store(n - 1)
	}
	m.faults = max(m.faults-1, 0)
	if m.recent.bad > 0 {
		m.recent.bad--
	}
	if b.cooled && m.cool.Load() != 0 {
		m.cool.Store(0)
		m.doubts = max(m.doubts-1, 0)
	}
	if b.broke {
		m.set(tripped, false)
		m.open.Store(0)
	}
	p.putState(m, now)
}

// served notes that f's prompt was served: the other members that failed on it, and
// were acquitted, are to blame after all.
func (p *pool) served(f *flight, key uint64, now time.Duration) {
	x := p.suspects.find(key, now)
	if x != nil {
		for _, b := range x.blamed {
			m := b.member
			if !b.counted && m != f.member && !m.gone && m.epoch == b.epoch {
				p.count(m, now)
				p.watchEnds(m)
				p.putState(m, now)
			}
		}
		p.suspects.drop(x)
	}
	p.suspected.Store(len(p.suspects.list) > 0)
}

// suspicious reports whether an outcome makes its prompt a suspect: a status that
// the member answered, which is neither a refusal nor one of the client's.
func suspicious(o router.Outcome) bool { return o.Status >= 500 && o.Status <= 599 }
