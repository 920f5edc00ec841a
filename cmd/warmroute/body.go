package main

import (
	"io"
	"net/http"
	"sync"

	"github.com/warmroute/router/internal/reqbody"
)

// bodyOf returns a new reader of the whole body b with an edit. It holds a reference
// until it is closed, which the transport may do after the reply has come.
func bodyOf(b *reqbody.Body, e edit) io.ReadCloser {
	if len(b.Bytes()) == 0 {
		return http.NoBody
	}
	b.Retain()
	return &bodyReader{body: b, edit: e}
}

// bodyReader is safe to close while another goroutine reads: the buffer may be
// lent to the next request from then on.
type bodyReader struct {
	mu         sync.Mutex
	body       *reqbody.Body // nil once closed
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
		from, ok := r.edit.piece(r.body.Bytes(), r.piece)
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
		r.body.Release()
		r.body = nil
	}
	return nil
}
