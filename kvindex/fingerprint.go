package kvindex

import (
	"math/bits"
	"math/rand/v2"
)

// A block's key is a fingerprint of its tokens: 64 bits against 512, so that a
// block costs an eighth of the memory and comparing two runs of them next to
// nothing. The tokens of a prompt are then read once, from the caller's own
// memory, which is in the nearer caches.
//
// The fingerprint is a sum of 128-bit products of the tokens' 64-bit words, each
// with a secret of its own mixed in by xor, as in the NH and wyhash families,
// folded to 64 bits. The secrets are drawn for each Index: two blocks share a
// fingerprint with a chance of about 2^-64, and a client that chooses the tokens
// cannot know which do. If two did, a prompt would be believed cached that is
// not.
type secrets struct {
	word  [8]uint64
	salt  [4]uint64
	first uint64
	tags  [2]uint64 // of handles
}

func newSecrets() *secrets {
	s := new(secrets)
	for i := range s.word {
		s.word[i] = rand.Uint64()
	}
	for i := range s.salt {
		s.salt[i] = rand.Uint64() | 1
	}
	s.first = rand.Uint64()
	s.tags = [2]uint64{rand.Uint64(), rand.Uint64() | 1}
	return s
}

func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

func pair(lo, hi uint32) uint64 { return uint64(lo) | uint64(hi)<<32 }

// sixteen is the fingerprint of 16 tokens.
func (s *secrets) sixteen(t *[16]uint32) uint64 {
	h0, l0 := bits.Mul64(pair(t[0], t[1])^s.word[0], pair(t[2], t[3])^s.word[1])
	h1, l1 := bits.Mul64(pair(t[4], t[5])^s.word[2], pair(t[6], t[7])^s.word[3])
	h2, l2 := bits.Mul64(pair(t[8], t[9])^s.word[4], pair(t[10], t[11])^s.word[5])
	h3, l3 := bits.Mul64(pair(t[12], t[13])^s.word[6], pair(t[14], t[15])^s.word[7])
	return (h0 + h1 + h2 + h3) ^ (l0 + l1 + l2 + l3)
}

// common returns how many leading blocks of the tokens have these fingerprints.
// It is the inner loop of Match: the code of sixteen is repeated here
// because a call for each block costs a quarter of it.
func (s *secrets) common(sh shape, tokens []uint32, want []uint64) int {
	if sh != plain16 {
		size, reach := sh.size(), sh.size()+sh.extra()
		for i, w := range want {
			if len(tokens) < reach || s.block(tokens[:reach], 0) != w {
				return i
			}
			tokens = tokens[size:]
		}
		return len(want)
	}
	for i, w := range want {
		if len(tokens) < 16 {
			return i
		}
		t := (*[16]uint32)(tokens)
		h0, l0 := bits.Mul64(pair(t[0], t[1])^s.word[0], pair(t[2], t[3])^s.word[1])
		h1, l1 := bits.Mul64(pair(t[4], t[5])^s.word[2], pair(t[6], t[7])^s.word[3])
		h2, l2 := bits.Mul64(pair(t[8], t[9])^s.word[4], pair(t[10], t[11])^s.word[5])
		h3, l3 := bits.Mul64(pair(t[12], t[13])^s.word[6], pair(t[14], t[15])^s.word[7])
		if (h0+h1+h2+h3)^(l0+l1+l2+l3) != w {
			return i
		}
		tokens = tokens[16:]
	}
	return len(want)
}

// block is the fingerprint of a block of any size. extra is the fingerprint
// of all else that distinguishes it, 0 for nothing.
func (s *secrets) block(t []uint32, extra uint64) uint64 {
	var h uint64
	if len(t) == 16 {
		h = s.sixteen((*[16]uint32)(t))
	} else {
		h = s.first
		for len(t) >= 16 {
			h = fold(h^s.sixteen((*[16]uint32)(t)), s.salt[0])
			t = t[16:]
		}
		for len(t) >= 2 {
			h = fold(h^pair(t[0], t[1]), s.salt[1])
			t = t[2:]
		}
		if len(t) == 1 {
			h = fold(h^uint64(t[0]), s.salt[2])
		}
	}
	if extra != 0 {
		h = fold(h^extra, s.salt[3])
	}
	return h
}

// text is the fingerprint of a string, after h.
func (s *secrets) text(h uint64, t string) uint64 {
	h = fold(h^uint64(len(t)), s.salt[0])
	for len(t) >= 8 {
		w := uint64(t[0]) | uint64(t[1])<<8 | uint64(t[2])<<16 | uint64(t[3])<<24 |
			uint64(t[4])<<32 | uint64(t[5])<<40 | uint64(t[6])<<48 | uint64(t[7])<<56
		h = fold(h^w, s.salt[1])
		t = t[8:]
	}
	for i := range len(t) {
		h = fold(h^uint64(t[i]), s.salt[2])
	}
	return h
}

// shape is the form of a target's blocks: how many tokens they have, how many after
// these the block's hash covers, and whether they are made of pairs. Blocks of
// different shapes are never compared.
type shape uint32

// MaxAhead is the greatest number of tokens after a block that belong to its key. A block with
// more of them is never matched.
const MaxAhead = 255

const (
	shapeAhead = 1 // the first bit of the tokens after a block
	shapeSize  = 9 // the first bit of the size

	plain16 = shape(16) << shapeSize
)

func shapeOf(blockSize int32, pairs bool, ahead uint8) shape {
	s := shape(blockSize)<<shapeSize | shape(ahead)<<shapeAhead
	if pairs {
		s |= 1
	}
	return s
}

func (e *Event) shape() shape { return shapeOf(e.BlockSize, e.Pairs, e.Ahead) }

func (s shape) size() int { return int(s >> shapeSize) }

// pairs is 1 for the second token of a block's last pair, else 0.
func (s shape) pairs() int { return int(s & 1) }

// ahead is the number of tokens after a block that its hash covers.
func (s shape) ahead() int { return int(s>>shapeAhead) & MaxAhead }

// extra is the number of tokens that a block's key reaches beyond its own.
func (s shape) extra() int { return s.pairs() + s.ahead() }

// root is the key of all prompts of one scope with blocks of one shape.
func (s *secrets) root(sh shape, adapter, salt string) uint64 {
	h := fold(uint64(sh)^s.first, s.salt[3])
	if adapter == "" && salt == "" {
		return h
	}
	return s.text(s.text(h, adapter), salt)
}
