package kvindex

import (
	"encoding/binary"
	"errors"
	"math"
)

// The reader below is our own. The tokens of a batch are most of its bytes: read
// in one loop over the slice they cost about 2 ns each, and 4.5 ns by calls of
// github.com/tinylib/msgp, the fastest library that was tried. The rest is
// little, and every value is inspected anyway.

var errShort = errors.New("ends inside a value")
var errKind = errors.New("a value of an unexpected kind")

// kind is the kind of a value, from its first byte.
type kind uint8

const (
	kNil kind = iota
	kBool
	kInt
	kFloat
	kString
	kBytes
	kArray
	kMap
	kExt
	kNone // no value may begin so, or the payload ends here
)

// cursor reads msgpack values one after another. Headers need not be minimal.
// After the first error every read fails with it, and reads nothing.
type cursor struct {
	b   []byte
	off int
	err error
}

func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.off = len(c.b) // nothing is left to read
}

func (c *cursor) rest() int { return len(c.b) - c.off }

// peek returns the kind of the next value.
func (c *cursor) peek() kind {
	if c.off >= len(c.b) {
		return kNone
	}
	switch b := c.b[c.off]; {
	case b < 0x80 || b >= 0xe0:
		return kInt
	case b < 0x90:
		return kMap
	case b < 0xa0:
		return kArray
	case b < 0xc0:
		return kString
	case b == 0xc0:
		return kNil
	case b == 0xc1:
		return kNone
	case b <= 0xc3:
		return kBool
	case b <= 0xc6:
		return kBytes
	case b <= 0xc9:
		return kExt
	case b <= 0xcb:
		return kFloat
	case b <= 0xd3:
		return kInt
	case b <= 0xd8:
		return kExt
	case b <= 0xdb:
		return kString
	case b <= 0xdd:
		return kArray
	default:
		return kMap
	}
}

// take returns the next n bytes.
func (c *cursor) take(n int) []byte {
	if n < 0 || n > c.rest() {
		c.fail(errShort)
		return nil
	}
	s := c.b[c.off : c.off+n : c.off+n]
	c.off += n
	return s
}

// uint reads n bytes, big-endian; n is 1, 2, 4 or 8.
func (c *cursor) uint(n int) uint64 {
	b := c.take(n)
	if b == nil {
		return 0
	}
	switch n {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(b))
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	}
	return binary.BigEndian.Uint64(b)
}

// nil reads a nil if it is next.
func (c *cursor) nil() bool {
	if c.off < len(c.b) && c.b[c.off] == 0xc0 {
		c.off++
		return true
	}
	return false
}

// int reads an integer in two's complement; wide is set if it is unsigned and
// above the range of an int64.
func (c *cursor) int() (v int64, wide bool) {
	if c.peek() != kInt {
		c.fail(errKind)
		return 0, false
	}
	b := c.b[c.off]
	c.off++
	switch {
	case b < 0x80:
		return int64(b), false
	case b >= 0xe0:
		return int64(int8(b)), false
	case b <= 0xcf:
		u := c.uint(1 << (b - 0xcc))
		return int64(u), u > math.MaxInt64
	}
	switch b {
	case 0xd0:
		return int64(int8(c.uint(1))), false
	case 0xd1:
		return int64(int16(c.uint(2))), false
	case 0xd2:
		return int64(int32(c.uint(4))), false
	}
	return int64(c.uint(8)), false
}

// number reads an integer that fits lo..hi.
func (c *cursor) number(lo, hi int64) int64 {
	v, wide := c.int()
	if c.err == nil && (wide || v < lo || v > hi) {
		c.fail(errRange)
	}
	return v
}

var errRange = errors.New("a number out of range")

func (c *cursor) float() float64 {
	switch c.peek() {
	case kInt:
		v, wide := c.int()
		if wide {
			return float64(uint64(v))
		}
		return float64(v)
	case kFloat:
		c.off++
		if c.b[c.off-1] == 0xca {
			return float64(math.Float32frombits(uint32(c.uint(4))))
		}
		return math.Float64frombits(c.uint(8))
	}
	c.fail(errKind)
	return 0
}

// bytes reads a string or bytes without copying them.
func (c *cursor) bytes() []byte {
	k := c.peek()
	if k != kString && k != kBytes {
		c.fail(errKind)
		return nil
	}
	b := c.b[c.off]
	c.off++
	if b >= 0xa0 && b < 0xc0 {
		return c.take(int(b & 0x1f))
	}
	base := byte(0xc4)
	if k == kString {
		base = 0xd9
	}
	return c.take(int(c.uint(1 << (b - base))))
}

// header reads the number of elements of an array, or of entries of a map. Each
// is at least one byte, or two, so the rest of the payload bounds the result.
func (c *cursor) header(k kind) int {
	if got := c.peek(); got != k || got == kNone {
		if got == kNone {
			c.fail(errShort)
		} else {
			c.fail(errKind)
		}
		return 0
	}
	b := c.b[c.off]
	c.off++
	var n uint64
	switch {
	case b < 0xa0:
		n = uint64(b & 0x0f)
	case b == 0xdc || b == 0xde:
		n = c.uint(2)
	default:
		n = c.uint(4)
	}
	each := uint64(1)
	if k == kMap {
		each = 2
	}
	if n*each > uint64(c.rest()) {
		c.fail(errShort)
		return 0
	}
	return int(n)
}

// skip reads past n values and all that is nested in them.
func (c *cursor) skip(n int) {
	for n > 0 && c.err == nil {
		n--
		switch c.peek() {
		case kNil, kBool:
			c.off++
		case kInt:
			c.int()
		case kFloat:
			c.float()
		case kString, kBytes:
			c.bytes()
		case kArray:
			n += c.header(kArray)
		case kMap:
			n += 2 * c.header(kMap)
		case kExt:
			b := c.b[c.off]
			c.off++
			if b >= 0xd4 {
				c.take(1 + 1<<(b-0xd4))
			} else {
				c.take(1 + int(c.uint(1<<(b-0xc7))))
			}
		default:
			c.fail(errShort)
		}
		if n > c.rest() {
			c.fail(errShort) // also keeps the count from growing without end
		}
	}
}
