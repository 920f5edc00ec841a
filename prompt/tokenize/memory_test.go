package tokenize

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/warmroute/router/internal/racetest"
)

// TestMemory: a body of many short members costs no more than its length, and one over MaxBody nothing.
func TestMemory(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector changes what is allocated")
	}
	body := []byte(`{"messages":[{"role":"user","content":"x"}]` + strings.Repeat(`,"a":1`, (31<<20)/6) + `}`)
	allocated := func(f func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	for name, c := range map[string]struct {
		max  int
		want error
	}{"read": {64 << 20, ErrNotExact}, "over MaxBody": {0, ErrTooLarge}} {
		client := newClient(t, Config{MaxBody: c.max}, "http://127.0.0.1:1")
		n := allocated(func() {
			if _, err := client.Tokens(t.Context(), chatPath, nil, body); !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
		})
		if n > 1<<20 {
			t.Errorf("%s: %d bytes are allocated", name, n)
		}
	}
	n := allocated(func() {
		if b, err := question(true, body); err != nil || len(b) > 1000 {
			t.Errorf("%d bytes, %v", len(b), err)
		}
	})
	if n > 1<<20 {
		t.Errorf("a question: %d bytes are allocated", n)
	}
}
