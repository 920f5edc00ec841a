package prompt

import (
	"container/list"
	"fmt"
	"sync"
	"time"
)

// TokenMemoConfig is what a TokenMemo is made of. The zero TokenMemoConfig is the
// documented default.
type TokenMemoConfig struct {
	// MaxEntries bounds the prompts and beginnings that are kept, MaxBytes their
	// ids in bytes, 4 for each, and 128 for an entry. What was not used for longest
	// goes first. 0 means 16,384 and 64 MiB.
	MaxEntries, MaxBytes int
	// MaxTail is the greatest number of tokens at the end of a prompt that may be
	// others when the conversation goes on, such as those that open the reply. With
	// more, the chat template is one that rewrites what it has rendered, and nothing
	// is concluded from it. 0 means 64.
	MaxTail int
	// Quarantine is how long nothing is believed of requests with a setting (model,
	// tools, template and its arguments) of which a contradiction was seen. 0 means
	// 10 minutes.
	Quarantine time.Duration
	// Contradicted is told, where it is not nil, when ids turn out to be others than
	// the memo has, or had given away. It is called without a lock.
	Contradicted func()
	// Now is the clock of Quarantine; nil means time.Now. It is safe for concurrent
	// use.
	Now func() time.Time
}

const (
	memoEntryBytes  = 128
	maxQuarantined  = 1024
	defaultMaxTail  = 64
	defaultEntries  = 16384
	defaultMemoSize = 64 << 20
)

// TokenMemo remembers the ids of prompts as engines told them, and knows by them
// how later prompts begin. It is exact or silent:
//
//   - A request of an equal [TokenKey] has the ids that were learned, as a whole.
//   - A conversation that goes on begins with the ids up to the boundary of a turn
//     where two of its prompts, one of which extends the other, have been seen to
//     agree so far. The ids of the turns since then are not known: a conversation's
//     third prompt is the first that begins with known ones.
//
// A boundary is known for the conversation with its next message, since what
// follows decides about the last tokens before it, and apart for what comes
// before the last user's message and after it. What a reply said is counted
// in as far as the next prompt was seen to hold it in the same tokens.
//
// Nothing is known beyond a message with reasoning, which templates cut from past
// turns. Ids that contradict each other under one setting (a template with a
// date in it, engines with different templates) end all that is known of it for
// the time of Quarantine.
//
// It is safe for concurrent use.
type TokenMemo struct {
	cfg TokenMemoConfig

	mu      sync.Mutex
	entries map[memoKey]*list.Element // of *memoEntry
	recent  list.List                 // the latest used first
	bytes   int
	suspect map[digest256]time.Time // settings, until when
	n       TokenMemoStats
}

type memoKey struct {
	at   digest256
	kind memoKind
}

// memoKind is what an entry is: all of a prompt, or how prompts begin in which a
// user's message follows, or none. Templates treat what came before the last
// user's message in another way than what follows it.
type memoKind uint8

const (
	memoWhole memoKind = iota
	memoPast
	memoPresent
)

// boundary returns the key of the boundary after message i.
func (k *TokenKey) boundary(i int) memoKey {
	if k.lastUser > i+1 {
		return memoKey{k.turns[i], memoPast}
	}
	return memoKey{k.turns[i], memoPresent}
}

type memoEntry struct {
	key     memoKey
	setting digest256
	ids     []uint32
	prompt  int // how many of ids are the prompt's; the rest was generated
}

// TokenMemoStats is the size of a TokenMemo and what happened to it.
type TokenMemoStats struct {
	Entries, Bytes int
	// Learned counts prompts, Confirmed boundaries, Unstable those that MaxTail
	// forbade. Whole and Prefix count answers, Silent those without ids.
	Learned, Confirmed, Unstable, Whole, Prefix, Silent uint64
	// Contradicted counts ids that were others than expected, Evicted entries that
	// went for others.
	Contradicted, Evicted uint64
}

// NewTokenMemo returns an empty memo. A bad value is an error that names the
// field.
func NewTokenMemo(c TokenMemoConfig) (*TokenMemo, error) {
	for _, f := range []struct {
		name string
		v    *int
		def  int
	}{{"MaxEntries", &c.MaxEntries, defaultEntries}, {"MaxBytes", &c.MaxBytes, defaultMemoSize}, {"MaxTail", &c.MaxTail, defaultMaxTail}} {
		if *f.v < 0 {
			return nil, fmt.Errorf("prompt: TokenMemoConfig.%s is %d; it must not be negative", f.name, *f.v)
		}
		if *f.v == 0 {
			*f.v = f.def
		}
	}
	if c.Quarantine < 0 {
		return nil, fmt.Errorf("prompt: TokenMemoConfig.Quarantine is %v; it must not be negative", c.Quarantine)
	}
	if c.Quarantine == 0 {
		c.Quarantine = 10 * time.Minute
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &TokenMemo{cfg: c, entries: make(map[memoKey]*list.Element), suspect: make(map[digest256]time.Time)}, nil
}

// Tokens returns ids of the prompt of a request: all of them, or those it begins
// with, or none. They are shared and must not be changed.
func (m *TokenMemo) Tokens(k TokenKey) (ids []uint32, whole bool) {
	if len(k.turns) == 0 {
		return nil, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.suspected(k.setting) {
		if e := m.get(memoKey{at: k.whole()}); e != nil {
			m.n.Whole++
			return e.ids[:e.prompt:e.prompt], true
		}
		// The last message's end is no boundary: it may be rendered as one that the
		// model goes on with.
		for i := min(k.steady, len(k.turns)-1) - 1; i >= 0; i-- {
			if e := m.get(k.boundary(i)); e != nil {
				m.n.Prefix++
				return e.ids, false
			}
		}
	}
	m.n.Silent++
	return nil, false
}

// Learn takes the ids that an engine told of a request's prompt, and of its
// output where that ended by itself and there was one choice; nil otherwise. They
// are copied.
func (m *TokenMemo) Learn(k TokenKey, prompt, output []uint32) {
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

// learn reports whether the ids go with what is known.
func (m *TokenMemo) learn(k *TokenKey, prompt, output []uint32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.suspected(k.setting) {
		return true
	}
	at := memoKey{at: k.whole()}
	old := m.get(at)
	if old != nil && !equalIDs(old.ids[:old.prompt], prompt) || !m.agrees(k, prompt) {
		m.condemn(k.setting)
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
func (m *TokenMemo) agrees(k *TokenKey, prompt []uint32) bool {
	for i := min(k.steady, len(k.turns)-1) - 1; i >= 0; i-- {
		if e := m.get(k.boundary(i)); e != nil {
			return len(prompt) >= len(e.ids) && equalIDs(prompt[:len(e.ids)], e.ids)
		}
	}
	return true
}

// confirm compares a prompt with the latest one that it extends.
func (m *TokenMemo) confirm(k *TokenKey, prompt []uint32) {
	for i := len(k.turns) - 2; i >= 0; i-- {
		e := m.get(memoKey{at: k.turns[i]})
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
		at := k.boundary(i + 1)
		if m.get(at) == nil {
			m.n.Confirmed++
			m.put(&memoEntry{key: at, setting: k.setting, ids: append([]uint32(nil), prompt[:n]...), prompt: n})
		}
		return
	}
}

// Contradict says that an engine counted other tokens than ids of this key have,
// so whatever is known of its setting cannot be believed.
func (m *TokenMemo) Contradict(k TokenKey) {
	if len(k.turns) == 0 {
		return
	}
	m.mu.Lock()
	m.condemn(k.setting)
	m.mu.Unlock()
	if m.cfg.Contradicted != nil {
		m.cfg.Contradicted()
	}
}

// Forget empties the memo. Whoever sees an engine start again calls it, since it
// may have come back with another tokenizer or template.
func (m *TokenMemo) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.entries)
	clear(m.suspect)
	m.recent.Init()
	m.bytes = 0
}

// Suspect reports whether nothing is believed of this key's setting for now.
func (m *TokenMemo) Suspect(k TokenKey) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.suspected(k.setting)
}

// Stats returns the size and the counts.
func (m *TokenMemo) Stats() TokenMemoStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.n
	st.Entries, st.Bytes = len(m.entries), m.bytes
	return st
}

// suspected reports whether a setting is in quarantine. The caller holds mu, as of
// all that follow.
func (m *TokenMemo) suspected(setting digest256) bool {
	until, ok := m.suspect[setting]
	if ok && !m.cfg.Now().Before(until) {
		delete(m.suspect, setting)
		ok = false
	}
	return ok
}

// condemn forgets all of a setting.
func (m *TokenMemo) condemn(setting digest256) {
	m.n.Contradicted++
	for e := m.recent.Front(); e != nil; {
		next := e.Next()
		if e.Value.(*memoEntry).setting == setting {
			m.remove(e)
		}
		e = next
	}
	now := m.cfg.Now()
	if len(m.suspect) >= maxQuarantined {
		var first digest256
		var least time.Time
		for s, until := range m.suspect {
			if least.IsZero() || until.Before(least) {
				first, least = s, until
			}
		}
		delete(m.suspect, first)
	}
	m.suspect[setting] = now.Add(m.cfg.Quarantine)
}

func (m *TokenMemo) get(k memoKey) *memoEntry {
	e, ok := m.entries[k]
	if !ok {
		return nil
	}
	m.recent.MoveToFront(e)
	return e.Value.(*memoEntry)
}

func (m *TokenMemo) put(e *memoEntry) {
	if old, ok := m.entries[e.key]; ok {
		m.remove(old)
	}
	m.entries[e.key] = m.recent.PushFront(e)
	m.bytes += e.size()
	for m.bytes > m.cfg.MaxBytes || len(m.entries) > m.cfg.MaxEntries {
		m.n.Evicted++
		m.remove(m.recent.Back())
	}
}

func (m *TokenMemo) remove(e *list.Element) {
	v := m.recent.Remove(e).(*memoEntry)
	delete(m.entries, v.key)
	m.bytes -= v.size()
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
