package kvindex

import (
	"errors"
	"fmt"
)

// Bounds of one message. The greatest real ones stay far below: an
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

// Decode reads one message's payload, its third frame. The kind of each value
// is read from the value, never concluded from a version: a batch and an event may
// be an array or a map, hashes integers or bytes. Unknown event types and keys
// are skipped and counted. An error means that nothing of the message may be
// used: the state of the engine's cache is then unknown, as after a lost
// message. The Batch owns its memory, at most a small multiple of the payload.
func Decode(payload []byte) (Batch, error) {
	var b Batch
	err := b.Decode(payload)
	return b, err
}

// Decode is the function of the same name into b. It reuses the memory of b.
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

// tierCleared is an event that was proposed for vLLM (pull request 57296): without a medium it
// says nothing.
const tierCleared = "TierBlocksCleared"

func kindOf(tag []byte) EventKind {
	switch string(tag) {
	case "BlockStored":
		return Stored
	case "BlockRemoved":
		return Removed
	case "AllBlocksCleared", tierCleared:
		return Cleared
	case "BlockTransferred": // ATOM's
		return Moved
	}
	return 0
}
