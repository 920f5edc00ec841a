package kvindex

import "github.com/cespare/xxhash/v2"

// This file reads the lists of tokens that engines hash together with a block's own.

// lookahead reads a list of the tokens after each block that its hash covers. If
// all lists have one length they become After; a shorter one makes its block one
// that is never matched, and so does one that is too long.
func (d *decoder) lookahead(f *fields) {
	end := d.off
	defer func() {
		if d.err == nil {
			d.off = end
		}
	}()
	most, ok := d.lists(f, f.ahead)
	if !ok || most > MaxAhead || most*len(f.Hashes) > maxTokens {
		d.differ(f, f.ahead)
		return
	}
	if most == 0 {
		return
	}
	f.Ahead = uint8(most)
	after := d.space(most * len(f.Hashes))
	d.batch.tokens = d.batch.tokens[:len(d.batch.tokens)+cap(after)]
	d.off = f.ahead
	d.header(kArray)
	for i := range f.Hashes {
		n := 0
		from := d.off
		if !d.nil() {
			n = d.header(kArray)
		}
		for range n {
			t, _ := d.token()
			after = append(after, t)
		}
		if n < most {
			f.differs(i, d, max(1, xxhash.Sum64(d.b[from:d.off])))
			for len(after) < (i+1)*most {
				after = append(after, 0)
			}
		}
	}
	f.After = after
}

// overlap makes After of tokens that have one more than the blocks: each block reaches one
// token into the next.
func (d *decoder) overlap(f *fields) {
	n, size := len(f.Hashes), int(f.BlockSize)
	after := d.space(n)
	d.batch.tokens = d.batch.tokens[:len(d.batch.tokens)+n]
	for i := range n {
		after = append(after, f.Tokens[(i+1)*size])
	}
	f.Tokens, f.After, f.Ahead = f.Tokens[:n*size], after, 1
}

// lists reports whether the value at a place is a list of token ids, or nil, for each
// block, and the length of the longest.
func (d *decoder) lists(f *fields, at int) (most int, ok bool) {
	d.off = at
	if d.peek() != kArray || d.header(kArray) != len(f.Hashes) {
		return 0, false
	}
	for range f.Hashes {
		if d.nil() {
			continue
		}
		if d.peek() != kArray {
			return 0, false
		}
		n := d.header(kArray)
		if d.err != nil || n > maxTokens {
			return 0, false
		}
		for range n {
			if _, ok := d.token(); !ok {
				return 0, false
			}
		}
		most = max(most, n)
	}
	return most, d.err == nil
}

// unknownLists looks at a member of unknown name. If it is a list of token ids for
// each block, the engine may hash them too: blocks with different ones differ, and
// one with any is not matched.
func (d *decoder) unknownLists(f *fields, at int) {
	end := d.off
	if most, ok := d.lists(f, at); ok && most > 0 {
		d.differ(f, at)
	}
	if d.err == nil {
		d.off = end
	}
}

// differ makes each block with a value in the list at a place one that is never
// matched, and different from those with other values.
func (d *decoder) differ(f *fields, at int) {
	d.off = at
	if d.peek() != kArray {
		return
	}
	for i := range d.header(kArray) {
		from := d.off
		none := d.peek() == kNil || d.peek() == kArray && d.b[from] == 0x90
		d.skip(1)
		if d.err != nil {
			return
		}
		if !none && i < len(f.Hashes) {
			f.differs(i, d, max(1, xxhash.Sum64(d.b[from:d.off])))
		}
	}
}

// differs adds a fingerprint to all that distinguishes a block.
func (f *fields) differs(i int, d *decoder, sum uint64) {
	if f.Extra == nil {
		f.Extra = d.cut(len(f.Hashes))
	}
	f.Extra[i] = max(1, f.Extra[i]*31^sum)
}
