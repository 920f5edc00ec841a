package tokenmemo

import (
	"runtime"
	"strings"
	"testing"

	"github.com/warmroute/router/internal/racetest"
)

// TestKeyMemory: a key costs a small part of its body's length, or there is none.
func TestKeyMemory(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector changes what is allocated")
	}
	const size = 31 << 20
	fill := func(head, unit, tail string) []byte {
		return []byte(head + strings.Repeat(unit, (size-len(head)-len(tail))/len(unit)) + tail)
	}
	for _, c := range []struct {
		name, path string
		body       []byte
		ok         bool
	}{
		{"short members", chatPath, fill(`{"messages":[{}],`, `"a":1,`, `"b":1}`), false},
		{"different members", chatPath, fill(`{"messages":[{}],`, `"a":1,"b":1,"c":1,`, `"d":1}`), false},
		{"members without effect", chatPath, fill(`{"messages":[{}],`, `"n":1,`, `"b":1}`), false},
		{"short members of a message", chatPath, fill(`{"messages":[{`, `"a":1,`, `"b":1}]}`), true},
		{"short messages", chatPath, fill(`{"messages":[`, `{},`, `{}]}`), false},
		{"short blocks", chatPath, fill(`{"messages":[{"content":[`, `"a",`, `"b"]}]}`), true},
		{"short members of the arguments", chatPath, fill(`{"messages":[{}],"chat_template_kwargs":{`, `"a":1,`, `"b":1}}`),
			true},
		{"one message", chatPath, fill(`{"messages":[{"content":"`, `word `, `"}]}`), true},
		{"a prompt", "/v1/completions", fill(`{"prompt":"`, `word `, `"}`), true},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, ok := NewKey(c.path, c.body)
		runtime.ReadMemStats(&after)
		if ok != c.ok {
			t.Errorf("%s: there is a key: %v", c.name, ok)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > size/8 {
			t.Errorf("%s: %d bytes are allocated for a body of %d", c.name, n, len(c.body))
		}
	}
}
