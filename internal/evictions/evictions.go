// Package evictions plays fleets with caches that evict, in virtual time. Its scenes compare the beliefs of a strategy
// with the caches.
package evictions

import (
	"container/list"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/warmroute/router"
	"github.com/warmroute/router/trie"
)

// blockBytes is the text of a block of 16 tokens.
const blockBytes = 64

// lruCache is an engine's cache as one would write it without caring for speed: blocks, of which
// it evicts the least recently used, the end of a prompt before its beginning.
type lruCache struct {
	blocks int
	order  *list.List // of blocks, the least recently used first
	at     map[blockKey]*list.Element
}

// blockKey is one block of one chat; a chat shares nothing with others.
type blockKey struct{ chat, block int }

func newLRU(blocks int) *lruCache {
	return &lruCache{blocks: blocks, order: list.New(), at: make(map[blockKey]*list.Element)}
}

// cached returns the leading bytes of the chat that are in the cache.
func (l *lruCache) cached(chat int) int {
	n := 0
	for l.at[blockKey{chat, n}] != nil {
		n++
	}
	return n * blockBytes
}

func (l *lruCache) use(chat, bytes int) {
	for i := bytes/blockBytes - 1; i >= 0; i-- {
		k := blockKey{chat, i}
		if e := l.at[k]; e != nil {
			l.order.MoveToBack(e)
		} else {
			l.at[k] = l.order.PushBack(k)
		}
	}
	for l.order.Len() > l.blocks {
		k := l.order.Remove(l.order.Front()).(blockKey)
		delete(l.at, k)
	}
}

// Evidence is what the strategy learns of the caches.
type Evidence uint8

// The kinds of Evidence.
const (
	Nothing Evidence = iota // the prompts that it sent
	Usage                   // and the cached tokens of each reply
	Caches                  // the caches themselves, before each choice: better than any events
)

// Scene is a fleet in virtual time with caches that may be smaller than the chats.
type Scene struct {
	Seed     uint64
	Replicas int
	Blocks   int // of each cache
	Chats    int
	Turns    int  // of all chats together, after the first of each
	Users    int  // at once
	Size     int  // bytes of a chat's first prompt
	More     int  // bytes by which each turn grows
	Ordered  bool // chats come in turn, else at random
	Alone    bool // only the first replica is there for the first turns
	Restart  bool // the first replica loses its cache halfway, and nobody says so
	Foreign  int  // bytes that another gateway sends to the first replica with each request
	Silent   bool // the engines report 0, whatever is cached
}

// Result is the outcome of a Scene.
type Result struct {
	Cached float64 // share of the turns' text that was cached
	TTFT   float64 // mean of the turns, in milliseconds
	Turns  []int   // of each replica
}

// Play sends the chats by s. With Caches, record is the one that s reads, and is made to say what the caches hold.
func (e Scene) Play(s router.Strategy, record *trie.Trie, evidence Evidence) (Result, error) {
	r := rand.New(rand.NewPCG(e.Seed, 77))
	type request struct {
		d        router.Decision
		chat, at int
		sent     float64
		cached   int
		counts   bool
	}
	var (
		now     float64 // in milliseconds
		texts   = make([]string, e.Chats)
		size    = make([]int, e.Chats)
		engines = make([]*lruCache, e.Replicas)
		queue   = make([][]*request, e.Replicas) // waiting for prefill, the first is being computed
		until   = make([]float64, e.Replicas)    // when the first of queue is done
		load    = make([]router.Load, e.Replicas)
		busy    = make(map[int]bool)
		decode  []*request // with their end in sent
		ends    []float64
		out     = Result{Turns: make([]int, e.Replicas)}
		begun   = 0
		next    = 0
		alien   = e.Chats
		held    = 0
		length  = 0
		waited  float64
		failed  error
	)
	for i := range texts {
		texts[i] = Words(r, e.Size+(e.Turns/e.Chats+e.Turns)*e.More)
		size[i] = e.Size
	}
	for i := range engines {
		engines[i] = newLRU(e.Blocks)
		load[i].Known = true
	}
	start := func(at int) { // the prefill of the first in the queue
		q := queue[at][0]
		q.cached = min(engines[at].cached(q.chat), size[q.chat]-1)
		until[at] = now + float64(size[q.chat]-q.cached)/4*0.2
	}
	mirror := func(ids []router.Target) {
		for i, l := range engines {
			record.Forget(ids[i].ID)
			for c := range texts {
				if n := min(l.cached(c), size[c]); n > 0 {
					record.Insert("m", texts[c][:n], ids[i].ID)
				}
			}
			for _, q := range queue[i] { // it will hold them
				record.Insert("m", q.d.Prompt.Text, ids[i].ID)
			}
		}
	}
	send := func(chat, up int, counts bool) {
		ts := make([]router.Target, e.Replicas)
		for i := range ts {
			ts[i] = router.Target{ID: fmt.Sprint("replica ", i), Load: load[i]}
			if i >= up {
				ts[i].State = router.Cooling
			}
		}
		if evidence == Caches {
			mirror(ts)
		}
		d, err := s.Pick(context.Background(), router.Prompt{Model: "m", Text: texts[chat][:size[chat]]}, ts)
		if err != nil {
			failed = err
			return
		}
		s.Record(d, router.Outcome{Stage: router.Sent})
		at := slices.IndexFunc(ts, func(t router.Target) bool { return t.ID == d.Target.ID })
		q := &request{d: d, chat: chat, at: at, sent: now, counts: counts}
		busy[chat] = true
		load[at].InFlight++
		load[at].Prefill += (d.Length - d.Cached) / 4
		queue[at] = append(queue[at], q)
		if e.Foreign > 0 && counts {
			engines[0].use(alien, e.Foreign)
			alien++
		}
		if len(queue[at]) == 1 {
			start(at)
		}
		if counts {
			out.Turns[at]++
		}
	}
	// step takes the next event.
	step := func() {
		at, end := -1, -1
		best := 0.0
		for i := range queue {
			if len(queue[i]) > 0 && (at < 0 || until[i] < best) {
				at, best = i, until[i]
			}
		}
		for i := range decode {
			if at < 0 && end < 0 || ends[i] < best {
				end, best = i, ends[i]
			}
		}
		now = best
		if end >= 0 {
			q := decode[end]
			decode, ends = slices.Delete(decode, end, end+1), slices.Delete(ends, end, end+1)
			load[q.at].InFlight--
			delete(busy, q.chat)
			o := router.Outcome{Stage: router.Finished, Status: 200, PromptTokens: size[q.chat] / 4}
			if evidence == Usage {
				o.CachedTokens, o.CachedReported = q.cached/4, true
				if e.Silent {
					o.CachedTokens = 0
				}
			}
			s.Record(q.d, o)
			size[q.chat] += e.More
			return
		}
		q := queue[at][0]
		queue[at] = queue[at][1:]
		engines[at].use(q.chat, size[q.chat])
		load[at].Prefill -= (q.d.Length - q.d.Cached) / 4
		s.Record(q.d, router.Outcome{Stage: router.FirstToken})
		if q.counts {
			held += q.cached
			length += size[q.chat]
			waited += now - q.sent
		}
		decode, ends = append(decode, q), append(ends, now+30)
		if len(queue[at]) > 0 {
			start(at)
		}
	}
	for failed == nil && (begun < e.Chats || len(busy) > 0) {
		up := e.Replicas
		if e.Alone {
			up = 1
		}
		for failed == nil && begun < e.Chats && len(busy) < e.Users {
			send(begun, up, false)
			begun++
		}
		if failed == nil {
			step()
		}
	}
	for sent := 0; failed == nil && (sent < e.Turns || len(busy) > 0); {
		for failed == nil && sent < e.Turns && len(busy) < e.Users {
			chat := next % e.Chats
			if !e.Ordered {
				chat = r.IntN(e.Chats)
			}
			for busy[chat] {
				chat = (chat + 1) % e.Chats
			}
			next++
			if e.Restart && sent == e.Turns/2 {
				engines[0] = newLRU(e.Blocks)
			}
			send(chat, e.Replicas, true)
			sent++
		}
		if failed == nil {
			step()
		}
	}
	out.Cached, out.TTFT = float64(held)/float64(length), waited/float64(e.Turns)
	return out, failed
}

// Scenes returns four replicas with caches for a tenth to twice of the text that is sent, a fleet that grows from one
// replica to four, a restart that nobody reports, and another gateway.
func Scenes() []Named {
	base := Scene{Replicas: 4, Chats: 48, Turns: 480, Users: 8, Size: 4000, More: 120}
	sized := func(capacity float64) Scene {
		e := base
		e.Blocks = int(capacity * float64(e.Chats*(e.Size+5*e.More)) / float64(e.Replicas*blockBytes))
		return e
	}
	alone := Scene{Replicas: 4, Chats: 24, Turns: 192, Users: 8, Size: 4000, More: 120, Blocks: 600, Alone: true}
	ordered, restart, foreign := alone, sized(1.5), sized(1.5)
	ordered.Ordered, restart.Restart, foreign.Foreign = true, true, 4000
	return []Named{
		{"capacity 0.1", sized(0.1)}, {"capacity 0.25", sized(0.25)}, {"capacity 0.5", sized(0.5)},
		{"capacity 1", sized(1)}, {"capacity 2", sized(2)},
		{"1 replica, then 4", alone}, {"1 replica, then 4, in order", ordered},
		{"restart", restart}, {"another gateway", foreign},
	}
}

// Named is a Scene with a name.
type Named struct {
	Name  string
	Scene Scene
}

// Words returns a text of n bytes or a little more.
func Words(r *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		for range 2 + r.IntN(8) {
			b.WriteByte(byte('a' + r.IntN(26)))
		}
		b.WriteByte(' ')
	}
	return b.String()
}
