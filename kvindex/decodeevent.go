package kvindex

import (
	"errors"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// finish checks an event as a whole, and adds it to the batch.
func (d *decoder) finish(f *fields) {
	if d.err != nil {
		return
	}
	if f.tier && !f.medium {
		d.batch.UnknownEvents++
		return
	}
	if f.Kind == Cleared {
		f.Partly = f.medium || f.group || f.remote || f.Adapter != "" || f.Salt != ""
	} else if !f.hashes {
		d.fail(errors.New("an event without block hashes"))
		return
	}
	if f.Left != nil && len(f.Left) != len(f.Hashes) {
		d.fail(errors.New("not as many counts as block hashes"))
		return
	}
	if f.Adapter == "" && f.hasID {
		f.Adapter = "id:" + strconv.FormatInt(f.loraID, 10)
	}
	if f.remote {
		f.Medium = Remote
	}
	if f.ahead > 0 {
		d.lookahead(f)
	} else if n := len(f.Hashes); f.eagle && f.BlockSize > 0 && len(f.Tokens) == n*int(f.BlockSize)+1 && !f.Pairs {
		d.overlap(f)
	}
	for _, at := range f.lists[:f.nlists] {
		d.unknownLists(f, at)
	}
	if f.extra > 0 {
		d.extraKeys(f, f.extra, false)
	}
	if f.objects > 0 {
		d.extraKeys(f, f.objects, true)
	}
	if d.err == nil {
		d.batch.Events = append(d.batch.Events, f.Event)
	}
}

// extraKeys reads the list of all that distinguishes each block but its tokens.
// The adapter's name, which is one of them, is known already; the salt stands in
// the first block of a prompt alone. Everything else becomes a part of
// the block. With whole nothing is taken for a name or a salt.
func (d *decoder) extraKeys(f *fields, at int, whole bool) {
	end := d.off
	d.off = at
	defer func() {
		if d.err == nil {
			d.off = end
		}
	}()
	if d.nil() {
		return
	}
	n := d.header(kArray)
	if n > maxHashes {
		d.fail(errTooMany)
	}
	if d.err != nil {
		return
	}
	for i := range n {
		if d.nil() {
			continue
		}
		if i >= len(f.Hashes) {
			d.skip(1)
			continue
		}
		var sum uint64
		if whole || d.peek() != kArray {
			from := d.off
			d.skip(1)
			if b := d.b[from:d.off]; len(b) > 1 || len(b) == 1 && b[0] != 0x90 && b[0] != 0x80 { // not empty
				sum = max(1, xxhash.Sum64(b))
			}
		} else {
			sum = d.extraKey(f, i == 0 && !f.HasParent)
		}
		if d.err != nil {
			return
		}
		if sum != 0 {
			f.differs(i, d, sum)
		}
	}
}

// extraKey reads one block's keys: the adapter's name, multimodal objects (each
// a pair, or in old versions a string), the salt, a hash of embeddings. The salt
// is the last string of a prompt's first block.
func (d *decoder) extraKey(f *fields, first bool) (sum uint64) {
	var pending []byte // a string that is the salt unless another one follows
	for j := range d.header(kArray) {
		from := d.off
		if d.peek() == kArray && d.tagged(f) {
			continue
		}
		if d.peek() != kString {
			d.skip(1)
			if d.err == nil {
				sum = sum*31 + xxhash.Sum64(d.b[from:d.off])
			}
			continue
		}
		s := d.bytes()
		if j == 0 && f.Adapter != "" && string(s) == f.Adapter {
			continue
		}
		if first && pending == nil {
			pending = s
			continue
		}
		if first {
			s, pending = pending, s
		}
		sum = sum*31 + xxhash.Sum64(s)
	}
	if pending != nil && d.err == nil && f.Salt != string(pending) {
		if len(pending) > maxName {
			d.fail(errTooMany)
			return 0
		}
		if f.Salt == "" {
			f.Salt = string(pending)
		}
	}
	return sum
}

// tagged reads a key with its source before it, as vLLM hashes them since 0.31 (v1/core/kv_cache_utils.py)
// though its events leave the tags out: a salt, or the adapter's name. It returns false, and reads nothing,
// if it is another key.
func (d *decoder) tagged(f *fields) bool {
	from := d.off
	n := d.header(kArray)
	if n >= 2 && d.peek() == kString {
		tag := string(d.bytes())
		if d.peek() == kString {
			switch s := d.bytes(); {
			case d.err != nil:
				return true
			case tag == "cache_salt" && n == 2 && len(s) <= maxName && (f.Salt == "" || f.Salt == string(s)):
				f.Salt = string(s)
				return true
			case tag == "lora" && string(s) == f.Adapter:
				d.skip(n - 2)
				return true
			}
		}
	}
	if d.err == nil {
		d.off = from
	}
	return false
}
