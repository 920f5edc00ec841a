package kvindex

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strconv"

	router "github.com/warmroute/router"
)

// engine is a naive cache of one replica, the oracle: it keeps its blocks as
// plainly as can be and reports each change.
type engine struct {
	rand    *rand.Rand
	size    int // tokens of a block
	pool    []physical
	free    []int // blocks that nobody uses, the next to be taken first
	names   map[string]uint64
	next    uint64
	step    uint64 // of names
	seq     uint64
	events  []Event
	talk    dialect
	pairs   bool
	window  int // in blocks, of a second group; 0 for none
	odd     int // of the window in tokens
	sliding map[uint64]bool
	group   int32
}

// physical is one block of the pool.
type physical struct {
	hash uint64
	full bool
}

func newEngine(r *rand.Rand, size, blocks int, talk dialect) *engine {
	e := &engine{rand: r, size: size, names: map[string]uint64{}, talk: talk, sliding: map[uint64]bool{}, group: -1}
	e.step = 1 + 2*r.Uint64N(1000)
	if r.IntN(2) == 0 {
		e.step = r.Uint64() | 1
	}
	e.pool = make([]physical, blocks)
	e.start()
	return e
}

// start empties the cache, as a new process does.
func (e *engine) start() {
	clear(e.pool)
	clear(e.sliding)
	e.free = e.free[:0]
	for i := range e.pool {
		e.free = append(e.free, i)
	}
	e.events = nil
}

// reach is how many tokens a block looks at.
func (e *engine) reach() int {
	if e.pairs {
		return e.size + 1
	}
	return e.size
}

// chain returns the engine's hashes of the full blocks of a text. They number
// the prefixes, so that engines' hashes are equal without meaning the same.
func (e *engine) chain(p router.Prompt, most int) []uint64 {
	before := p.Adapter + "\x00" + p.Salt
	var out []uint64
	var key []byte
	for i := 0; i*e.size+e.reach() <= len(p.Tokens) && i < most; i++ {
		key = append(key[:0], before...)
		for _, t := range p.Tokens[i*e.size : i*e.size+e.reach()] {
			key = binary.BigEndian.AppendUint32(key, t)
		}
		h, ok := e.names[string(key)]
		if !ok {
			e.next += e.step
			if e.next == 0 {
				e.next += e.step
			}
			h = e.next
			e.names[string(key)] = h
		}
		out = append(out, h)
		before = "then " + strconv.FormatUint(h, 16) // no adapter's name and salt look so
	}
	return out
}

func (e *engine) copies(hash uint64) (at []int) {
	for i, b := range e.pool {
		if b.full && b.hash == hash {
			at = append(at, i)
		}
	}
	return at
}

// leading is the truth: how many leading blocks of a prompt a request can reuse.
func (e *engine) leading(p router.Prompt) int {
	usable := max(0, len(p.Tokens)-1-(e.reach()-e.size)) / e.size
	chain := e.chain(p, usable)
	n := 0
	for n < len(chain) && len(e.copies(chain[n])) > 0 {
		n++
	}
	for ; e.window > 0 && n > 0; n-- {
		ok := true
		for i := max(0, n-e.window); i < n; i++ {
			ok = ok && e.sliding[chain[i]]
		}
		if ok {
			break
		}
	}
	return n
}

func (e *engine) emit(ev Event) {
	if ev.Kind == Stored {
		ev.BlockSize = int32(e.size)
	}
	e.events = append(e.events, ev)
}

// take takes a block out of those that are free, and reports its contents.
func (e *engine) take(i int) {
	at := slices.Index(e.free, i)
	e.free = slices.Delete(e.free, at, at+1)
}

func (e *engine) evict() (int, bool) {
	if len(e.free) == 0 {
		return 0, false
	}
	i := e.free[0]
	e.free = e.free[1:]
	if b := e.pool[i]; b.full {
		e.pool[i] = physical{}
		e.emit(Event{Kind: Removed, Hashes: []uint64{b.hash}, Group: e.fullGroup()})
		if e.window > 0 && e.sliding[b.hash] && len(e.copies(b.hash)) == 0 {
			e.forgetSliding(b.hash)
		}
	}
	return i, true
}

func (e *engine) forgetSliding(h uint64) {
	delete(e.sliding, h)
	e.emit(Event{Kind: Removed, Hashes: []uint64{h}, Group: 0})
}

func (e *engine) fullGroup() int32 {
	if e.window > 0 {
		return 1
	}
	return e.group
}

// serve runs a request with a text that becomes as long as p, in steps of a few
// blocks, as chunked prefill and decoding do.
func (e *engine) serve(p router.Prompt) {
	chain := e.chain(p, len(p.Tokens))
	hit := min(e.leading(p), len(chain))
	var used []int
	for _, h := range chain[:hit] {
		i := e.copies(h)[0]
		if slices.Contains(e.free, i) {
			e.take(i)
		}
		used = append(used, i)
	}
	for from := hit; from < len(chain); {
		to := min(from+1+e.rand.IntN(8), len(chain))
		short := false
		for i := from; i < to; i++ {
			b, ok := e.evict()
			if !ok {
				to, short = i, true
				break
			}
			used = append(used, b)
		}
		if to > from {
			for i := from; i < to; i++ {
				e.pool[used[i]] = physical{chain[i], true}
			}
			ev := Event{
				Kind: Stored, Hashes: chain[from:to], Tokens: p.Tokens[from*e.size : (to-1)*e.size+e.reach()], Pairs: e.pairs,
				Adapter: p.Adapter, Group: e.group,
			}
			if from > 0 {
				ev.HasParent, ev.Parent = true, chain[from-1]
			}
			if from == 0 || e.talk.sglang {
				ev.Salt = p.Salt
			}
			if e.window > 0 {
				e.storeSliding(ev, chain[from:to])
				ev.Group, ev.Spec = 1, SpecFull
			}
			e.emit(ev)
		}
		if short {
			break
		}
		from = to
	}
	slices.Reverse(used) // the end of a prompt goes first
	e.free = append(e.free, used...)
}

// storeSliding reports the same blocks in the sliding group, all or some of them.
func (e *engine) storeSliding(ev Event, hashes []uint64) {
	// Any of these windows reaches over as many blocks.
	ev.Group, ev.Spec, ev.Window = 0, SpecSliding, int32((e.window-1)*e.size+2+e.odd%e.size)
	ev.Hashes = nil
	for _, h := range hashes {
		if e.rand.IntN(4) > 0 && !e.sliding[h] {
			ev.Hashes = append(ev.Hashes, h)
			e.sliding[h] = true
		}
	}
	e.emit(ev)
}

// clear drops the cache and says so.
func (e *engine) clear() {
	e.start()
	e.emit(Event{Kind: Cleared})
}

// hole drops any block, as engines do for reasons of their own.
func (e *engine) hole() {
	if len(e.free) == 0 {
		return
	}
	i := e.rand.IntN(len(e.free))
	b := e.free[i]
	e.free = slices.Insert(slices.Delete(e.free, i, i+1), 0, b)
	if _, ok := e.evict(); ok {
		e.free = append(e.free, b)
	}
}

// message returns the changes since the last one.
func (e *engine) message() (seq uint64, payload []byte) {
	payload = e.talk.encode(0, e.events)
	e.events = nil
	e.seq++
	return e.seq - 1, payload
}
