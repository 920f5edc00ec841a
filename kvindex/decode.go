package kvindex

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// Bounds of what one message may say. The greatest real ones stay far below: an
// event of a prompt of a million tokens in blocks of one token.
const (
	maxPayload = 64 << 20
	maxEvents  = 1 << 16 // in a batch
	maxHashes  = 1 << 20 // in an event
	maxTokens  = 1 << 20 // in an event
	maxBlock   = 1 << 16 // tokens of a block
	maxName    = 4096    // bytes of an adapter's name, or of a salt
)

var errTooMany = errors.New("more elements than are allowed")

// Decode reads one message's payload, its third frame. What each value is, is
// seen from the value, never concluded from a version: a batch and an event may
// be an array or a map, hashes integers or bytes. Unknown event types and keys
// are skipped and counted. An error means that nothing of the message may be
// used: the state of the engine's cache is then unknown, as after a lost
// message. The Batch owns its memory, at most a small multiple of the payload.
func Decode(payload []byte) (Batch, error) {
	var b Batch
	err := b.Decode(payload)
	return b, err
}

// Decode is the function of the same name into b, whose memory it uses again.
func (b *Batch) Decode(payload []byte) error {
	*b = Batch{Rank: -1, Events: b.Events[:0], words: b.words[:0], tokens: b.tokens[:0]}
	if len(payload) > maxPayload {
		return fmt.Errorf("kvindex: a payload of %d bytes; at most %d are read", len(payload), maxPayload)
	}
	d := decoder{cursor: cursor{b: payload}, batch: b}
	d.message()
	if d.err == nil && d.rest() > 0 {
		d.fail(errors.New("more follows after the batch"))
	}
	if d.err != nil {
		err := fmt.Errorf("kvindex: payload of %d bytes, event %d: %w", len(payload), len(b.Events), d.err)
		*b = Batch{Rank: -1, Events: b.Events[:0], words: b.words[:0], tokens: b.tokens[:0]}
		return err
	}
	return nil
}

type decoder struct {
	cursor
	batch *Batch
}

func (d *decoder) message() {
	b := d.batch
	if d.peek() != kMap {
		n := d.header(kArray)
		if d.err == nil && n < 2 {
			d.fail(errors.New("a batch of fewer than two elements"))
			return
		}
		b.Time = d.float()
		d.events()
		if n > 2 {
			d.rank()
		}
		if n > 3 {
			b.UnknownKeys += n - 3
			d.skip(n - 3)
		}
		return
	}
	seen := false
	for range d.header(kMap) {
		switch string(d.key()) {
		case "ts":
			b.Time = d.float()
		case "events":
			if seen {
				d.fail(errors.New("two lists of events"))
			}
			d.events()
			seen = true
		case "data_parallel_rank":
			d.rank()
		default:
			b.UnknownKeys++
			d.skip(1)
		}
	}
	if d.err == nil && !seen {
		d.fail(errors.New("a batch without events"))
	}
}

// key reads a map's key; one that is no string is unknown.
func (d *decoder) key() []byte {
	if d.peek() != kString {
		d.skip(1)
		return nil
	}
	return d.bytes()
}

func (d *decoder) rank() {
	if !d.nil() {
		d.batch.Rank = int(d.number(0, 1<<30))
	}
}

func (d *decoder) events() {
	n := d.header(kArray)
	if n > maxEvents {
		d.fail(errTooMany)
	}
	if d.err != nil {
		return
	}
	// No known event is shorter than 13 bytes.
	if most := min(n, d.rest()/13+1); most > cap(d.batch.Events) {
		d.batch.Events = make([]Event, 0, most)
	}
	for range n {
		if d.err != nil {
			return
		}
		switch d.peek() {
		case kArray:
			d.arrayEvent()
		case kMap:
			d.mapEvent()
		default:
			d.batch.UnknownEvents++
			d.skip(1)
		}
	}
}

func kindOf(tag []byte) EventKind {
	switch string(tag) {
	case "BlockStored":
		return Stored
	case "BlockRemoved":
		return Removed
	case "AllBlocksCleared":
		return Cleared
	}
	return 0
}

// fields is what an event says before it can be understood: which keys come
// first is not certain.
type fields struct {
	Event
	hashes  bool // a list of them was there
	loraID  int64
	hasID   bool
	extra   int // where the extra keys begin, 0 for nowhere
	objects int // where a list of each block's multimodal objects begins
	remote  bool
}

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
	for i := range n {
		switch {
		case d.err != nil:
			return
		case k == Stored && i < len(storedFields):
			d.field(&f, storedFields[i])
		case k == Removed && i < len(removedFields):
			d.field(&f, removedFields[i])
		default:
			d.batch.UnknownKeys++
			d.skip(1)
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
)

func (d *decoder) mapEvent() {
	n := d.header(kMap)
	f := newFields(0)
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
				f.Kind = kindOf(d.bytes())
			} else {
				d.skip(1)
			}
			if f.Kind == 0 { // unknown: the rest is of no interest
				d.batch.UnknownEvents++
				d.skip(2 * (n - i - 1))
				return
			}
			if i > 0 { // what came before was passed over, to be read again now
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
			d.skip(1)
			continue
		}
		d.field(&f, string(key))
	}
	if d.err != nil {
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
	case "medium":
		if !d.nil() {
			f.Medium = medium(d.bytes())
		}
	case "lora_name":
		if d.peek() == kMap { // SGLang 0.5.18 and 0.5.19: a map of what was new then
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
	case "cache_salt":
		if !d.nil() {
			f.Salt = d.name()
		}
	case "extra_keys":
		f.extra = d.off
		d.skip(1)
	case "block_mm_infos": // Dynamo's, of TensorRT-LLM
		f.objects = d.off
		d.skip(1)
	case "group_idx":
		if !d.nil() {
			f.Group = int32(d.number(0, 1<<20))
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
		d.batch.UnknownKeys++
		d.skip(1)
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

// hash reads one block's name and, where it is bytes, their fingerprint.
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

// finish checks what an event says as a whole, and adds it to the batch.
func (d *decoder) finish(f *fields) {
	if d.err != nil {
		return
	}
	if f.Kind != Cleared && !f.hashes {
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
		f.Medium = Storage // another machine's
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

// extraKeys reads the list of what distinguishes each block beside its tokens.
// The adapter's name, which is one of them, is known already; the salt stands in
// the first block of a prompt alone. Whatever else there is becomes a part of
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
			sum = max(1, xxhash.Sum64(d.b[from:d.off]))
		} else {
			sum = d.extraKey(f, i == 0 && !f.HasParent)
		}
		if d.err != nil {
			return
		}
		if sum != 0 {
			if f.Extra == nil {
				f.Extra = d.cut(len(f.Hashes))
			}
			f.Extra[i] ^= sum
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
	if pending != nil && d.err == nil {
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
