package trie

// texts keeps the bytes of all runs in segments without pointers. A run never
// moves on its own account; a segment of which little is alive is emptied bit by
// bit into the newest one, so that the dead take no more than a quarter of the
// living plus slack.
type texts struct {
	first, most, slack int // bytes: of the first segment, of a later one, of dead text that is always allowed

	segs   []segment
	free   []uint32 // segments without a buffer
	cur    uint32   // the one that is written to
	live   int
	used   int    // live or dead
	victim uint32 // the segment that is being emptied, if emptying is set
	empty  bool
}

type segment struct {
	buf  []byte
	used uint32
	live uint32
	head uint32 // nodes with a run here
}

func newTexts() texts { return texts{first: 64 << 10, most: 1 << 20, slack: 256 << 10} }

// alloc reserves n bytes.
func (x *texts) alloc(n int) (seg, off uint32) {
	if len(x.segs) == 0 || int(x.segs[x.cur].used)+n > len(x.segs[x.cur].buf) {
		x.open(n)
	}
	s := &x.segs[x.cur]
	off = s.used
	s.used += uint32(n)
	s.live += uint32(n)
	x.live += n
	x.used += n
	return x.cur, off
}

// open makes an empty segment with space for n bytes the one to write to.
func (x *texts) open(n int) {
	if len(x.segs) > 0 { // the unused end of the last one is dead
		s := &x.segs[x.cur]
		x.used += len(s.buf) - int(s.used)
		s.used = uint32(len(s.buf))
		if s.live == 0 {
			x.drop(x.cur)
		}
	}
	if k := len(x.free); k > 0 {
		x.cur = x.free[k-1]
		x.free = x.free[:k-1]
	} else {
		x.cur = uint32(len(x.segs))
		x.segs = append(x.segs, segment{})
	}
	x.segs[x.cur] = segment{buf: make([]byte, max(n, min(x.most, max(x.first, x.live))))}
}

// release gives n bytes of seg back.
func (x *texts) release(seg, n uint32) {
	s := &x.segs[seg]
	s.live -= n
	x.live -= int(n)
	if s.live > 0 {
		return
	}
	if seg == x.cur {
		x.used -= int(s.used)
		s.used = 0
		return
	}
	x.drop(seg)
}

func (x *texts) drop(seg uint32) {
	x.used -= int(x.segs[seg].used)
	x.segs[seg] = segment{}
	x.free = append(x.free, seg)
	if x.empty && x.victim == seg {
		x.empty = false
	}
}

func (x *texts) bytes(nd *node) []byte {
	return x.segs[nd.seg].buf[nd.off : nd.off+nd.size]
}

func (x *texts) link(nodes *slab[node], n uint32, nd *node) {
	s := &x.segs[nd.seg]
	nd.segPre, nd.segNext = 0, s.head
	if s.head != 0 {
		nodes.at(s.head).segPre = n
	}
	s.head = n
}

func (x *texts) unlink(nodes *slab[node], nd *node) {
	if nd.segPre != 0 {
		nodes.at(nd.segPre).segNext = nd.segNext
	} else {
		x.segs[nd.seg].head = nd.segNext
	}
	if nd.segNext != 0 {
		nodes.at(nd.segNext).segPre = nd.segPre
	}
}

// compact moves up to about budget bytes out of the segment with the most dead
// ones, while there are too many.
func (x *texts) compact(nodes *slab[node], budget int) {
	for budget > 0 && x.used-x.live > x.live/4+x.slack {
		if !x.empty && !x.choose() {
			return
		}
		n := x.segs[x.victim].head
		nd := nodes.at(n)
		from := nd.seg
		x.unlink(nodes, nd)
		seg, off := x.alloc(int(nd.size))
		copy(x.segs[seg].buf[off:], x.bytes(nd))
		nd.seg, nd.off = seg, off
		x.link(nodes, n, nd)
		x.release(from, nd.size)
		budget -= int(nd.size)
	}
}

// choose finds the segment to empty next.
func (x *texts) choose() bool {
	most := uint32(0)
	for i := range x.segs {
		if s := &x.segs[i]; uint32(i) != x.cur && s.used-s.live > most {
			most, x.victim, x.empty = s.used-s.live, uint32(i), true
		}
	}
	if !x.empty && len(x.segs) > 0 { // all that is dead is in the current one
		if s := &x.segs[x.cur]; s.live > 0 && s.used-s.live > 0 {
			x.victim, x.empty = x.cur, true
			x.open(0)
		}
	}
	return x.empty
}
