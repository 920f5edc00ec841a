package loadgen

import (
	"strings"
	"sync"
)

// Tail is a writer that keeps the last 4 KiB written to it. The zero Tail is
// empty; it is safe for concurrent use.
type Tail struct {
	mu sync.Mutex
	b  []byte
}

// Write never fails.
func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	if n := len(t.b) - 4<<10; n > 0 {
		t.b = append(t.b[:0], t.b[n:]...)
	}
	return len(b), nil
}

// String returns the kept text, without space around it.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.b))
}
