package precisecacheaware_test

import (
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/precisecacheaware"
)

// TestRecomputed: engines with EAGLE reuse one block fewer than they hold. The strategy reports what
// they say to the index, which learns it, target by target.
func TestRecomputed(t *testing.T) {
	s, e, _ := presuming(t, precisecacheaware.Config{})
	p := part(0, 20)
	e.Store("a", p)
	e.Store("b", p)
	whole := held(t, s, "a", p)
	for range 4 {
		for _, id := range []string{"a", "b"} {
			d := pick(t, s, p, busy(id, 0))
			s.Record(d, router.Outcome{Stage: router.Sent})
			o := router.Outcome{Stage: router.Finished, Status: 200, PromptTokens: len(p.Tokens), CachedTokens: whole}
			if id == "a" {
				o.CachedTokens -= 16
			}
			s.Record(d, o)
		}
	}
	if n := held(t, s, "a", p); n != whole-16 {
		t.Errorf("%d at the engine with EAGLE, want %d", n, whole-16)
	}
	if n := held(t, s, "b", p); n != whole {
		t.Errorf("%d at the other, want %d", n, whole)
	}
	if m := s.Stats().Mismatched; m != 3 {
		t.Errorf("%d predictions were wrong, want 3", m)
	}
	// A prompt that was just sent is presumed as it will be: without its last block.
	q := part(7, 20)
	d := pick(t, s, q, busy("a", 0))
	s.Record(d, router.Outcome{Stage: router.Sent})
	if n := held(t, s, "a", q); n != whole-16 {
		t.Errorf("%d presumed, want %d", n, whole-16)
	}
}
