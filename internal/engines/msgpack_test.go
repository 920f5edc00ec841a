package engines

import "encoding/binary"

// value reads one msgpack value as arrays, maps of strings, and nil for all else.
func value(b []byte) (v any, rest []byte, ok bool) {
	if len(b) == 0 {
		return nil, nil, false
	}
	c, b := b[0], b[1:]
	size := func(n int) int { // a length of n bytes
		if len(b) < n {
			ok = false
			return 0
		}
		var w [8]byte
		copy(w[8-n:], b[:n])
		b = b[n:]
		return int(binary.BigEndian.Uint64(w[:]) & (1<<31 - 1))
	}
	skip := func(n int) (any, []byte, bool) {
		if n > len(b) {
			return nil, nil, false
		}
		return nil, b[n:], ok
	}
	text := func(n int) (any, []byte, bool) {
		if n > len(b) {
			return nil, nil, false
		}
		return string(b[:n]), b[n:], ok
	}
	ok = true
	switch {
	case c < 0x80, c >= 0xe0, c == 0xc0, c == 0xc2, c == 0xc3:
		return nil, b, true
	case c < 0x90:
		return object(b, int(c&15))
	case c < 0xa0:
		return array(b, int(c&15))
	case c < 0xc0:
		return text(int(c & 31))
	case c >= 0xc4 && c <= 0xc6:
		return skip(size(1 << (c - 0xc4)))
	case c == 0xca, c == 0xce, c == 0xd2:
		return skip(4)
	case c == 0xcb, c == 0xcf, c == 0xd3:
		return skip(8)
	case c == 0xcc, c == 0xd0:
		return skip(1)
	case c == 0xcd, c == 0xd1:
		return skip(2)
	case c >= 0xd9 && c <= 0xdb:
		return text(size(1 << (c - 0xd9)))
	case c == 0xdc, c == 0xdd:
		n := size(2 << (c - 0xdc))
		return array(b, n)
	case c == 0xde, c == 0xdf:
		n := size(2 << (c - 0xde))
		return object(b, n)
	}
	return nil, nil, false
}

func array(b []byte, n int) (any, []byte, bool) {
	out := []any{}
	for range n {
		v, rest, ok := value(b)
		if !ok {
			return nil, nil, false
		}
		out, b = append(out, v), rest
	}
	return out, b, true
}

func object(b []byte, n int) (any, []byte, bool) {
	out := map[string]any{}
	for range n {
		k, rest, ok := value(b)
		if !ok {
			return nil, nil, false
		}
		v, rest, ok := value(rest)
		if !ok {
			return nil, nil, false
		}
		name, _ := k.(string)
		out[name], b = v, rest
	}
	return out, b, true
}
