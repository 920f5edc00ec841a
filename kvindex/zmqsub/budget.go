package zmqsub

import (
	"context"
	"sync"

	"github.com/warmroute/router/membudget"
)

// budget bounds the bytes of messages that are kept. While nothing is kept one
// message of any size fits, so that none waits for ever.
type budget struct {
	most   int64
	memory *membudget.Account // has the bytes too; nil: most alone bounds them

	mu    sync.Mutex
	used  int64
	taken int64         // of memory, used unless it had no more for messages that were kept already
	freed chan struct{} // closed when bytes are given back and a take waits
}

// begin sets the bound. Nothing is kept any more.
func (b *budget) begin(most int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.most, b.used = int64(most), 0
	b.settle()
}

// try takes n bytes if they fit.
func (b *budget) try(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fits(n)
}

func (b *budget) fits(n int) bool {
	if b.full(n) || b.memory.Reserve(b.used+int64(n)-b.taken) != nil {
		return false
	}
	b.used += int64(n)
	b.taken = max(b.taken, b.used)
	return true
}

// full reports whether n bytes do not fit, whatever memory has.
func (b *budget) full(n int) bool { return b.used > 0 && b.used+int64(n) > b.most }

// settle gives memory back that is not used. The caller holds mu.
func (b *budget) settle() {
	if over := b.taken - b.used; over > 0 {
		b.memory.Release(over)
		b.taken = b.used
	}
}

// take takes n bytes, and waits for them until ctx ends.
func (b *budget) take(ctx context.Context, n int) error {
	for {
		b.mu.Lock()
		if b.fits(n) {
			b.mu.Unlock()
			return nil
		}
		if !b.full(n) { // others have the memory
			b.mu.Unlock()
			if err := b.memory.Wait(ctx, int64(n)); err != nil {
				return err
			}
			b.mu.Lock()
			if !b.full(n) {
				b.used += int64(n)
				b.taken += int64(n)
				b.settle()
				b.mu.Unlock()
				return nil
			}
			b.memory.Release(int64(n))
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
	if owed := b.used - b.taken; owed > 0 && b.memory.Reserve(owed) == nil {
		b.taken = b.used
	}
	b.settle()
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
