package zmqsub

import (
	"context"
	"sync"
)

// budget bounds the bytes of messages that are kept. While nothing is kept one
// message of any size fits, so that none waits for ever.
type budget struct {
	most int64

	mu    sync.Mutex
	used  int64
	freed chan struct{} // closed when bytes are given back and a take waits
}

// begin sets the bound. Nothing is kept any more.
func (b *budget) begin(most int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.most, b.used = int64(most), 0
}

// try takes n bytes if they fit.
func (b *budget) try(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fits(n)
}

func (b *budget) fits(n int) bool {
	if b.used > 0 && b.used+int64(n) > b.most {
		return false
	}
	b.used += int64(n)
	return true
}

// take takes n bytes, and waits for them until ctx ends.
func (b *budget) take(ctx context.Context, n int) error {
	for {
		b.mu.Lock()
		if b.fits(n) {
			b.mu.Unlock()
			return nil
		}
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		freed := b.freed
		b.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// give gives n bytes back; a negative n takes bytes that are kept already.
func (b *budget) give(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= int64(n)
	if n > 0 && b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

func (b *budget) kept() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}
