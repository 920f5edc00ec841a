package kvindex

import (
	"testing"

	"github.com/warmroute/router"
)

// TestForeign: a target with events that are all of unknown types is not trusted as an empty one, and that is reported
// once. The first event that is understood makes it trusted; messages without events leave it so.
func TestForeign(t *testing.T) {
	reported := 0
	x, err := New(Config{Trace: Trace{Foreign: func(string) { reported++ }}})
	if err != nil {
		t.Fatal(err)
	}
	apply := func(seq uint64, b Batch) {
		t.Helper()
		if err := x.Apply("a", seq, b); err != nil {
			t.Fatal(err)
		}
	}
	p := router.Prompt{Tokens: []uint32{1, 2, 3, 4, 5, 6, 7, 8}}
	apply(0, Batch{})
	if !x.Trusted("a") {
		t.Error("an idle engine is not trusted")
	}
	for seq := range uint64(5) {
		apply(seq+1, Batch{UnknownEvents: 3})
		if x.Trusted("a") || x.Match(p, []string{"a"}, nil)[0] != -1 {
			t.Errorf("message %d: trusted, though nothing was understood", seq+1)
		}
	}
	if reported != 1 {
		t.Errorf("reported %d times", reported)
	}
	apply(6, Batch{Events: []Event{{Kind: Cleared}}})
	if !x.Trusted("a") {
		t.Error("not trusted after an event that was understood")
	}
	apply(7, Batch{UnknownEvents: 1})
	if !x.Trusted("a") || reported != 1 {
		t.Errorf("one more unknown event: trusted %v, reported %d times", x.Trusted("a"), reported)
	}
}
