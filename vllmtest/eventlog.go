package vllmtest

import (
	"encoding/binary"
	"math"
	"time"
)

// eventLog collects the changes of the cache in a step, as msgpack. It is not
// safe for concurrent use.
type eventLog struct {
	cfg  *Events
	rank int // that its batches name
	out  *Publisher
	b    []byte
	n    int
}

// flush publishes the batch of a step; an empty one is none.
func (l *eventLog) flush(now time.Time) {
	if l == nil || l.n == 0 {
		return
	}
	b := append(make([]byte, 0, len(l.b)+24), 0x93, 0xcb)
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(float64(now.UnixNano())/1e9))
	b = appendHeader(b, 0x90, 0xdc, l.n)
	b = append(b, l.b...)
	b = appendUint(b, uint64(l.rank))
	l.b, l.n = l.b[:0], 0
	l.out.Publish(b)
}

// stored adds that the blocks of s from the first to before the last are cached.
func (l *eventLog) stored(s *seq, first, last, blockSize int) {
	if l == nil || first >= last {
		return
	}
	extra := s.adapter != "" || s.salt != "" && first == 0
	keys := 9
	if extra {
		keys++
	}
	l.begin("BlockStored", keys+1, 12)
	l.name("block_hashes")
	l.b = appendHeader(l.b, 0x90, 0xdc, last-first)
	for _, k := range s.keys[first:last] {
		l.hash(k)
	}
	l.name("parent_block_hash")
	if first == 0 {
		l.null()
	} else {
		l.hash(s.keys[first-1])
	}
	l.name("token_ids")
	l.b = appendHeader(l.b, 0x90, 0xdc, (last-first)*blockSize)
	for _, t := range s.tokens[first*blockSize : last*blockSize] {
		l.b = appendUint(l.b, uint64(t))
	}
	l.name("block_size")
	l.b = appendUint(l.b, uint64(blockSize))
	l.name("lora_id")
	l.null()
	l.name("medium")
	l.str("GPU")
	l.name("lora_name")
	l.optional(s.adapter)
	if extra {
		l.name("extra_keys")
		l.b = appendHeader(l.b, 0x90, 0xdc, last-first)
		for i := first; i < last; i++ {
			l.extra(s.adapter, s.salt, i == 0)
		}
	} else if l.cfg.Arrays {
		l.null()
	}
	l.name("group_idx")
	l.b = appendUint(l.b, 0)
	l.name("kv_cache_spec_kind")
	l.str("full_attention")
	if l.cfg.Arrays {
		l.null() // the window
	}
}

// extra writes the inputs of a block's hash other than its tokens; the salt is in the
// first one's alone.
func (l *eventLog) extra(adapter, salt string, first bool) {
	if !first {
		salt = ""
	}
	n := 0
	for _, s := range [...]string{adapter, salt} {
		if s != "" {
			n++
		}
	}
	if n == 0 {
		l.null()
		return
	}
	l.b = append(l.b, 0x90|byte(n))
	for _, s := range [...]string{adapter, salt} {
		if s != "" {
			l.str(s)
		}
	}
}

// removed adds that one copy of a block is not cached any more.
func (l *eventLog) removed(k blockKey) {
	if l == nil {
		return
	}
	l.begin("BlockRemoved", 4, 4)
	l.name("block_hashes")
	l.b = append(l.b, 0x91)
	l.hash(k)
	l.name("medium")
	l.str("GPU")
	l.name("group_idx")
	l.b = appendUint(l.b, 0)
}

// begin begins an event: a map of so many keys, or an array of so many elements.
func (l *eventLog) begin(tag string, keys, elements int) {
	l.n++
	if l.cfg.Arrays {
		l.b = append(l.b, 0x90|byte(elements))
	} else {
		l.b = append(l.b, 0x80|byte(keys))
	}
	l.name("type")
	l.str(tag)
}

func (l *eventLog) name(s string) {
	if !l.cfg.Arrays {
		l.str(s)
	}
}

func (l *eventLog) null() { l.b = append(l.b, 0xc0) }

func (l *eventLog) optional(s string) {
	if s == "" {
		l.null()
		return
	}
	l.str(s)
}

func (l *eventLog) str(s string) {
	switch {
	case len(s) < 32:
		l.b = append(l.b, 0xa0|byte(len(s)))
	case len(s) < 256:
		l.b = append(l.b, 0xd9, byte(len(s)))
	default:
		l.b = binary.BigEndian.AppendUint32(append(l.b, 0xdb), uint32(len(s)))
	}
	l.b = append(l.b, s...)
}

func (l *eventLog) hash(k blockKey) {
	if l.cfg.Bytes {
		l.b = append(append(l.b, 0xc4, byte(len(k))), k[:]...)
		return
	}
	l.b = appendUint(l.b, binary.BigEndian.Uint64(k[8:]))
}

// appendHeader appends the header of an array (or a map, by its two tags) of n
// elements.
func appendHeader(b []byte, fix, tag16 byte, n int) []byte {
	switch {
	case n < 16:
		return append(b, fix|byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, tag16), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, tag16+1), uint32(n))
}

func appendUint(b []byte, v uint64) []byte {
	switch {
	case v < 1<<7:
		return append(b, byte(v))
	case v < 1<<8:
		return append(b, 0xcc, byte(v))
	case v < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(v))
	case v < 1<<32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xcf), v)
}
