package kvindex

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// This file reads TensorRT-LLM's own events, as /kv_cache_events and its reporter have them
// (tensorrt_llm/_utils.py KVCacheEventSerializer, serve/kv_cache_router/messages.py at 39ff08ab): maps
// with the event itself under "data". They say neither the size of blocks nor their medium in words.

// native is an event of TensorRT-LLM while it is read.
type native struct {
	data   int // the start of the map under "data", 0 for none
	window int64
}

// outer reads a member of the map around an event, and reports whether it is one.
func (n *native) outer(d *decoder, key []byte) bool {
	switch {
	case string(key) == "data" && d.peek() == kMap:
		n.data = d.off
		d.skip(1)
	case string(key) == "window_size" && d.peek() == kInt:
		n.window, _ = d.int()
	default:
		return false
	}
	return true
}

// native adds the event that was found, and reads on behind the map around it.
func (d *decoder) native(n *native) {
	end := d.off
	d.off = n.data
	var tag string
	d.each(func(key []byte) bool {
		if string(key) != "type" || d.peek() != kString {
			return false
		}
		tag = string(d.bytes())
		return true
	})
	d.off = n.data
	f := newFields(0)
	if n.window > 0 { // of several windows the greatest decides, as the lowest group does
		f.Group = int32(1<<20 - min(n.window, 1<<20))
	}
	switch tag {
	case "stored":
		d.nativeStored(f)
	case "removed":
		d.nativeRemoved(f)
	case "updated":
		d.nativeUpdated(f)
	case "all_cleared":
		f.Kind = Cleared
		f.Group = -1
		d.finish(&f)
	case "created": // the sizes of the pools
	default:
		d.batch.UnknownEvents++
	}
	if d.err == nil {
		d.off = end
	}
}

// each calls f for each key of the map that is next. f reads the value and returns true, or
// returns false.
func (d *decoder) each(f func(key []byte) bool) {
	if d.peek() != kMap {
		d.skip(1)
		return
	}
	for range d.header(kMap) {
		if key := d.key(); d.err != nil {
			return
		} else if !f(key) {
			d.skip(1)
		}
	}
}

// nativeStored adds one event for each run of blocks in one medium.
func (d *decoder) nativeStored(f fields) {
	f.Kind, f.hashes = Stored, true
	blocks, count := 0, 0
	d.each(func(key []byte) bool {
		switch string(key) {
		case "parent_hash":
			if f.HasParent = !d.nil(); f.HasParent {
				f.Parent, f.ParentSum = d.hash()
			}
		case "blocks":
			if d.peek() != kArray {
				return false
			}
			if count = d.header(kArray); count > maxEvents {
				d.fail(errTooMany)
			}
			blocks = d.off
			d.skip(count)
		default:
			return d.scope(&f, key)
		}
		return true
	})
	if d.err != nil || blocks == 0 {
		return
	}
	d.off = blocks
	for range count {
		b := f
		d.nativeBlock(&b)
		if d.err != nil {
			return
		}
		f.HasParent, f.Parent, f.ParentSum = true, b.Hashes[0], b.sum(0)
		if n := len(b.Tokens); n < 2 || bits.OnesCount(uint(n)) != 1 {
			continue // a part of a block: sizes are powers of two
		}
		b.BlockSize = int32(len(b.Tokens))
		d.finish(&b)
	}
}

// scope reads a member that names the owner of the blocks.
func (d *decoder) scope(f *fields, key []byte) bool {
	switch string(key) {
	case "lora_name", "cache_salt":
		if d.peek() == kMap {
			return false
		}
		d.field(f, string(key))
	case "lora_id", "lora_task_id":
		if d.peek() != kInt {
			return false
		}
		f.loraID, _ = d.int()
		f.hasID = f.loraID != 0
	default:
		return false
	}
	return true
}

// nativeBlock reads one block of a stored event.
func (d *decoder) nativeBlock(f *fields) {
	f.Hashes, f.Sums, f.Tokens, f.Extra = d.cut(1), nil, nil, nil
	found := false
	d.each(func(key []byte) bool {
		switch string(key) {
		case "block_hash":
			var sum uint64
			if f.Hashes[0], sum = d.hash(); sum != 0 {
				f.Sums = d.cut(1)
				f.Sums[0] = sum
			}
			found = true
		case "tokens":
			if d.peek() != kArray {
				return false
			}
			d.nativeTokens(f)
		case "cache_level":
			if d.peek() != kInt {
				return false
			}
			f.Medium = level(d)
		case "mm_keys":
			from := d.off
			d.skip(1)
			if b := d.b[from:d.off]; d.err == nil && len(b) > 1 {
				f.differs(0, d, max(1, xxhash.Sum64(b)))
			}
		default:
			return d.scope(f, key)
		}
		return true
	})
	if !found {
		d.fail(errKind)
	}
}

// nativeTokens reads tokens with their ids and all else that distinguishes them, or plain ids.
func (d *decoder) nativeTokens(f *fields) {
	n := d.header(kArray)
	if n > maxBlock {
		d.fail(errTooMany)
	}
	if d.err != nil {
		return
	}
	tokens := d.space(n)
	bad := false
	for range n {
		if d.peek() != kMap {
			t, ok := d.token()
			if !ok {
				d.skip(1)
			}
			bad = bad || !ok
			tokens = append(tokens, t)
			continue
		}
		var id uint32
		ok := false
		d.each(func(key []byte) bool {
			switch string(key) {
			case "token_id":
				if d.peek() != kInt {
					return false
				}
				id, ok = d.token()
			case "token_extra_id":
				if d.peek() != kInt {
					return false
				}
				if v, _ := d.int(); v != 0 {
					f.differs(0, d, uint64(v))
				}
			default:
				return false
			}
			return true
		})
		bad = bad || !ok
		tokens = append(tokens, id)
	}
	if d.err != nil {
		return
	}
	if bad {
		d.batch.UnknownTokens++
		return
	}
	d.batch.tokens = d.batch.tokens[:len(d.batch.tokens)+n]
	f.Tokens = tokens
}

// level reads a level of the cache: 0 is the device, 1 the host.
func level(d *decoder) Medium {
	switch v, _ := d.int(); v {
	case 0:
		return Device
	case 1:
		return Host
	}
	return Storage
}

// nativeRemoved adds a Removed for each medium that the blocks may be in.
func (d *decoder) nativeRemoved(f fields) {
	f.Kind = Removed
	d.each(func(key []byte) bool {
		if string(key) != "block_hashes" || d.peek() != kArray {
			return false
		}
		d.hashes(&f)
		return true
	})
	for _, f.Medium = range []Medium{Device, Host} {
		d.finish(&f)
	}
}

// nativeUpdated adds a Moved if the event is one; a change of priority is of no use.
func (d *decoder) nativeUpdated(f fields) {
	f.Kind = Moved
	moved := false
	d.each(func(key []byte) bool {
		switch string(key) {
		case "block_hash":
			f.Hashes, f.hashes = d.cut(1), true
			var sum uint64
			if f.Hashes[0], sum = d.hash(); sum != 0 {
				f.Sums = d.cut(1)
				f.Sums[0] = sum
			}
		case "cache_level":
			if d.peek() != kMap {
				return false
			}
			d.each(func(key []byte) bool {
				if d.peek() != kInt {
					return false
				}
				switch string(key) {
				case "new_value":
					f.Medium, moved = level(d), true
				case "old_value":
					f.From = level(d)
				default:
					return false
				}
				return true
			})
		default:
			return false
		}
		return true
	})
	if moved {
		d.finish(&f)
	}
}
