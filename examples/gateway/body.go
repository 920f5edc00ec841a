package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

var (
	errTooLarge = errors.New("the request body is too large")
	errBusy     = errors.New("the gateway is at its limit")
)

// body is a request body in memory, kept so that it can be sent again. Its
// buffer goes back to the pool when the last reader is closed, which the
// transport may do after the reply has come.
type body struct {
	data []byte
	refs atomic.Int32
	pool *bodyPool
	held int64 // bytes taken from the pool's budget
}

// bodyPool lends buffers for request bodies and bounds their sum.
type bodyPool struct {
	free   sync.Pool // of *body
	budget int64     // bytes that all bodies together may take
	used   atomic.Int64
}

// reserve takes n bytes from the budget, where it has them; give brings them back.
func (p *bodyPool) reserve(n int64) bool {
	if p.used.Add(n) > p.budget {
		p.used.Add(-n)
		return false
	}
	return true
}

func (p *bodyPool) give(n int64) { p.used.Add(-n) }

// keepBuffer is the capacity in bytes above which a buffer is left to the
// garbage collector, so that a few huge bodies do not stay resident.
const keepBuffer = 1 << 20

// read reads r's body, at most limit bytes of it. Who gets a body releases it.
func (p *bodyPool) read(r *http.Request, limit int64) (*body, error) {
	b, _ := p.free.Get().(*body)
	if b == nil {
		b = &body{pool: p}
	}
	b.refs.Store(1)
	if r.Body == nil || r.Body == http.NoBody {
		return b, nil
	}
	if r.ContentLength > limit {
		b.release()
		return nil, errTooLarge
	}
	if err := b.fill(r, limit); err != nil {
		b.release()
		return nil, err
	}
	return b, nil
}

func (b *body) fill(r *http.Request, limit int64) error {
	size := r.ContentLength
	if size < 0 {
		size = min(8<<10, limit)
	}
	for {
		if err := b.grow(size + 1); err != nil { // the one more lets the last Read see the end
			return err
		}
		n, err := r.Body.Read(b.data[len(b.data):cap(b.data)])
		b.data = b.data[:len(b.data)+n]
		if int64(len(b.data)) > limit {
			return errTooLarge
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the request body: %w", err)
		}
		if int64(len(b.data)) > size {
			size = min(2*size, limit)
		}
	}
}

// grow makes the capacity at least n, within the budget of all bodies.
func (b *body) grow(n int64) error {
	if add := n - b.held; add > 0 {
		if !b.pool.reserve(add) {
			return errBusy
		}
		b.held = n
	}
	if int64(cap(b.data)) < n {
		data := make([]byte, len(b.data), n)
		copy(data, b.data)
		b.data = data
	}
	return nil
}

// release gives up one reference.
func (b *body) release() {
	if b.refs.Add(-1) > 0 {
		return
	}
	b.pool.give(b.held)
	b.held = 0
	b.data = b.data[:0]
	if cap(b.data) > keepBuffer {
		b.data = nil
	}
	b.pool.free.Put(b)
}

// reader returns a new reader of the whole body with an edit. It holds a reference
// until it is closed.
func (b *body) reader(e edit) io.ReadCloser {
	if len(b.data) == 0 {
		return http.NoBody
	}
	b.refs.Add(1)
	return &bodyReader{body: b, edit: e}
}

// bodyReader is safe to close while another goroutine reads: the buffer may be
// lent to the next request from then on.
type bodyReader struct {
	mu         sync.Mutex
	body       *body // nil once closed
	edit       edit
	piece, off int // off in piece
}

func (r *bodyReader) Read(p []byte) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.body == nil {
		return 0, http.ErrBodyReadAfterClose
	}
	for n < len(p) {
		from, ok := r.edit.piece(r.body.data, r.piece)
		if !ok {
			return n, io.EOF
		}
		m := copy(p[n:], from[r.off:])
		n += m
		if r.off += m; r.off == len(from) {
			r.piece, r.off = r.piece+1, 0
		}
	}
	return n, nil
}

func (r *bodyReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.body != nil {
		r.body.release()
		r.body = nil
	}
	return nil
}
