package router_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/loadview"
)

// What Route and Done allocate: the lease, the pick that the fleet is given and
// the fleet's own record of the flight; and three for a context that can be
// canceled, to see its end.
func TestAllocations(t *testing.T) {
	cancelable, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		most float64
	}{
		{"background", context.Background(), 3},
		{"cancelable", cancelable, 6},
	} {
		v := newView(t, loadview.Config{}, ids(8)...)
		r := router.New(roundRobin(t), v, router.Options{})
		n := testing.AllocsPerRun(1000, func() {
			l, err := r.Route(tt.ctx, prompt)
			if err != nil {
				t.Fatal(err)
			}
			l.FirstToken()
			l.Done(router.Outcome{Status: 200})
		})
		if n > tt.most {
			t.Errorf("%s: %v allocations, want %v at most", tt.name, n, tt.most)
		}
	}
}

// BenchmarkRouteDone is the whole path of a request but for sending it: 8
// targets, 16 KiB of text of which all but the last turn was sent before.
func BenchmarkRouteDone(b *testing.B) {
	const conversations, size, turn = 64, 16 << 10, 600
	b.ReportAllocs()
	v := newView(b, loadview.Config{}, ids(8)...)
	r := router.New(cacheAware(b), v, router.Options{})
	once := func(text string) {
		l, err := r.Route(context.Background(), router.Prompt{Model: "llama", Text: text})
		if err != nil {
			b.Fatal(err)
		}
		l.FirstToken()
		l.Done(router.Outcome{Status: 200})
	}
	var heads []string
	for i := range conversations {
		text := fmt.Sprintf("Conversation %d. ", i) + strings.Repeat(fmt.Sprintf("Sentence of %d. ", i), size/14)
		heads = append(heads, text[:size-turn])
		once(heads[i])
	}
	texts := make([]string, 0, 1024)
	n := 0
	for b.Loop() {
		if n%cap(texts) == 0 { // new last turns, not counted
			b.StopTimer()
			texts = texts[:0]
			for i := range cap(texts) {
				texts = append(texts, heads[i%conversations]+strings.Repeat(fmt.Sprintf("%09d ", n+i), turn/10))
			}
			b.StartTimer()
		}
		once(texts[n%cap(texts)])
		n++
	}
}
