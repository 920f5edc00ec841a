package textcache

import (
	"encoding/binary"
	"sort"
	"sync"
	"time"
	"unsafe"
	"weak"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/peering"
)

// Join has c take in the prompts that the other gateways of s sent, and pass on its own. It is called once, before c is
// used. A nil s is none.
func (c *Cache) Join(s router.Peers) {
	c.peers = peering.Of(s)
	if c.peers == nil {
		return
	}
	w := weak.Make(c) // the Share outlives the strategies
	c.peers.OnDeny(func(id string, age time.Duration) bool {
		c := w.Value()
		if c != nil {
			c.deniedSince(id, age)
		}
		return c != nil
	})
	c.peers.Recorder(weak.Make(c.trie), func(id string) (int, bool) {
		c := w.Value()
		if c == nil {
			return 0, false
		}
		return c.trie.Warmed([]string{id}, nil)[0], true
	})
}

// chainOf returns the marks of k's text.
func (c *Cache) chainOf(k *Key) peering.Chain {
	if k.chain == nil {
		text := k.text
		if k.unit == router.Tokens {
			text = portable(text)
		}
		k.chain = c.peers.Chain(k.scope, text)
	}
	return k.chain
}

// bigEndian reports whether this machine puts the high byte of a number first.
var bigEndian = func() bool {
	x := uint16(1)
	return *(*byte)(unsafe.Pointer(&x)) == 0
}()

// portable returns the bytes of tokens, as this machine has them, with the low byte first: the same on every machine.
func portable(tokens string) string {
	if !bigEndian {
		return tokens
	}
	b := []byte(tokens)
	for i := 0; i+TokenSize <= len(b); i += TokenSize {
		binary.LittleEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	return string(b)
}

// Recent returns how much of a prompt with key k the other gateways have sent each of ids in the last time of this
// length, in bytes of the trie; nil if nothing is shared. It reuses held.
func (c *Cache) Recent(k *Key, ids []string, age time.Duration, held []int) []int {
	if c.peers == nil {
		return nil
	}
	held = append(held[:0], make([]int, len(ids))...)
	c.peers.Recent(c.chainOf(k), ids, held, age)
	return held
}

// addRecorded adds the prompts that the other gateways have recorded.
func (c *Cache) addRecorded(t *Targets) {
	if c.peers == nil {
		return
	}
	t.elsewhere = c.peers.Elsewhere(t.IDs, t.elsewhere[:0])
	sum := 0
	for i := range t.elsewhere {
		t.Warmed[i] += int(t.elsewhere[i].Recorded)
		sum += t.Warmed[i]
	}
	t.recorded = sum
}

// Position returns this gateway's place in the unit interval after Warmed was looked up; see peering.Node.
func (c *Cache) Position(t *Targets) float64 {
	c.LookWarmed(t)
	return c.peers.Position(t.recorded)
}

// publish passes on that id was sent a prompt.
func (c *Cache) publish(k *Key, id string, past *belief) {
	if c.peers == nil || past.Now == 0 {
		return
	}
	past.chain = c.chainOf(k)
	c.times.add(past.Now, c.peers.Now())
	c.peers.Sent(id, past.chain)
}

// takeBack passes on that a prompt was taken back.
func (c *Cache) takeBack(id string, past *belief) {
	if past.chain != nil {
		c.peers.Unsent(id, past.chain)
	}
}

// extend passes on that id holds more after a prompt.
func (c *Cache) extend(k *Key, id string, past *belief, more string) {
	if past.chain != nil {
		c.peers.More(id, c.peers.Extend(past.chain, k.text, more))
	}
}

// correctPeers holds what the others said of the target, if it is more than was sent there from here, against its
// report.
func (c *Cache) correctPeers(k *Key, id string, past *belief, reported, least, grain float64) {
	n, age := c.peers.Known(past.chain)
	held := float64(n)
	whole := held - grain // at least so much of it is in whole blocks
	switch {
	case n <= past.Held || held < least || age < peering.LeastAge:
	case whole-reported >= least && denied*reported < whole:
		c.peers.Deny(id, age)
		c.deniedSince(id, age)
	case confirmed*(held-reported) <= held:
		c.peers.Confirm(id, age)
	}
}

// deniedSince takes in that the target holds nothing that was sent longer ago, by the report of a request that another
// gateway sent, or that rested on prompts of others. The bytes that stay bound its record, as after a denial here.
func (c *Cache) deniedSince(id string, age time.Duration) {
	last, ok := c.times.at(c.peers.Now() - age)
	if !ok {
		return
	}
	l := &c.learned
	l.mu.Lock()
	defer l.mu.Unlock()
	before := c.trie.Usage(id)
	if before.Oldest == 0 || before.Oldest > last {
		return
	}
	e := l.of(id)
	defer c.recent.lose()
	left := max(before.Bytes-e.fresh, 0) / mostLost
	c.trie.Expire(id, last, left+e.fresh)
	cached := max(c.trie.Usage(id).Bytes-e.fresh, 0)
	limit := max(cached-cached/shrink, left, 1)
	if e.most > 0 {
		limit = min(limit, e.most)
	}
	e.most = limit
	c.limit(id, e)
}

// times says when inserts were made: that of each number that it has, and of those before, with gaps that grow as it
// fills up.
type times struct {
	mu   sync.Mutex
	all  []insertTime
	step time.Duration
}

type insertTime struct {
	number uint64
	at     time.Duration
}

const (
	maxTimes  = 1024
	leastStep = 64 * time.Millisecond
)

// add notes that insert number was made at a time.
func (t *times) add(number uint64, at time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.all); n > 0 && (at < t.all[n-1].at+t.step || number <= t.all[n-1].number) {
		return
	}
	if len(t.all) == maxTimes {
		t.step = 2 * max(t.step, leastStep)
		for i := range maxTimes / 2 {
			t.all[i] = t.all[2*i+1]
		}
		t.all = t.all[:maxTimes/2]
	}
	t.step = max(t.step, leastStep)
	t.all = append(t.all, insertTime{number, at})
}

// at returns the number of the last insert that was made before a time, about.
func (t *times) at(when time.Duration) (number uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := sort.Search(len(t.all), func(i int) bool { return t.all[i].at >= when })
	if i == 0 {
		return 0, false
	}
	return t.all[i-1].number, true
}

// of returns when insert number was made, about.
func (t *times) of(number uint64) (at time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := sort.Search(len(t.all), func(i int) bool { return t.all[i].number >= number })
	switch {
	case len(t.all) == 0:
		return 0, false
	case i == len(t.all):
		i--
	}
	return t.all[i].at, true
}
