package scopekey

import (
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	long := strings.Repeat("s", 1<<20)
	for _, scope := range []string{"", "llama", strings.Repeat("s", max)} {
		if got := Of(scope); got != scope {
			t.Errorf("the key of %d bytes is %q", len(scope), got)
		}
	}
	key := Of(long)
	if len(key) > max || Of(key) != key || key == Of(long+"s") || key != Of(long) {
		t.Errorf("the key of %d bytes is %q", len(long), key)
	}
}
