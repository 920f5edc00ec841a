package sharing

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/warmroute/router/internal/peering"
)

const (
	// Chunk is the number of bytes of a prompt that one mark stands for, with all before them.
	Chunk = 1 << 10
	// maxMarks bounds the marks of one prompt: what is beyond 4 MiB is not shared.
	maxMarks = 4 << 10
)

// Mark is the fingerprint of a beginning of a prompt: 48 bits, and not 0.
type Mark = peering.Mark

const markBits = 48

// The domains of the keyed hash.
const (
	domainCheck uint8 = iota + 1
	domainScope
	domainScopeSeed
	domainMark
	domainTarget
	domainTargetSeed
	domainSession
)

// Key makes fingerprints that only those who have the fleet's secret can make.
type Key struct {
	block                 cipher.Block
	seal                  cipher.AEAD
	scopeSeed, targetSeed uint64
	check                 uint16 // by which frames of another secret are known
}

// NewKey returns the key of a secret, which is used for one fleet.
func NewKey(secret, fleet string) (*Key, error) {
	sum := sha256.Sum256([]byte("warmroute share 1\x00" + fleet + "\x00" + secret))
	block, err := aes.NewCipher(sum[:16])
	if err != nil {
		return nil, err
	}
	other, err := aes.NewCipher(sum[16:])
	if err != nil {
		return nil, err
	}
	k := &Key{block: block}
	if k.seal, err = cipher.NewGCM(other); err != nil {
		return nil, err
	}
	var b scratch
	k.scopeSeed = k.hash(&b, domainScopeSeed, 0)
	k.targetSeed = k.hash(&b, domainTargetSeed, 0)
	k.check = uint16(k.hash(&b, domainCheck, 0))
	return k, nil
}

// scratch is the memory of one call of hash. It is part of something on the heap, because a cipher's buffers escape.
type scratch struct{ in, out [aes.BlockSize]byte }

func (k *Key) hash(b *scratch, domain uint8, x uint64) uint64 {
	binary.LittleEndian.PutUint64(b.in[:], x)
	b.in[8] = domain
	k.block.Encrypt(b.out[:], b.in[:])
	return binary.LittleEndian.Uint64(b.out[:])
}

// short returns 48 bits of x, not 0.
func short(x uint64) uint64 { return max(x>>(64-markBits), 1) }

// tag returns the name of a target on the wire.
func (k *Key) tag(id string) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(k.targetSeed)
	_, _ = d.WriteString(id) // never fails
	return short(k.hash(new(scratch), domainTarget, d.Sum64()))
}

// Chain has the marks of one prompt: Marks[i] stands for its scope and its first (i+1) * Chunk bytes. Marks are not
// changed once they were made.
type Chain struct {
	Marks []Mark
	start uint64 // of the chain
	state uint64 // after the last mark

	// Of the prompt as it was sent; used by the goroutine of Poll alone.
	target uint16
	at     stamp
	fresh  []Mark // marks that nobody had said of the target before

	known atomic.Uint64 // see Known
}

// Chain returns the marks of a text in a scope.
func (k *Key) Chain(scope, text string) *Chain {
	c := &Chain{}
	var m marker
	m.d.ResetWithSeed(k.scopeSeed)
	_, _ = m.d.WriteString(scope)
	c.start = k.hash(&m.scratch, domainScope, m.d.Sum64())
	c.state = c.start
	if n := min(len(text)/Chunk, maxMarks); n > 0 {
		c.Marks = make([]Mark, 0, n+1) // mostly a reply adds one
	}
	m.add(k, c, text)
	return c
}

type marker struct {
	scratch
	d xxhash.Digest
}

// add appends the marks of whole chunks.
func (m *marker) add(k *Key, c *Chain, text string) {
	for len(text) >= Chunk && len(c.Marks) < maxMarks {
		m.d.ResetWithSeed(c.state)
		_, _ = m.d.WriteString(text[:Chunk])
		c.state = m.d.Sum64()
		c.Marks = append(c.Marks, Mark(short(k.hash(&m.scratch, domainMark, c.state))))
		text = text[Chunk:]
	}
}

// Extend returns the marks of text, of which c has the marks, and more after it; nil if these are no more than c's.
func (k *Key) Extend(c *Chain, text, more string) *Chain {
	done := len(c.Marks) * Chunk
	if done > len(text) || len(text)+len(more) < done+Chunk || len(c.Marks) == maxMarks {
		return nil
	}
	rest := text[done:]
	if len(rest) >= Chunk { // c was cut
		return nil
	}
	longer := &Chain{start: c.start, state: c.state}
	longer.Marks = make([]Mark, len(c.Marks), min((len(text)+len(more))/Chunk, maxMarks))
	copy(longer.Marks, c.Marks)
	var m marker
	m.add(k, longer, rest+more[:Chunk-len(rest)])
	m.add(k, longer, more[Chunk-len(rest):])
	return longer
}
