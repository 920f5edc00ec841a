package kvindex

// handles finds a target's block by the engine's hash of it. It is a hash table
// with open addressing and linear probing of 8 bytes a cell: a tag of 32 bits,
// which also gives the cell's place, above a reference to a hold and a bit. The
// hash itself is in the hold. Any size will do, so it grows by half.
//
// The tag is keyed: an engine that chooses hashes cannot make them fall into one cell.
type handles struct {
	cells []uint64
	n     int
	keys  [2]uint64
	steps uint64 // counts the cells that were visited
}

// ref names a block of a target: the hold's number and the block's bit.
type ref uint32

func refOf(h *hold, bit uint32) ref       { return ref(h.number<<6 | bit) }
func (r ref) split() (number, bit uint32) { return uint32(r) >> 6, uint32(r) & (span - 1) }

// tag returns the cell's tag of a hash. It is never 0.
func (t *handles) tag(hash uint64) uint64 {
	const odd = 0x9e3779b97f4a7c15 // the golden ratio, as in Fibonacci hashing
	return fold(fold(hash^t.keys[0], t.keys[1]), odd)>>32 | 1
}

func (t *handles) home(tag uint64) int { return int(tag * uint64(len(t.cells)) >> 32) }

func (t *handles) next(i int) int {
	if i++; i == len(t.cells) {
		return 0
	}
	return i
}

// warm reserves cells for more blocks and touches those that they belong to. The loads do not wait
// for one another, as those of look-ups among other work do: of a table that is
// not in the nearer caches, that is most of the cost of a store.
func (t *handles) warm(hashes []uint64) (touched uint64) {
	t.reserve(len(hashes))
	for _, h := range hashes {
		touched ^= t.cells[t.home(t.tag(h))]
	}
	return touched
}

// reserve grows the table for n more blocks.
func (t *handles) reserve(n int) {
	if (t.n+n)*5 > len(t.cells)*4 {
		t.resize(max(16, len(t.cells)+len(t.cells)/2, (t.n+n)*5/4+1))
	}
}

// add puts in a block that is not there.
func (t *handles) add(hash uint64, r ref) {
	t.reserve(1)
	t.n++
	t.insert(t.tag(hash), r)
}

func (t *handles) insert(tag uint64, r ref) {
	i := t.home(tag)
	for t.cells[i] != 0 {
		i = t.next(i)
		t.steps++
	}
	t.cells[i] = tag<<32 | uint64(r)
}

func (t *handles) resize(size int) {
	old := t.cells
	t.cells = make([]uint64, size)
	for _, c := range old {
		if c != 0 {
			t.insert(c>>32, ref(c))
		}
	}
}

// seek returns the cell of this very block.
func (t *handles) seek(hash uint64, r ref) int {
	c := t.tag(hash)<<32 | uint64(r)
	i := t.home(c >> 32)
	for t.cells[i] != c {
		if t.cells[i] == 0 {
			return -1
		}
		i = t.next(i)
		t.steps++
	}
	return i
}

// move gives a block another reference.
func (t *handles) move(hash uint64, from, to ref) {
	if i := t.seek(hash, from); i >= 0 {
		t.cells[i] = t.cells[i]>>32<<32 | uint64(to)
	}
}

// remove takes a block out and moves those behind it up, so that no look-up ends
// too early.
func (t *handles) remove(hash uint64, r ref) {
	i := t.seek(hash, r)
	if i < 0 {
		return
	}
	t.n--
	for {
		t.cells[i] = 0
		j := i
		for {
			j = t.next(j)
			c := t.cells[j]
			if c == 0 {
				if len(t.cells) > 64 && t.n*4 < len(t.cells) {
					t.resize(len(t.cells) / 2)
				}
				return
			}
			// A cell may fill the hole if its home is not behind it.
			if h := t.home(c >> 32); i <= j && (h <= i || h > j) || i > j && h <= i && h > j {
				t.cells[i] = c
				i = j
				break
			}
		}
	}
}
