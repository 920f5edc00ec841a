package vllmtest

import (
	"crypto/sha256"
	"encoding/binary"
)

// blockKey names the content of a full block and of everything before it.
type blockKey [16]byte

// rootKey is the parent of a prompt's first block: it separates the blocks that adapters
// and salts keep apart.
func rootKey(adapter, salt string) blockKey {
	b := binary.AppendUvarint(nil, uint64(len(adapter)))
	b = append(b, adapter...)
	b = append(b, salt...)
	sum := sha256.Sum256(b)
	return blockKey(sum[:16])
}

// appendKeys appends the keys of the full blocks of tokens that keys does not
// have yet. Keys are a cryptographic hash, so a key is its content.
func appendKeys(keys []blockKey, root blockKey, tokens []uint32, blockSize int) []blockKey {
	var buf [16 + 4*64]byte
	b := buf[:0]
	for i := len(keys); (i+1)*blockSize <= len(tokens); i++ {
		parent := root
		if i > 0 {
			parent = keys[i-1]
		}
		b = append(b[:0], parent[:]...)
		for _, t := range tokens[i*blockSize : (i+1)*blockSize] {
			b = binary.LittleEndian.AppendUint32(b, t)
		}
		sum := sha256.Sum256(b)
		keys = append(keys, blockKey(sum[:16]))
	}
	return keys
}

// pool is the block pool: the contents of blocks, their users, and in which
// order they are handed out again. It is not safe for concurrent use.
type pool struct {
	blocks []block // the last one is the free list's head
	free   int
	cached map[blockKey][]int32 // copies of one content, oldest first

	unkeyedLast bool // as vLLM before 0.25: see release

	log *eventLog // nil: none

	evicted uint64 // blocks that were handed out again and had held something
}

type block struct {
	prev, next int32 // in the free list, while refs is 0
	refs       int32
	keyed      bool
	key        blockKey
}

func newPool(n int) *pool {
	p := &pool{blocks: make([]block, n+1), cached: make(map[blockKey][]int32)}
	head := int32(n)
	p.blocks[head].prev, p.blocks[head].next = head, head
	for i := range head {
		p.pushBack(i)
	}
	return p
}

func (p *pool) size() int   { return len(p.blocks) - 1 }
func (p *pool) inUse() int  { return p.size() - p.free }
func (p *pool) head() int32 { return int32(len(p.blocks) - 1) }

func (p *pool) pushBack(i int32) {
	h := p.head()
	last := p.blocks[h].prev
	p.blocks[i].prev, p.blocks[i].next = last, h
	p.blocks[last].next, p.blocks[h].prev = i, i
	p.free++
}

func (p *pool) pushFront(i int32) {
	h := p.head()
	first := p.blocks[h].next
	p.blocks[i].prev, p.blocks[i].next = h, first
	p.blocks[h].next, p.blocks[first].prev = i, i
	p.free++
}

func (p *pool) unlink(i int32) {
	b := &p.blocks[i]
	p.blocks[b.prev].next, p.blocks[b.next].prev = b.next, b.prev
	p.free--
}

// match returns how many leading keys are cached.
func (p *pool) match(keys []blockKey) int {
	for i, k := range keys {
		if len(p.cached[k]) == 0 {
			return i
		}
	}
	return len(keys)
}

// take appends to dst the cached blocks of hits, which match has found, and n
// fresh ones, all of them referenced once more. It does nothing and returns false
// if there are not enough.
func (p *pool) take(dst []int32, hits []blockKey, n int) ([]int32, bool) {
	idle := 0
	for _, k := range hits {
		if p.blocks[p.cached[k][0]].refs == 0 {
			idle++
		}
	}
	if p.free-idle < n {
		return dst, false
	}
	for _, k := range hits {
		i := p.cached[k][0]
		if p.blocks[i].refs == 0 {
			p.unlink(i)
		}
		p.blocks[i].refs++
		dst = append(dst, i)
	}
	for range n {
		i := p.blocks[p.head()].next
		p.unlink(i)
		p.forget(i)
		p.blocks[i].refs = 1
		dst = append(dst, i)
	}
	return dst, true
}

// publish makes block i, which is in use and has no key, the cached content k.
func (p *pool) publish(i int32, k blockKey) {
	b := &p.blocks[i]
	b.key, b.keyed = k, true
	p.cached[k] = append(p.cached[k], i)
}

// forget ends that block i is the cached content of its key.
func (p *pool) forget(i int32) {
	b := &p.blocks[i]
	if !b.keyed {
		return
	}
	b.keyed = false
	p.evicted++
	p.log.removed(b.key)
	c := p.cached[b.key]
	for j, id := range c {
		if id == i {
			c = append(c[:j], c[j+1:]...)
			break
		}
	}
	if len(c) == 0 {
		delete(p.cached, b.key)
	} else {
		p.cached[b.key] = c
	}
}

// release gives blocks back, in the order of their sequence: of those that hold
// something the last one is handed out again first. Those that hold nothing
// worth keeping, a sequence's last block mostly, go before all others; vLLM
// before 0.25 did not make that difference.
func (p *pool) release(blocks []int32) {
	for j := len(blocks) - 1; j >= 0; j-- {
		i := blocks[j]
		if p.blocks[i].refs--; p.blocks[i].refs > 0 {
			continue
		}
		if p.blocks[i].keyed || p.unkeyedLast {
			p.pushBack(i)
		} else {
			p.pushFront(i)
		}
	}
}
