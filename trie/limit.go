package trie

import "github.com/warmroute/router/internal/scopekey"

// Past describes the record of one target just before a text was inserted for it.
type Past struct {
	// Held is how many leading bytes of the text the target was recorded to hold.
	Held int
	// Last is the number of the last insert that recorded them; 0 if none did, or if
	// so many prompts begin with them that it was not looked for.
	Last uint64
	// Now is the number of the insert itself; 0 if the text was not recorded.
	Now uint64
}

// Usage is the size of the record of one target.
type Usage struct {
	Bytes int // of text; text that its prompts share counts once
	Limit int // of Bytes; 0: none
	// Oldest and Newest are the numbers of the last inserts of its least and most
	// recently inserted prompts; 0 if it has none.
	Oldest, Newest uint64
}

const (
	// lookedAt is how many nodes InsertPast looks at for the last insert.
	lookedAt = 8
	// expired is how many prompts one Expire drops at most.
	expired = 1024
	// limited is how many prompts one write drops at most because of a limit.
	limited = 64
	// mostLost is the number of a slot's lost prompts at which those of all slots are halved.
	mostLost = 1024
)

// InsertPast is Insert, and returns what was recorded before. Inserts are numbered
// from 1, those of all targets together.
func (t *Trie) InsertPast(scope, text, id string) Past {
	if text == "" || len(text) > t.cfg.MaxBytes {
		return Past{}
	}
	scope = scopekey.Of(scope)
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.slotOf(id)
	if !ok {
		return Past{}
	}
	var past Past
	t.insert(scope, text, s, &past)
	return past
}

// lastInsert returns the number of the newest prompt of slot s that ends at n or below it; 0 if n is, or if it was not
// looked for.
func (t *Trie) lastInsert(n uint32, s uint16) uint64 {
	if n == 0 {
		return 0
	}
	l := lastInsert{t: t, slot: s, left: lookedAt}
	if l.below(n); l.left < 0 {
		return 0
	}
	return l.seq
}

// lastInsert looks for the newest prompt of a slot.
type lastInsert struct {
	t    *Trie
	slot uint16
	left int // nodes; negative if there were more
	seq  uint64
}

// below takes in the prompts that end at n or below it.
func (l *lastInsert) below(n uint32) {
	if l.left--; l.left < 0 {
		return
	}
	if p := l.t.ends[endKey(n, l.slot)]; p != 0 {
		l.seq = max(l.seq, l.t.prompts.at(p).seq)
	}
	for k := l.t.nodes.at(n).kid; k != 0 && l.left >= 0; {
		kid := l.t.nodes.at(k)
		if l.t.holds(kid, l.slot) {
			l.below(k)
		} else {
			l.left--
		}
		k = kid.right
	}
}

// Usage returns the size of the record of id, the zero Usage if there is none.
func (t *Trie) Usage(id string) Usage {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s, ok := t.ids[id]
	if !ok {
		return Usage{}
	}
	sl := &t.slots[s]
	u := Usage{Bytes: sl.bytes, Limit: sl.limit}
	if sl.list.oldest != 0 {
		u.Oldest, u.Newest = t.prompts.at(sl.list.oldest).seq, t.prompts.at(sl.list.newest).seq
	}
	return u
}

// Expire drops the prompts of id that were last inserted by the insert with number
// last or before it, the oldest first, but for its newest, as long as more than least
// bytes stay. One call drops at most 1,024 prompts.
func (t *Trie) Expire(id string, last uint64, least int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.ids[id]
	if !ok {
		return
	}
	sl := &t.slots[s]
	for range expired {
		if sl.list.oldest == sl.list.newest || sl.bytes <= least || t.prompts.at(sl.list.oldest).seq > last {
			break
		}
		t.evictOldest(&sl.list)
		t.lose(sl)
	}
	t.maintain(0)
}

// Limit bounds the bytes that are recorded for id from now on; 0: no bound but those
// of Config. The newest prompt stays, whatever its size. Inserts bring a record that
// is too large within the bound, each by at most 64 prompts. Forget lifts the limit.
// An unknown id has none.
func (t *Trie) Limit(id string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.ids[id]
	if !ok {
		return
	}
	t.slots[s].limit = max(n, 0)
	t.keepLimit(s)
	t.maintain(0)
}

// keepLimit evicts prompts of slot s beyond its limit.
func (t *Trie) keepLimit(s uint16) {
	sl := &t.slots[s]
	for range limited {
		if sl.limit == 0 || sl.bytes <= sl.limit || sl.list.oldest == sl.list.newest {
			return
		}
		t.evictOldest(&sl.list)
		t.lose(sl)
	}
}

// lose counts a prompt of sl as lost.
func (t *Trie) lose(sl *slot) {
	if sl.lost++; sl.lost < mostLost {
		return
	}
	for i := range t.slots {
		t.slots[i].lost /= 2
	}
}
