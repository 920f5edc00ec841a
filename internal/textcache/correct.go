package textcache

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/peering"
	"github.com/warmroute/router/trie"
)

// Reported cached tokens correct what is believed of a target by these rules.
//
// A report denies the belief if the target computed most of a part that it had been sent, and had computed, before.
// Engines evict the least recently used blocks, so all prompts that were last sent there before that part are gone too,
// and the text of those that were sent since bounds the target's capacity from above. The record of the target is cut
// to it, and a little further, because the evicted part lies somewhere beyond the capacity. A report that
// confirms an old part lets a record at its bound grow again, and so, slowly, does each report that denies nothing:
// dropped prompts are not asked for there again, so that nothing else would show that the bound is too low. Prompts
// that the target has not computed yet do not count towards the bound.
//
// Engines cache whole blocks, so a report may lack nearly one of them. The greatest common divisor of a target's
// reports is a multiple of its block's size.
const (
	// leastTokens is how much a report must differ from the belief: several blocks of the usual sizes (16 to 64), or a
	// chat template and the end of a turn.
	leastTokens = 128
	// A report denies if it has less than 1/denied of the belief. A reply that the next turn renders otherwise, and a
	// part of which only the end was evicted, stay above it.
	denied = 2
	// A report confirms if the share that it lacks is at most 1/confirmed.
	confirmed = 4
	// After a denial the limit is an eighth less than the bound that it proves; after a second one without a confirmation
	// between them, or before the first confirmation, a quarter; then half. A confirmation adds 1/grow.
	shrink, grow = 8, 8
	// A record at its bound grows by 1/probe of the new text of a prompt.
	probe = 8
	// One denial takes back at most half of the record.
	mostLost = 2
	// alwaysNothing is how many reports from the first denial on, none of them above 0, show that the 0 of these
	// engines says nothing.
	alwaysNothing = 64
	// maxWaiting bounds the prompts that are remembered as not computed yet: between one and two times as many.
	maxWaiting = 4096
	// maxTargets bounds the targets with remembered denials and confirmations.
	maxTargets = 4096
)

// belief has what was recorded of a prompt at its target when it was sent there.
type belief struct {
	trie.Past
	young  bool      // it was not computed there yet
	target *evidence // that counts it as not computed; nil: none does any more
	fresh  int       // bytes that it counts
	chain  peering.Chain
}

// learned has what was learned about reports. The zero learned is empty.
type learned struct {
	mu            sync.Mutex
	waiting, late map[uint64]struct{}  // inserts of prompts not computed yet; late is dropped when waiting is full
	last          map[string]*evidence // of each target
	limits        atomic.Bool          // some target has a limit
	some          bool                 // a report was above 0
	nothing       int                  // reports before that, from the first denial on
}

// evidence is what the reports of one target have shown, and its last denial that counted.
type evidence struct {
	first  int    // reported tokens, of the first report above 0
	grain  int    // the greatest common divisor of them all, if one differs from the first; else 0
	judged bool   // something was denied or confirmed
	most   int    // the learned bound of the record, without fresh; 0: none
	fresh  int    // bytes of the record that the target has not computed yet
	at     uint64 // the insert before which the target's requests add nothing to the denial
	left   int    // bytes of the record that stay, without fresh
	row    int    // denials since the last confirmation
}

// sent notes that the target was sent a prompt of size bytes.
func (l *learned) sent(p trie.Past, id string, size int) belief {
	b := belief{Past: p}
	if p.Now == 0 {
		return b
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, now := l.waiting[p.Last]
	_, before := l.late[p.Last]
	b.young = now || before
	if l.waiting == nil || len(l.waiting) >= maxWaiting {
		l.late, l.waiting = l.waiting, make(map[uint64]struct{})
	}
	l.waiting[p.Now] = struct{}{}
	b.target, b.fresh = l.of(id), size-p.Held
	b.target.fresh += b.fresh
	return b
}

// computed notes that the target has computed the prompt.
func (l *learned) computed(b *belief) {
	if b.Now == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, b.Now)
	delete(l.late, b.Now)
	b.end()
}

// ended notes that the target computes the prompt no longer. It stays noted as not computed if it was not.
func (l *learned) ended(b *belief) {
	if b.target == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b.end()
}

// end takes b off its target's count, under learned.mu.
func (b *belief) end() {
	if b.target != nil {
		b.target.fresh -= b.fresh
		b.target = nil
	}
}

func (l *learned) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.last, id)
}

// of returns the evidence of a target, under mu.
func (l *learned) of(id string) *evidence {
	if e := l.last[id]; e != nil {
		return e
	}
	if l.last == nil || len(l.last) >= maxTargets {
		l.last = make(map[string]*evidence)
	}
	e := new(evidence)
	l.last[strings.Clone(id)] = e
	return e
}

// makeRoom lets the record of a target grow by n bytes that it has not computed yet.
func (c *Cache) makeRoom(id string, n int) {
	l := &c.learned
	if !l.limits.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.last[id]; e != nil && e.most > 0 {
		c.trie.Limit(id, e.most+e.fresh+n)
	}
}

// correct holds the belief about a prompt with key k against the report of its target.
func (c *Cache) correct(k *Key, id string, past belief, o *router.Outcome) {
	if !o.CachedReported && o.CachedTokens <= 0 || k.Size() == 0 || past.Now == 0 {
		return
	}
	// A token stands for four bytes or more: media take many tokens and little of the text, so that a mean below that
	// says nothing about the beginning.
	perToken := 4.0
	if o.PromptTokens > 0 {
		perToken = max(perToken, float64(k.Size())/float64(o.PromptTokens))
	}
	held, least := float64(past.Held), leastTokens*perToken
	reported := min(perToken*float64(max(o.CachedTokens, 0)), float64(k.Size()))
	more := o.PromptTokens > 0 &&
		float64(k.Size())*float64(o.CachedTokens)/float64(o.PromptTokens)-held >= least
	l := &c.learned
	if c.peers != nil && past.chain != nil {
		l.mu.Lock()
		e := l.of(id)
		e.reported(o.CachedTokens)
		grain := e.grain
		l.mu.Unlock()
		c.correctPeers(k, id, &past, reported, least, perToken*float64(grain))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.some = l.some || o.CachedTokens > 0
	if !l.some && l.nothing > 0 && float64(k.Size()) >= least && c.meaningless() {
		return
	}
	e := l.of(id)
	e.reported(o.CachedTokens)
	whole := held - perToken*float64(e.grain) // at least so much of it is in whole blocks
	fresh := (k.Size() - past.Held) / probe
	switch {
	case more:
		c.enlarge(id, e, fresh+e.most/grow)
	case past.young || past.Last == 0 || held < least:
		c.enlarge(id, e, fresh)
	case whole-reported >= least && denied*reported < whole:
		c.deny(id, e, past, past.Held == k.Size())
	case confirmed*(held-reported) <= held:
		e.judged, e.row = true, 0
		if u := c.trie.Usage(id); past.Last <= u.Oldest+(u.Newest-u.Oldest)/2 {
			fresh += e.most / grow
		}
		c.enlarge(id, e, fresh)
	default:
		c.enlarge(id, e, fresh)
	}
}

// reported takes in a report of n cached tokens.
func (e *evidence) reported(n int) {
	switch {
	case n <= 0 || e.grain == 1 || n == e.first:
	case e.first == 0:
		e.first = n
	case e.grain == 0:
		e.grain = gcd(e.first, n)
	default:
		e.grain = gcd(e.grain, n)
	}
}

// gcd returns the greatest common divisor of a and b, which are not negative.
func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// meaningless counts a report of 0, and reports whether it has no meaning. Then the limits go, which all rest on such
// ones. It is called under learned.mu.
func (c *Cache) meaningless() bool {
	l := &c.learned
	if l.nothing < alwaysNothing {
		l.nothing++
		return false
	}
	for id, e := range l.last {
		if e.most > 0 {
			c.trie.Limit(id, 0)
		}
		*e = evidence{fresh: e.fresh}
	}
	return true
}

// deny takes back what was sent to the target before the denied part, under learned.mu.
func (c *Cache) deny(id string, e *evidence, past belief, whole bool) {
	l := &c.learned
	l.nothing = max(l.nothing, 1)
	defer c.recent.lose()
	if c.peers != nil {
		if at, ok := c.times.of(past.Last); ok {
			c.peers.Deny(id, c.peers.Now()-at)
		}
	}
	before := c.trie.Usage(id)
	if before.Oldest > past.Last && !whole {
		return // it was dropped since
	}
	if past.Now <= e.at {
		// It was sent before the last denial came: both say the same about the capacity.
		c.trie.Expire(id, past.Last, e.left+e.fresh)
		if e.most > 0 {
			e.most = min(e.most, max(c.trie.Usage(id).Bytes-e.fresh, e.left))
			c.limit(id, e)
		}
		return
	}
	if !e.judged {
		e.row = 1 // nothing was ever confirmed
	}
	left := max(before.Bytes-e.fresh, 0) / mostLost
	c.trie.Expire(id, past.Last, left+e.fresh)
	u := c.trie.Usage(id)
	cached := max(u.Bytes-e.fresh, 0)
	limit := max(cached-cached/max(shrink>>e.row, 2), left, 1)
	if e.most > 0 {
		limit = min(limit, e.most)
	}
	e.judged, e.most, e.at, e.left, e.row = true, limit, u.Newest, left, e.row+1
	c.limit(id, e)
}

// limit applies e, under learned.mu.
func (c *Cache) limit(id string, e *evidence) {
	c.learned.limits.Store(true)
	c.trie.Limit(id, e.most+e.fresh)
}

// enlarge lets the record of a target grow by n bytes if it is near its limit, under learned.mu.
func (c *Cache) enlarge(id string, e *evidence, n int) {
	if e.most == 0 {
		return
	}
	if u := c.trie.Usage(id); u.Bytes-e.fresh >= e.most-e.most/grow && e.most < math.MaxInt/4 {
		e.most += max(min(n, e.most/grow), 1)
	}
	c.limit(id, e)
}
