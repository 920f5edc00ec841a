package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/warmroute/router/internal/workload"
	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/trie"
)

func chat(b *testing.B) *corpus {
	b.Helper()
	c, err := newCorpus(workload.Chat(workload.ChatConfig{}), true)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

func BenchmarkMatch(b *testing.B) {
	c := chat(b)
	for _, targets := range []int{8, 64, 512} {
		b.Run(fmt.Sprintf("targets=%d", targets), func(b *testing.B) {
			ids, at := c.place(targets)
			t, err := fill(c, ids, at)
			if err != nil {
				b.Fatal(err)
			}
			var cached []int
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				cached = t.Match(scope, c.text(c.Requests[i]), ids, cached)
				i = (i + 1) % len(c.Requests)
			}
		})
	}
}

func BenchmarkCompare(b *testing.B) {
	c := chat(b)
	texts, twins := c.texts(len(c.Requests)), c.twins(len(c.Requests))
	i := 0
	for b.Loop() {
		if !compare(texts[i], twins[i]) {
			b.Fatal("not equal")
		}
		i = (i + 1) % len(texts)
	}
}

func BenchmarkInsert(b *testing.B) {
	c := chat(b)
	ids, at := c.place(64)
	var t *trie.Trie
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if i == 0 { // a new trie each time round
			var err error
			if t, err = trie.New(trie.Config{}); err != nil {
				b.Fatal(err)
			}
		}
		r := c.Requests[i]
		t.Insert(scope, c.text(r), ids[at[r.Conversation]])
		i = (i + 1) % len(c.Requests)
	}
}

// BenchmarkRoute is all that a gateway does for a request but reading and sending
// it, on the workload's requests in their order.
func BenchmarkRoute(b *testing.B) {
	c := chat(b)
	for _, targets := range []int{8, 64, 512} {
		b.Run(fmt.Sprintf("targets=%d", targets), func(b *testing.B) {
			r, err := newRouter(targets)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if err := roundTrip(context.Background(), r, c.text(c.Requests[i])); err != nil {
					b.Fatal(err)
				}
				i = (i + 1) % len(c.Requests)
			}
		})
	}
}

func BenchmarkFromChat(b *testing.B) {
	c := chat(b)
	bodies := make([][]byte, 1000)
	total := 0
	for i := range bodies {
		bodies[i] = c.AppendBody(nil, c.Requests[5000+i], true)
		total += len(bodies[i])
	}
	b.SetBytes(int64(total / len(bodies)))
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, err := prompt.FromChat(bodies[i]); err != nil {
			b.Fatal(err)
		}
		i = (i + 1) % len(bodies)
	}
}
