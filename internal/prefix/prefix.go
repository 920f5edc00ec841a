// Package prefix compares the beginnings of long texts.
package prefix

import "math/bits"

// Common returns the length of the longest common prefix of a and b. String
// equality runs at the speed of memcmp but does not report the position of the
// difference, so it is asked for blocks first and then for halves of the one
// that differs.
func Common(a, b string) int {
	const block = 4096
	n := min(len(a), len(b))
	a, b = a[:n], b[:n]
	i := 0
	for n-i > block {
		if a[i:i+block] != b[i:i+block] {
			break
		}
		i += block
	}
	if n-i <= block && a[i:] == b[i:] {
		return n
	}
	for step := block / 2; step >= 16; step /= 2 {
		if i+step <= n && a[i:i+step] == b[i:i+step] {
			i += step
		}
	}
	for ; i+8 <= n; i += 8 {
		if x := load64(a[i:]) ^ load64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

func load64(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}
