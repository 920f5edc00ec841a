package kvindex

import (
	"math"
	"math/bits"
	"slices"
	"sync/atomic"

	router "github.com/warmroute/router"
)

// Match returns, for each of ids, how many leading tokens of p a request can
// reuse there: whole blocks, at most len(p.Tokens)-1, because the engine has to
// compute the last token at least, without the blocks of Recomputed. The scope is p's
// Adapter and Salt; the wire names no model. An Adapter, or a Model, of the form
// "base:adapter" is the adapter that engines name so in their events. -1 means that
// nothing was ever applied for this id, or that its stream is not to be trusted now.
// The result reuses cached if it is large enough.
//
// It takes no lock, and does not allocate if ids has the same string values as in an
// earlier call. Blocks that come or go while it runs may or may not be
// seen.
func (x *Index) Match(p router.Prompt, ids []string, cached []int) []int {
	cached = slices.Grow(cached[:0], len(ids))[:len(ids)]
	for range 8 {
		r := x.resolve(ids)
		x.match(p, r, cached)
		if x.gen.Load() == r.gen {
			break // else a place may have gone from one target to another meanwhile
		}
	}
	return cached
}

func (x *Index) match(p router.Prompt, r *resolution, cached []int) {
	clear(cached)
	if x.renames.Load() {
		p.Adapter = x.adapterOf(p.Adapter, p.Model)
	}
	for _, sh := range *x.shapes.Load() {
		w := walk{x: x, r: r, cached: cached, shape: sh, tokens: p.Tokens}
		w.run(p.Adapter, p.Salt)
	}
	states := *x.states.Load()
	special := false
	for i, slot := range r.slots {
		if slot < 0 {
			cached[i] = -1
			continue
		}
		s := states[slot].Load()
		if s&stateTrusted == 0 {
			cached[i] = -1
			continue
		}
		if s&stateSpecial != 0 {
			special = true
			continue
		}
		if a := again(s); a != 0 {
			cached[i] = max(0, cached[i]-a)
		}
		cached[i] *= shape(s >> stateShape).size()
	}
	if special {
		x.matchSpecial(p, r, states, cached)
	}
	if r.twice {
		for i, slot := range r.slots {
			if slot >= 0 {
				cached[i] = cached[r.index[slot]]
			}
		}
	}
}

// walk is one descent for all targets with blocks of one shape.
type walk struct {
	x      *Index
	r      *resolution
	cached []int // blocks so far, by place in ids
	shape  shape
	tokens []uint32
	path   *pathSet // the nodes on the way, if they are needed
}

// usable is how many leading blocks of n tokens a request can reuse: the engine
// computes the last token at least, and a block has a hash only if the tokens after
// it that the hash covers are there (vLLM 0.33.0, v1/core/kv_cache_utils.py
// get_request_block_hasher and v1/core/kv_cache_manager.py get_computed_blocks).
func (s shape) usable(n int) int { return max(0, n-s.pairs()-max(1, s.ahead())) / s.size() }

func (w *walk) run(adapter, salt string) {
	left := w.shape.usable(len(w.tokens))
	if left == 0 {
		return
	}
	x, tokens := w.x, w.tokens
	size, reach := w.shape.size(), w.shape.size()+w.shape.extra()
	n := x.roots.child(x.secrets.root(w.shape, adapter, salt))
	if n == nil {
		return
	}
	for left > 0 {
		if n = n.child(x.secrets.block(tokens[:reach], 0)); n == nil {
			return
		}
		keys := n.blocks()
		m := 1 + x.secrets.common(w.shape, tokens[size:], keys[1:min(len(keys), left)])
		if w.path != nil {
			w.path.nodes = append(w.path.nodes, n)
			w.path.blocks += m
		} else if !w.hold(n, m) {
			return
		}
		if m < len(keys) {
			return
		}
		tokens = tokens[m*size:]
		left -= m
	}
}

// hold gives the first m blocks of a node to those of its holders that hold all
// before it; false means that none goes on from there.
func (w *walk) hold(n *node, m int) bool {
	start := int(n.start)
	low := uint(n.start % span)
	wrong := uint64(0)
	if m < span {
		wrong = 1 << m // ends a run of ones
	}
	on := false
	hs := n.holders.Load()
	index, cached := w.r.index, w.cached
	for i := range hs.len() {
		h := hs.at(i)
		if int(h.slot) >= len(index) {
			continue
		}
		at := index[h.slot]
		if at < 0 || cached[at] != start {
			continue
		}
		run := bits.TrailingZeros64(^(h.mask.Load() >> low) | wrong)
		cached[at] = start + run
		on = on || run == m
	}
	return on
}

// resolution is the targets that one list of ids stands for. A look-up of each id
// costs as much as the whole descent, and the same lists come again and again.
type resolution struct {
	gen     uint64
	slots   []int32   // of each id, -1 for none
	index   []int32   // of each slot, its first place in ids, -1 for none
	targets []*target // of each id, nil for none
	twice   bool      // an id stands there more than once
}

func (x *Index) resolve(ids []string) *resolution {
	gen := x.gen.Load()
	if r := x.known.Get(gen, ids); r != nil {
		return r
	}
	targets := *x.ids.Load() // at least as new as gen says
	r := resolution{gen: gen, slots: make([]int32, len(ids)), targets: make([]*target, len(ids))}
	for i, id := range ids {
		r.slots[i] = -1
		if t := targets[id]; t != nil {
			r.slots[i] = int32(t.slot)
			r.targets[i] = t
			for len(r.index) <= int(t.slot) {
				r.index = append(r.index, -1)
			}
			if r.index[t.slot] >= 0 {
				r.twice = true
			} else {
				r.index[t.slot] = int32(i)
			}
		}
	}
	return x.known.Put(gen, ids, r)
}

// matchSpecial finishes the targets that have sliding windows, or blocks in other
// media: cached has their blocks on the device.
func (x *Index) matchSpecial(p router.Prompt, r *resolution, states []atomic.Uint64, cached []int) {
	var paths pathSet
	for i, slot := range r.slots {
		if slot < 0 || cached[i] < 0 {
			continue
		}
		s := states[slot].Load()
		if s&stateSpecial == 0 {
			continue
		}
		sh := shape(s >> stateShape)
		if sh == 0 {
			cached[i] = 0
			continue
		}
		paths.find(x, r, sh, p)
		n := cached[i]
		if spec := r.targets[i].spec.Load(); spec == nil {
			// It has none any more.
		} else if len(spec.layers) > 0 {
			n = spec.reach(paths.nodes, uint32(slot), n)
		} else {
			n = x.credit(paths.nodes, uint32(slot), &spec.tier, paths.blocks)
		}
		cached[i] = max(0, n-again(s)) * sh.size()
	}
}

// pathSet keeps the path of a prompt for the shapes that were asked for.
type pathSet struct {
	shape  shape
	nodes  []*node
	blocks int // of them that are the prompt's
}

func (s *pathSet) find(x *Index, r *resolution, sh shape, p router.Prompt) {
	if s.shape != sh {
		*s = pathSet{shape: sh, nodes: s.nodes[:0]}
		w := walk{x: x, r: r, shape: sh, tokens: p.Tokens, path: s}
		w.run(p.Adapter, p.Salt)
	}
}

// words returns the result of f for a slot's hold on each node of the path, by
// multiples of span.
func words(path []*node, slot uint32, f func(h *holder) uint64) []uint64 {
	var out []uint64
	for _, n := range path {
		i := int(n.start / span)
		for len(out) <= i {
			out = append(out, 0)
		}
		hs := n.holders.Load()
		for j := range hs.len() {
			if h := hs.at(j); h.slot == slot {
				out[i] |= f(h) & n.mask()
				break
			}
		}
	}
	return out
}

// reach returns the longest prefix of at most n blocks with each layer's window
// held before its end.
func (s *windows) reach(path []*node, slot uint32, n int) int {
	for again := true; again; {
		again = false
		for _, w := range s.layers {
			held := words(path, slot, func(h *holder) uint64 { return h.hold.layer(w.layer) })
			for n > 0 {
				hole := lastHole(held, n)
				if hole < 0 || n-hole > w.blocks {
					break
				}
				n = hole
				again = true
			}
		}
	}
	return n
}

// lastHole returns the last of the first n blocks without its bit set, -1 if all
// are set.
func lastHole(words []uint64, n int) int {
	for i := (n - 1) / span; i >= 0; i-- {
		w := uint64(0)
		if i < len(words) {
			w = words[i]
		}
		if left := n - i*span; left < span {
			w |= math.MaxUint64 << left
		}
		if w != math.MaxUint64 {
			return i*span + 63 - bits.LeadingZeros64(^w)
		}
	}
	return -1
}

// credit returns the worth, in blocks on the device, of the leading blocks that are
// resident there or in a medium with a credit. A block that is in several counts by the best.
func (x *Index) credit(path []*node, slot uint32, tier *tierLayers, most int) int {
	var held [tiers][]uint64
	held[Device] = words(path, slot, func(h *holder) uint64 { return h.mask.Load() })
	for m, i := range tier {
		if i >= 0 && x.credits[m] > 0 {
			held[m] = words(path, slot, func(h *holder) uint64 { return h.hold.layer(i) })
		}
	}
	var in [tiers]int // blocks that count by each medium
	for n := 0; n < most && n/span < len(held[Device]); n++ {
		bit := uint64(1) << (n % span)
		best := -1
		for m, w := range held {
			if n/span < len(w) && w[n/span]&bit != 0 && (best < 0 || x.credits[m] > x.credits[best]) {
				best = m
			}
		}
		if best < 0 {
			break
		}
		in[best]++
	}
	worth := 1e-9 // what is a whole block stays one
	for m, n := range in {
		if Medium(m) != Device {
			worth += float64(n) * x.credits[m]
		}
	}
	return in[Device] + int(worth)
}
