package trace

import (
	"encoding/binary"
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

// mix is the finaliser of splitmix64: every bit of x reaches every bit of the
// result.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	x ^= x >> 31
	return x
}

// ID makes an id of several numbers.
func ID(parts ...uint64) uint64 {
	h := uint64(len(parts))
	for _, p := range parts {
		h = mix(h + 0x9e3779b97f4a7c15 + mix(p+0x632be59bd9b4e019))
	}
	return h
}

// fill writes the text of the piece with this id to dst: letters, the same ones
// on every machine, of which any length is a prefix of a longer one. Text of
// another id differs within a few bytes.
func fill(dst []byte, id uint64) {
	x := mix(id + 0x9e3779b97f4a7c15)
	for len(dst) >= 8 {
		binary.LittleEndian.PutUint64(dst, letters(x))
		dst = dst[8:]
		x = x*6364136223846793005 + 1442695040888963407
	}
	if len(dst) > 0 {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], letters(x))
		copy(dst, b[:])
	}
}

// letters makes eight letters a to p of x.
func letters(x uint64) uint64 {
	return (x^x>>33)&0x0f0f0f0f0f0f0f0f + 0x6161616161616161
}

func appendPieces(dst []byte, ps []Piece) []byte {
	for _, p := range ps {
		n := len(dst)
		dst = dst[:n+p.Tokens*BytesPerToken]
		fill(dst[n:], p.ID)
	}
	return dst
}

// PromptText returns the text of the prompt. If the request has pieces, each
// call makes it, in one allocation.
func (r *Request) PromptText() string {
	if r.Text != "" {
		return r.Text
	}
	return pieceText(r.Prompt)
}

// TokenIDs returns the token ids of prompt and output, Input + Output of them: the
// bytes of the text, four to an id. Two requests have equal ids as far as their
// blocks have equal hashes. index is the request's own; if the reply is not known,
// the generated one is its own too.
func (r *Request) TokenIDs(index int) []uint32 {
	ids := make([]uint32, r.Input+r.Output)
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(ids))), len(ids)*BytesPerToken)
	n := 0
	if r.Text != "" {
		n = copy(b, r.Text)
		n += copy(b[n:], r.ReplyText)
		n = (n + BytesPerToken - 1) / BytesPerToken * BytesPerToken
	} else {
		for _, ps := range [][]Piece{r.Prompt, r.Reply} {
			for _, p := range ps {
				to := min(n+p.Tokens*BytesPerToken, len(b))
				fill(b[n:to], p.ID)
				n = to
			}
		}
	}
	fill(b[n:], madeUp(uint64(index)))
	return ids
}

// madeUp is the id of the piece that stands for the unknown reply to a request.
func madeUp(index uint64) uint64 { return ID(index, 0x726570) }

// KnownReply returns the text of the reply, "" if it is not known.
func (r *Request) KnownReply() string {
	if r.ReplyText != "" || len(r.Reply) == 0 {
		return r.ReplyText
	}
	return pieceText(r.Reply)
}

func pieceText(ps []Piece) string {
	n := total(ps) * BytesPerToken
	if n == 0 {
		return ""
	}
	b := appendPieces(make([]byte, 0, n), ps)
	return unsafe.String(unsafe.SliceData(b), len(b)) // nobody else has b
}

// Blocks returns, for each request, the chained hashes of the whole blocks of
// size tokens that prompt and output fill: equal hashes mean equal content from
// the first token on. The result is made once for each size and must not be
// changed. If the reply is not known, its blocks are the request's own.
func (w *Workload) Blocks(size int) [][]uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b, ok := w.blocks[size]; ok {
		return b
	}
	all := make([][]uint64, len(w.Requests))
	for i := range w.Requests {
		all[i] = w.Requests[i].hashes(size, uint64(i))
	}
	if w.blocks == nil {
		w.blocks = make(map[int][][]uint64)
	}
	w.blocks[size] = all
	return all
}

// chain collects hashes of blocks.
type chain struct {
	size   int
	hash   uint64 // of the whole blocks so far
	part   uint64 // of the content of the unfinished block
	filled int
	out    []uint64
}

func (c *chain) add(p Piece) {
	for from := 0; from < p.Tokens; {
		n := min(p.Tokens-from, c.size-c.filled)
		c.part = mix(c.part + mix(p.ID+0x9e3779b97f4a7c15) ^ mix(uint64(from)<<32+uint64(n)))
		from += n
		c.filled += n
		c.flush()
	}
}

func (c *chain) flush() {
	if c.filled == c.size {
		c.hash = mix(c.hash + 0x9e3779b97f4a7c15 ^ c.part)
		c.out = append(c.out, c.hash)
		c.filled, c.part = 0, 0
	}
}

// text is add for real text. The part of a block that it fills is hashed as
// bytes.
func (c *chain) text(s string) {
	for len(s) > 0 {
		n := min((c.size-c.filled)*BytesPerToken, len(s))
		c.part = mix(c.part + xxhash.Sum64String(s[:n]))
		s = s[n:]
		c.filled += tokens(n)
		c.flush()
	}
}

func (r *Request) hashes(size int, index uint64) []uint64 {
	c := chain{size: size, out: make([]uint64, 0, (r.Input+r.Output)/size)}
	if r.Text != "" {
		// Prompt and reply are one text in a later prompt.
		whole := r.Text + r.ReplyText
		c.text(whole[:min(len(whole), (r.Input+r.Output)*BytesPerToken)])
	} else {
		for _, p := range r.Prompt {
			c.add(p)
		}
		for _, p := range r.Reply {
			c.add(p)
		}
	}
	if missing := r.Input + r.Output - len(c.out)*size - c.filled; missing > 0 {
		c.add(Piece{ID: madeUp(index), Tokens: missing})
	}
	if n := (r.Input + r.Output) / size; len(c.out) > n {
		c.out = c.out[:n] // a known reply may be longer than the generated one
	}
	return c.out
}
