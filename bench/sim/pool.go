package sim

// none is the index of no block.
const none int32 = -1

// pool is the KV cache of one device: blocks with reference counts, of which those
// that hold something whole can be found by its hash. A block that nobody uses
// stays as it is until it is taken for something else, the one longest unused
// first. Blocks that nobody can find again go before all others.
type pool struct {
	blocks []block
	byHash map[uint64]int32
	free   int   // blocks with no reference
	head   int32 // of the list of these; next to be taken
	tail   int32
	cpu    *tier // nil: none
	news   *news // nil: nobody listens
}

type block struct {
	hash       uint64
	ref        int32
	prev, next int32 // in the list of free ones
	found      bool  // byHash[hash] is this one
}

func newPool(n, cpu int) *pool {
	p := &pool{blocks: make([]block, n), byHash: make(map[uint64]int32, n), head: none, tail: none}
	for i := range p.blocks {
		p.append(int32(i))
	}
	if cpu > 0 {
		p.cpu = newTier(cpu)
	}
	return p
}

func (p *pool) append(i int32) {
	b := &p.blocks[i]
	b.prev, b.next = p.tail, none
	if p.tail == none {
		p.head = i
	} else {
		p.blocks[p.tail].next = i
	}
	p.tail = i
	p.free++
}

func (p *pool) prepend(i int32) {
	b := &p.blocks[i]
	b.prev, b.next = none, p.head
	if p.head == none {
		p.tail = i
	} else {
		p.blocks[p.head].prev = i
	}
	p.head = i
	p.free++
}

func (p *pool) unlink(i int32) {
	b := &p.blocks[i]
	if b.prev == none {
		p.head = b.next
	} else {
		p.blocks[b.prev].next = b.next
	}
	if b.next == none {
		p.tail = b.prev
	} else {
		p.blocks[b.next].prev = b.prev
	}
	p.free--
}

// take returns a free block with one reference. There must be one.
func (p *pool) take() int32 {
	i := p.head
	p.unlink(i)
	b := &p.blocks[i]
	if b.found {
		delete(p.byHash, b.hash)
		b.found = false
		if p.news != nil {
			p.news.removed(b.hash)
		}
		if p.cpu != nil {
			p.cpu.put(b.hash)
		}
	}
	b.ref = 1
	return i
}

// share adds a reference to a block.
func (p *pool) share(i int32) {
	b := &p.blocks[i]
	if b.ref == 0 {
		p.unlink(i)
	}
	b.ref++
}

// drop takes a reference from each block, the last one first, so that the end of
// a prompt is given up before its beginning.
func (p *pool) drop(blocks []int32) {
	for k := len(blocks) - 1; k >= 0; k-- {
		b := &p.blocks[blocks[k]]
		b.ref--
		switch {
		case b.ref > 0:
		case b.found:
			p.append(blocks[k])
		default:
			p.prepend(blocks[k])
		}
	}
}

// name makes a full block findable. If another one with the same content is
// findable, that one remains, and name returns false.
func (p *pool) name(i int32, hash uint64) bool {
	if _, ok := p.byHash[hash]; ok {
		return false
	}
	p.byHash[hash] = i
	b := &p.blocks[i]
	b.hash, b.found = hash, true
	return true
}

// match returns how many of the leading hashes are on the device or, one by one,
// in the CPU tier, how many of these are there only, and how many of those on the
// device are free. It changes nothing.
func (p *pool) match(hashes []uint64) (n, load, free int) {
	for _, h := range hashes {
		i, ok := p.byHash[h]
		switch {
		case ok && p.blocks[i].ref == 0:
			free++
		case ok:
		case p.cpu != nil && p.cpu.has(h):
			load++
		default:
			return n, load, free
		}
		n++
	}
	return n, load, free
}

// clear forgets everything. Nobody may hold a block.
func (p *pool) clear() {
	clear(p.byHash)
	for i := range p.blocks {
		p.blocks[i].found = false
	}
	if p.cpu != nil {
		p.cpu = newTier(p.cpu.max)
	}
}

// tier is CPU memory behind a device: the hashes of blocks that the device gave
// up, least recently put or used first out.
type tier struct {
	max    int
	byHash map[uint64]int32
	nodes  []tierNode
	head   int32
	tail   int32
}

type tierNode struct {
	hash       uint64
	prev, next int32
}

func newTier(max int) *tier {
	return &tier{max: max, byHash: make(map[uint64]int32), head: none, tail: none}
}

func (t *tier) has(h uint64) bool {
	_, ok := t.byHash[h]
	return ok
}

// put makes h the most recently used.
func (t *tier) put(h uint64) {
	i, ok := t.byHash[h]
	switch {
	case ok:
		t.unlink(i)
	case len(t.nodes) < t.max:
		i = int32(len(t.nodes))
		t.nodes = append(t.nodes, tierNode{})
	default:
		i = t.head
		t.unlink(i)
		delete(t.byHash, t.nodes[i].hash)
	}
	t.byHash[h] = i
	t.nodes[i] = tierNode{hash: h, prev: t.tail, next: none}
	if t.tail == none {
		t.head = i
	} else {
		t.nodes[t.tail].next = i
	}
	t.tail = i
}

func (t *tier) unlink(i int32) {
	n := &t.nodes[i]
	if n.prev == none {
		t.head = n.next
	} else {
		t.nodes[n.prev].next = n.next
	}
	if n.next == none {
		t.tail = n.prev
	} else {
		t.nodes[n.next].prev = n.prev
	}
}
