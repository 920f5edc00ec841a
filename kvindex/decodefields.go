package kvindex

import (
	"bytes"
	"errors"

	"github.com/cespare/xxhash/v2"
)

// fields has an event's raw fields: they are interpreted at its end, because
// the order of keys is not certain.
type fields struct {
	Event
	hashes  bool // a list of them was there
	loraID  int64
	hasID   bool
	extra   int // the start of the extra keys, 0 for none
	objects int // the start of a list of each block's multimodal objects
	remote  bool
	ahead   int           // the start of a list of the tokens after each block, 0 for none
	tier    bool          // it is a tierCleared
	eagle   bool          // the tokens have one more than the blocks
	medium  bool          // a medium was named
	group   bool          // a group was named
	lists   [maxLists]int // starts of values that may be lists of tokens of unknown use
	nlists  int
}

// maxLists bounds the unknown members of an event that are looked at.
const maxLists = 4

func newFields(k EventKind) fields {
	return fields{Event: Event{Kind: k, Group: -1}}
}

func (d *decoder) arrayEvent() {
	n := d.header(kArray)
	if d.err != nil {
		return
	}
	var tag []byte
	if n > 0 && d.peek() == kString {
		tag = d.bytes()
		n--
	}
	k := kindOf(tag)
	if k == 0 {
		d.batch.UnknownEvents++
		d.skip(n)
		return
	}
	f := newFields(k)
	f.tier = string(tag) == tierCleared
	for i := range n {
		switch {
		case d.err != nil:
			return
		case k == Stored && i < len(storedFields):
			d.field(&f, storedFields[i])
		case k == Removed && i < len(removedFields):
			d.field(&f, removedFields[i])
		case k == Cleared && i < len(clearedFields):
			d.field(&f, clearedFields[i])
		case k == Moved && i < len(movedFields):
			d.field(&f, movedFields[i])
		default:
			d.unknown(&f)
		}
	}
	d.finish(&f)
}

// The fields of an event that is an array, after its tag.
var (
	storedFields = [...]string{
		"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
		"extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window",
	}
	removedFields = [...]string{"block_hashes", "medium", "group_idx"}
	clearedFields = [...]string{"medium"}                                                // ATOM's
	movedFields   = [...]string{"block_hashes", "from_medium", "to_medium", "group_idx"} // ATOM's
)

// unknown passes over the value of a member that is not known. A list of lists may be tokens
// that a block's hash covers: finish looks at it when the number of blocks is known.
func (d *decoder) unknown(f *fields) {
	d.batch.UnknownKeys++
	if f.Kind == Stored && d.peek() == kArray && f.nlists < maxLists {
		f.lists[f.nlists] = d.off
		f.nlists++
	}
	d.skip(1)
}

func (d *decoder) mapEvent() {
	n := d.header(kMap)
	f := newFields(0)
	var own native
	start := d.off
	for i := range n {
		if d.err != nil {
			return
		}
		key := d.key()
		if string(key) == "type" {
			if f.Kind != 0 {
				d.fail(errors.New("an event with two types"))
				return
			}
			if d.peek() == kString {
				tag := d.bytes()
				f.Kind, f.tier = kindOf(tag), string(tag) == tierCleared
			} else {
				d.skip(1)
			}
			if f.Kind == 0 { // unknown: the rest is of no interest
				d.batch.UnknownEvents++
				d.skip(2 * (n - i - 1))
				return
			}
			if i > 0 { // earlier elements were passed over, to be read again now
				end := d.off
				d.off = start
				for range i {
					d.field(&f, string(d.key()))
				}
				d.off = max(d.off, end)
			}
			continue
		}
		if f.Kind == 0 {
			if !own.outer(d, key) {
				d.skip(1)
			}
			continue
		}
		d.field(&f, string(key))
	}
	if d.err != nil {
		return
	}
	if f.Kind == 0 && own.data > 0 {
		d.native(&own)
		return
	}
	if f.Kind == 0 {
		d.batch.UnknownEvents++
		return
	}
	d.finish(&f)
}

// field reads the value of one key.
func (d *decoder) field(f *fields, key string) {
	if d.err != nil {
		return
	}
	switch key {
	case "block_hashes":
		d.hashes(f)
	case "parent_block_hash":
		if f.HasParent = !d.nil(); f.HasParent {
			f.Parent, f.ParentSum = d.hash()
		}
	case "token_ids":
		d.tokenIDs(f)
	case "block_size":
		if !d.nil() {
			f.BlockSize = int32(d.number(0, maxBlock))
		}
	case "lora_id":
		if !d.nil() {
			f.loraID, _ = d.int()
			f.hasID = true
		}
	case "medium", "to_medium":
		if !d.nil() {
			f.Medium, f.medium = medium(d.bytes()), true
		}
	case "from_medium":
		if !d.nil() {
			f.From = medium(d.bytes())
		}
	case "lookahead_token_ids": // vLLM's since 0.33: distributed/kv_events.py
		f.ahead = d.off
		d.skip(1)
	case "lora_name":
		if d.peek() == kMap { // SGLang 0.5.18 and 0.5.19: a map of the fields that were new then
			for range d.header(kMap) {
				switch inner := string(d.key()); inner {
				case "cache_salt", "lora_name":
					if d.peek() == kMap {
						d.fail(errKind)
						return
					}
					d.field(f, inner)
				default:
					d.batch.UnknownKeys++
					d.skip(1)
				}
			}
		} else if !d.nil() {
			f.Adapter = d.name()
		}
	case "cache_salt", "cache_namespace": // the latter is Dynamo's
		if !d.nil() {
			f.Salt = d.name()
		}
	case "extra_keys":
		f.extra = d.off
		d.skip(1)
	case "block_mm_infos", // Dynamo's, of TensorRT-LLM
		"mm_keys", "mm_hashes", "mm_identifiers": // TensorRT-LLM's own name, and others for the same
		f.objects = d.off
		d.skip(1)
	case "group_idx":
		if !d.nil() {
			f.Group, f.group = int32(d.number(0, 1<<20)), true
		}
	case "kv_cache_spec_kind":
		if !d.nil() {
			f.Spec = spec(d.bytes())
		}
	case "kv_cache_spec_sliding_window":
		if !d.nil() {
			f.Window = int32(d.number(0, 1<<30))
		}
	case "locality":
		if !d.nil() {
			f.remote = string(d.bytes()) == "REMOTE"
		}
	case "is_eagle": // Dynamo's
		f.eagle = d.peek() == kBool && d.b[d.off] == 0xc3
		d.skip(1)
	case "origin":
		if d.peek() == kString {
			f.Reused = string(d.bytes()) == "REUSED"
		} else {
			d.skip(1)
		}
	case "remaining_copy_counts":
		d.left(f)
	case "session_id", "ownership", "event_version": // known, and of no use here
		d.skip(1)
	default:
		d.unknown(f)
	}
}

func (d *decoder) name() string {
	b := d.bytes()
	if len(b) > maxName {
		d.fail(errTooMany)
		return ""
	}
	return string(b)
}

func medium(b []byte) Medium {
	switch {
	case len(b) == 0, bytes.EqualFold(b, []byte("GPU")):
		return Device
	case bytes.EqualFold(b, []byte("CPU")), bytes.EqualFold(b, []byte("CPU_PINNED")):
		return Host
	case bytes.EqualFold(b, []byte("REMOTE")), bytes.EqualFold(b, []byte("EXTERNAL")):
		return Remote
	}
	return Storage
}

func spec(b []byte) Spec {
	switch string(b) {
	case "full_attention", "mla_attention", "sink_full_attention":
		return SpecFull
	case "sliding_window", "sliding_window_mla":
		return SpecSliding
	}
	return SpecOther
}

// hash reads one block's name and, if it is bytes, their fingerprint.
func (d *decoder) hash() (h, sum uint64) {
	switch d.peek() {
	case kInt:
		v, _ := d.int()
		return uint64(v), 0
	case kBytes, kString:
		b := d.bytes()
		if len(b) == 0 {
			d.fail(errors.New("an empty block hash"))
			return 0, 0
		}
		for _, x := range b[max(0, len(b)-8):] {
			h = h<<8 | uint64(x)
		}
		if len(b) > 8 {
			sum = max(1, xxhash.Sum64(b))
		}
		return h, sum
	}
	d.fail(errKind)
	return 0, 0
}

func (d *decoder) hashes(f *fields) {
	n := d.header(kArray)
	if n > maxHashes {
		d.fail(errTooMany)
	}
	if d.err != nil {
		return
	}
	f.hashes = true
	f.Hashes, f.Sums = d.cut(n), nil
	for i := range n {
		h, sum := d.hash()
		if d.err != nil {
			return
		}
		f.Hashes[i] = h
		if sum != 0 && f.Sums == nil {
			f.Sums = d.cut(n)
		}
		if f.Sums != nil {
			f.Sums[i] = sum
		}
	}
}

func (d *decoder) left(f *fields) {
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
	f.Left = d.cut(n)
	for i := range n {
		f.Left[i] = uint64(d.number(0, 1<<30))
	}
}
