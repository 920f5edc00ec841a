// Package tokenmemo remembers the token ids of prompts as engines report them, for gateways that have no tokenizer of
// their own: [NewKey] returns the parts of a request that decide about its ids, [Reply] collects the ids that an engine
// returns, and a [Memo] answers later prompts with them.
package tokenmemo

import (
	"container/list"
	"slices"
	"sync"
	"time"
)

// Memo remembers the ids of prompts as engines reported them, and so
// the ids with which later prompts begin. It is exact or silent:
//
//   - A request of an equal [Key] has the ids that were learned, as a whole.
//   - A conversation that goes on begins with the ids up to the boundary of a turn
//     where two of its prompts, one of which extends the other, have been seen to
//     agree so far. The ids of the turns since then are not known: a conversation's
//     third prompt is the first that begins with known ones.
//
// A boundary is known for the conversation with its next message, since what
// follows decides about the last tokens before it, and separately before the
// last user's message and after it. A reply counts as far as the next prompt
// was seen to have it in the same tokens.
//
// Nothing is known beyond a message with reasoning, which templates cut from past
// turns. The ids of each source ([Key.Of]) are kept and believed apart: ids of one source that contradict each other
// under one setting (a template with a date in it) end all that is known of it from this source for
// the time of Quarantine, and nothing of other sources. If sources do not agree, the ids of most of them count,
// and none if there is no majority.
//
// It is safe for concurrent use.
type Memo struct {
	cfg Config

	mu      sync.Mutex
	entries map[memoKey]*list.Element // of *memoEntry
	sources map[place][]string        // of the entries at a place
	recent  list.List                 // the latest used first
	bytes   int
	suspect map[setting]time.Time // until when
	doubted map[setting]doubt
	n       Stats
}

// setting is all of a request but its messages, as one source renders it.
type setting struct {
	of     digest256
	source string
}

func (k *Key) as(source string) setting { return setting{k.setting, source} }

// place is a point of a conversation.
type place struct {
	at   digest256
	kind memoKind
}

type memoKey struct {
	place
	source string
}

// memoKind is the kind of an entry: all of a prompt, or the beginning of prompts in which a
// user's message follows, or none does. Templates treat the part before the last user's
// message in another way than the part after it.
type memoKind uint8

const (
	memoWhole memoKind = iota
	memoPast
	memoPresent
)

// boundary returns the place after message i.
func (k *Key) boundary(i int) place {
	if k.lastUser > i+1 {
		return place{k.turns[i], memoPast}
	}
	return place{k.turns[i], memoPresent}
}

type memoEntry struct {
	key     memoKey
	setting digest256
	ids     []uint32
	prompt  int // how many of ids are the prompt's; the rest was generated
}

// Stats is the size of a Memo and the counts of its work.
type Stats struct {
	Entries, Bytes int
	// Learned counts prompts, Confirmed boundaries, Unstable those that MaxTail
	// forbade. Whole and Prefix count answers, Silent those without ids.
	Learned, Confirmed, Unstable, Whole, Prefix, Silent uint64
	// Contradicted counts ids that were others than expected, Evicted entries that
	// went for others.
	Contradicted, Evicted uint64
}

// New returns an empty memo. A bad value is a *router.ConfigError that names the
// field; several are joined.
func New(c Config) (*Memo, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Memo{
		cfg: c.WithDefaults(), entries: make(map[memoKey]*list.Element), sources: make(map[place][]string),
		suspect: make(map[setting]time.Time), doubted: make(map[setting]doubt),
	}, nil
}

// Tokens returns ids of the prompt of a request: all of them, or those it begins
// with, or none. They are those of k's source, or those on which most sources agree if k names none. They are
// shared and must not be changed.
func (m *Memo) Tokens(k Key) (ids []uint32, whole bool) {
	if len(k.turns) == 0 {
		return nil, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entry(&k, place{at: k.whole()}); e != nil {
		m.n.Whole++
		return e.ids[:e.prompt:e.prompt], true
	}
	// The last message's end is no boundary: it may be rendered as one that the
	// model goes on with.
	for i := min(k.steady, len(k.turns)-1) - 1; i >= 0; i-- {
		if e := m.entry(&k, k.boundary(i)); e != nil {
			m.n.Prefix++
			return e.ids, false
		}
	}
	m.n.Silent++
	return nil, false
}

// entry returns the entry of k's source at a place, or the one on which most of the sources agree; nil for none.
func (m *Memo) entry(k *Key, at place) *memoEntry {
	if k.source != "" {
		if m.suspected(k.as(k.source)) {
			return nil
		}
		return m.get(memoKey{at, k.source})
	}
	all := m.sources[at]
	if len(all) == 1 { // nearly always
		if m.suspected(k.as(all[0])) {
			return nil
		}
		return m.get(memoKey{at, all[0]})
	}
	var entries []*memoEntry
	for _, s := range all {
		if !m.suspected(k.as(s)) {
			entries = append(entries, m.get(memoKey{at, s}))
		}
	}
	for _, e := range entries {
		agree := 0
		for _, o := range entries {
			if equalIDs(e.ids[:e.prompt], o.ids[:o.prompt]) {
				agree++
			}
		}
		if 2*agree > len(entries) {
			return e
		}
	}
	return nil
}

// Learn takes the ids that k's source reported for a request's prompt, and for its
// output if that ended by itself and there was one choice; nil otherwise. They
// are copied.
func (m *Memo) Learn(k Key, prompt, output []uint32) {
	if len(prompt) == 0 || len(k.turns) == 0 {
		return
	}
	if k.open {
		output = nil
	}
	if (len(prompt)+len(output))*4+memoEntryBytes > m.cfg.MaxBytes {
		return
	}
	if !m.learn(&k, prompt, output) && m.cfg.Contradicted != nil {
		m.cfg.Contradicted()
	}
}

// learn reports whether the ids agree with those that are known.
func (m *Memo) learn(k *Key, prompt, output []uint32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.suspected(k.as(k.source)) {
		return true
	}
	at := memoKey{place{at: k.whole()}, k.source}
	old := m.get(at)
	if old != nil && !equalIDs(old.ids[:old.prompt], prompt) || !m.agrees(k, prompt) {
		m.condemn(k.as(k.source))
		return false
	}
	m.n.Learned++
	m.confirm(k, prompt)
	if old != nil && len(output) <= len(old.ids)-old.prompt {
		return true
	}
	ids := make([]uint32, 0, len(prompt)+len(output))
	ids = append(append(ids, prompt...), output...)
	m.put(&memoEntry{key: at, setting: k.setting, ids: ids, prompt: len(prompt)})
	return true
}

// agrees reports whether a prompt begins as Tokens would have said.
func (m *Memo) agrees(k *Key, prompt []uint32) bool {
	for i := min(k.steady, len(k.turns)-1) - 1; i >= 0; i-- {
		if e := m.get(memoKey{k.boundary(i), k.source}); e != nil {
			return len(prompt) >= len(e.ids) && equalIDs(prompt[:len(e.ids)], e.ids)
		}
	}
	return true
}

// confirm compares a prompt with the latest one that it extends.
func (m *Memo) confirm(k *Key, prompt []uint32) {
	for i := len(k.turns) - 2; i >= 0; i-- {
		e := m.get(memoKey{place{at: k.turns[i]}, k.source})
		if e == nil {
			continue
		}
		// The turn after the boundary is part of its key, and has to be within the
		// prompt, not at its end.
		if i+1 >= min(k.steady, len(k.turns)-1) {
			return
		}
		n := commonIDs(e.ids, prompt)
		if n == 0 || e.prompt-n > m.cfg.MaxTail {
			m.n.Unstable++
			return
		}
		at := memoKey{k.boundary(i + 1), k.source}
		if m.get(at) == nil {
			m.n.Confirmed++
			m.put(&memoEntry{key: at, setting: k.setting, ids: append([]uint32(nil), prompt[:n]...), prompt: n})
		}
		return
	}
}

// Forget empties the memo. A caller that sees an engine start again calls it,
// since it may have come back with another tokenizer or template.
func (m *Memo) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.entries)
	clear(m.sources)
	clear(m.suspect)
	clear(m.doubted)
	m.recent.Init()
	m.cfg.Memory.Release(int64(m.bytes))
	m.bytes = 0
}

// Stats returns the size and the counts.
func (m *Memo) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.n
	st.Entries, st.Bytes = len(m.entries), m.bytes
	return st
}

// get returns the entry of this key, nil for none. The caller holds mu, as of all that follow.
func (m *Memo) get(k memoKey) *memoEntry {
	e, ok := m.entries[k]
	if !ok {
		return nil
	}
	m.recent.MoveToFront(e)
	return e.Value.(*memoEntry)
}

func (m *Memo) put(e *memoEntry) {
	if old, ok := m.entries[e.key]; ok {
		m.remove(old)
	}
	all := m.sources[e.key.place]
	if len(all) == maxSources {
		return
	}
	for m.bytes+e.size() > m.cfg.MaxBytes || len(m.entries) >= m.cfg.MaxEntries ||
		m.cfg.Memory.Reserve(int64(e.size())) != nil {
		oldest := m.recent.Back()
		if oldest == nil { // others have taken all of Memory
			return
		}
		m.n.Evicted++
		m.remove(oldest)
	}
	// Of the sources at e's place some may be gone now.
	m.sources[e.key.place] = append(m.sources[e.key.place], e.key.source)
	m.entries[e.key] = m.recent.PushFront(e)
	m.bytes += e.size()
}

func (m *Memo) remove(e *list.Element) {
	v := m.recent.Remove(e).(*memoEntry)
	delete(m.entries, v.key)
	all := m.sources[v.key.place]
	if i := slices.Index(all, v.key.source); len(all) > 1 {
		m.sources[v.key.place] = slices.Delete(all, i, i+1)
	} else {
		delete(m.sources, v.key.place)
	}
	m.bytes -= v.size()
	m.cfg.Memory.Release(int64(v.size()))
}

func (e *memoEntry) size() int { return memoEntryBytes + 4*len(e.ids) }

func commonIDs(a, b []uint32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func equalIDs(a, b []uint32) bool { return len(a) == len(b) && commonIDs(a, b) == len(a) }
