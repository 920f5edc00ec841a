package strategy_test

import (
	"container/list"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/strategy/cacheaware"
	"github.com/warmroute/router/strategy/leastwork"
	"github.com/warmroute/router/strategy/pipeline"
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

// Evidence that the strategy under test gets.
const (
	nothing = iota // the prompts that it sent
	usage          // and the cached tokens of each reply
	oracle         // the caches themselves, before each choice
)

// evictions is a fleet in virtual time with caches that may be smaller than the chats.
type evictions struct {
	seed     uint64
	replicas int
	blocks   int // of each cache
	chats    int
	turns    int  // of all chats together, after the first of each
	users    int  // at once
	size     int  // bytes of a chat's first prompt
	more     int  // bytes by which each turn grows
	ordered  bool // chats come in turn, else at random
	alone    bool // only the first replica is there for the first turns
	restart  bool // the first replica loses its cache halfway, and nobody says so
	foreign  int  // bytes that another gateway sends to the first replica with each request
	silent   bool // the engines report 0, whatever is cached
}

type evicted struct {
	cached float64 // share of the turns' text that was cached
	ttft   float64 // mean of the turns, in milliseconds
	turns  []int   // of each replica
}

// play sends the chats by s with this record.
func (e evictions) play(t *testing.T, s router.Strategy, record *trie.Trie, evidence int) evicted {
	t.Helper()
	r := rand.New(rand.NewPCG(e.seed, 77))
	type request struct {
		d        router.Decision
		chat, at int
		sent     float64
		cached   int
		counts   bool
	}
	var (
		now     float64 // in milliseconds
		texts   = make([]string, e.chats)
		size    = make([]int, e.chats)
		engines = make([]*lruCache, e.replicas)
		queue   = make([][]*request, e.replicas) // waiting for prefill, the first is being computed
		until   = make([]float64, e.replicas)    // when the first of queue is done
		load    = make([]router.Load, e.replicas)
		busy    = make(map[int]bool)
		decode  []*request // with their end in sent
		ends    []float64
		out     = evicted{turns: make([]int, e.replicas)}
		begun   = 0
		next    = 0
		alien   = e.chats
		held    = 0
		length  = 0
		waited  float64
	)
	for i := range texts {
		texts[i] = words(r, e.size+(e.turns/e.chats+e.turns)*e.more)
		size[i] = e.size
	}
	for i := range engines {
		engines[i] = newLRU(e.blocks)
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
		ts := make([]router.Target, e.replicas)
		for i := range ts {
			ts[i] = router.Target{ID: fmt.Sprint("replica ", i), Load: load[i]}
			if i >= up {
				ts[i].State = router.Cooling
			}
		}
		if evidence == oracle {
			mirror(ts)
		}
		d, err := s.Pick(context.Background(), router.Prompt{Model: "m", Text: texts[chat][:size[chat]]}, ts)
		if err != nil {
			t.Fatal(err)
		}
		s.Record(d, router.Outcome{Stage: router.Sent})
		at := slices.IndexFunc(ts, func(t router.Target) bool { return t.ID == d.Target.ID })
		q := &request{d: d, chat: chat, at: at, sent: now, counts: counts}
		busy[chat] = true
		load[at].InFlight++
		load[at].Prefill += (d.Length - d.Cached) / 4
		queue[at] = append(queue[at], q)
		if e.foreign > 0 && counts {
			engines[0].use(alien, e.foreign)
			alien++
		}
		if len(queue[at]) == 1 {
			start(at)
		}
		if counts {
			out.turns[at]++
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
			if evidence == usage {
				o.CachedTokens, o.CachedReported = q.cached/4, true
				if e.silent {
					o.CachedTokens = 0
				}
			}
			s.Record(q.d, o)
			size[q.chat] += e.more
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
	for begun < e.chats || len(busy) > 0 {
		up := e.replicas
		if e.alone {
			up = 1
		}
		for begun < e.chats && len(busy) < e.users {
			send(begun, up, false)
			begun++
		}
		step()
	}
	for sent := 0; sent < e.turns || len(busy) > 0; {
		for sent < e.turns && len(busy) < e.users {
			chat := next % e.chats
			if !e.ordered {
				chat = r.IntN(e.chats)
			}
			for busy[chat] {
				chat = (chat + 1) % e.chats
			}
			next++
			if e.restart && sent == e.turns/2 {
				engines[0] = newLRU(e.blocks)
			}
			send(chat, e.replicas, true)
			sent++
		}
		step()
	}
	out.cached, out.ttft = float64(held)/float64(length), waited/float64(e.turns)
	return out
}

// textStrategies are made over a trie, with random numbers from seed.
var textStrategies = []struct {
	name string
	new  func(*testing.T, *trie.Trie) router.Strategy
}{
	{"least_work", func(t *testing.T, tr *trie.Trie) router.Strategy {
		s, err := leastwork.New(leastwork.Config{Trie: tr, Rand: rand.New(rand.NewPCG(1, 2)).Uint64})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}},
	{"cache_aware", func(t *testing.T, tr *trie.Trie) router.Strategy {
		s, err := cacheaware.New(cacheaware.Config{Trie: tr, Rand: rand.New(rand.NewPCG(1, 2)).Uint64})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}},
	{"pipeline", func(t *testing.T, tr *trie.Trie) router.Strategy {
		s, err := pipeline.New(pipeline.Config{Trie: tr, Rand: rand.New(rand.NewPCG(1, 2)).Uint64})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}},
}

// mean plays e with some seeds.
func (e evictions) mean(t *testing.T, make func(*testing.T, *trie.Trie) router.Strategy, evidence int) evicted {
	t.Helper()
	const seeds = 2
	var sum evicted
	for e.seed = range uint64(seeds) {
		record, err := trie.New(trie.Config{})
		if err != nil {
			t.Fatal(err)
		}
		got := e.play(t, make(t, record), record, evidence)
		sum.cached += got.cached / seeds
		sum.ttft += got.ttft / seeds
		sum.turns = got.turns
	}
	return sum
}

// TestReportsAgainstCaches plays fleets with caches of a tenth of the chats and more, one that grows, one that
// restarts, and one that a second gateway uses. With reported cached tokens each strategy comes near to the same one
// that sees the caches. In much smaller caches no choice saves much.
func TestReportsAgainstCaches(t *testing.T) {
	base := evictions{replicas: 4, chats: 48, turns: 480, users: 8, size: 4000, more: 120}
	sized := func(capacity float64) evictions {
		e := base
		e.blocks = int(capacity * float64(e.chats*(e.size+5*e.more)) / float64(e.replicas*blockBytes))
		return e
	}
	alone := evictions{replicas: 4, chats: 24, turns: 192, users: 8, size: 4000, more: 120, blocks: 600, alone: true}
	ordered, restart, foreign := alone, sized(1.5), sized(1.5)
	ordered.ordered, restart.restart, foreign.foreign = true, true, 4000
	for _, c := range []struct {
		name string
		e    evictions
		near float64 // share of the oracle's cached share
	}{
		{"capacity 0.1", sized(0.1), 0}, // so little is cached that it is a matter of chance
		{"capacity 0.25", sized(0.25), 0.8},
		{"capacity 0.5", sized(0.5), 0.88},
		{"capacity 1", sized(1), 0.88},
		{"capacity 2", sized(2), 0.95},
		{"begun alone", alone, 0.8},
		{"begun alone, in order", ordered, 0.8},
		{"restart", restart, 0.9},
		{"another gateway", foreign, 0.85},
	} {
		for _, s := range textStrategies {
			before, got, best := c.e.mean(t, s.new, nothing), c.e.mean(t, s.new, usage), c.e.mean(t, s.new, oracle)
			line := fmt.Sprintf("%s, %s: cached %.3f, %.0f ms to the first token, %v; without reports %.3f, %.0f ms, %v; "+
				"with the caches %.3f, %.0f ms, %v", c.name, s.name, got.cached, got.ttft, got.turns,
				before.cached, before.ttft, before.turns, best.cached, best.ttft, best.turns)
			t.Log(line)
			if got.cached < min(c.near*best.cached, best.cached-0.04) {
				t.Error("cached too little: " + line)
			}
			if got.ttft > 1.15*max(before.ttft, best.ttft)+60 {
				t.Error("too late: " + line)
			}
		}
	}
}

// TestReportsOfNothing has engines that report 0 whatever is cached: it costs the beginning alone.
func TestReportsOfNothing(t *testing.T) {
	e := evictions{replicas: 4, chats: 48, turns: 960, users: 8, size: 4000, more: 120, blocks: 2000, silent: true}
	for _, s := range textStrategies {
		before, got := e.mean(t, s.new, nothing), e.mean(t, s.new, usage)
		if got.cached < 0.85*before.cached {
			t.Errorf("%s: cached %.3f, without reports %.3f", s.name, got.cached, before.cached)
		}
	}
}
