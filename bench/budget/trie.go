package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"
	"unsafe"

	"github.com/warmroute/router/bench/oracle"
	"github.com/warmroute/router/internal/workload"
	"github.com/warmroute/router/trie"
)

const scope = "bench"

// fill returns a trie that has been sent all of c's requests in their order.
func fill(c *corpus, ids []string, at []int) (*trie.Trie, error) {
	t, err := trie.New(trie.Config{})
	if err != nil {
		return nil, err
	}
	for _, r := range c.Requests {
		t.Insert(scope, c.text(r), ids[at[r.Conversation]])
	}
	return t, nil
}

// wrong compares the answers of t with the exact oracle, for every target, on
// every step-th request, and returns the number of answers that differ.
func wrong(c *corpus, t *trie.Trie, ids []string, at []int, step int) (wrong, checked int) {
	sets := make([]oracle.Texts, len(ids))
	for _, r := range c.Requests {
		sets[at[r.Conversation]].Add(c.text(r))
	}
	var cached []int
	check := func(text string) {
		cached = t.Match(scope, text, ids, cached)
		for i := range ids {
			checked++
			if cached[i] != sets[i].Longest(text) {
				wrong++
			}
		}
	}
	for i := 0; i < len(c.Requests); i += step {
		text := c.text(c.Requests[i])
		check(text)
		check(text + "more")             // the next
		check(text[:len(text)-300] + "") // ends inside a run
		check(text[:len(text)*2/3] + "\x00" + text[len(text)*2/3:])
	}
	return wrong, checked
}

// compare holds text against its copy, in one comparison for each piece.
//
//go:noinline
func compare(text string, t twin) bool {
	n := len(t.system)
	return len(text) == n+len(t.tail) && text[:n] == t.system && text[n:] == t.tail
}

// trieMatch measures Match of the first n of c's requests, and a comparison of
// the same bytes with a copy of them, in the same order.
func trieMatch(t *table, c *corpus, n, reps int, budgetRatio float64, budgetAbs time.Duration) error {
	t.say("trie, %s: Match", c.Name)
	ids, at := c.place(64)
	tr, err := fill(c, ids, at)
	if err != nil {
		return err
	}
	texts, twins := c.texts(n), c.twins(n)
	cached := make([]int, len(ids))
	equal := 0
	match := func(i int) { cached = tr.Match(scope, texts[i], ids, cached) }
	same := func(i int) {
		if compare(texts[i], twins[i]) {
			equal++
		}
	}
	// A gateway has just made the text when it matches it: the text is in the
	// processor's nearer caches, and the text that it is compared with is not.
	var made string
	hot := make([]byte, 0, 256<<10)
	fresh := func(call func(text string, i int)) time.Duration {
		s := newSamples(n)
		for i := range n {
			hot = append(hot[:0], texts[i]...)
			made = unsafe.String(unsafe.SliceData(hot), len(hot))
			start := time.Now()
			call(made, i)
			s.add(time.Since(start))
		}
		return s.p(.5)
	}
	var p99 time.Duration
	got := best(reps,
		func() time.Duration {
			s := pass(n, match)
			if p := s.p(.99); p99 == 0 || p < p99 {
				p99 = p
			}
			return s.p(.5)
		},
		func() time.Duration { return pass(n, same).p(.5) },
		func() time.Duration {
			return fresh(func(text string, _ int) { cached = tr.Match(scope, text, ids, cached) })
		},
		func() time.Duration {
			return fresh(func(text string, i int) {
				if compare(text, twins[i]) {
					equal++
				}
			})
		},
	)
	if equal != 2*n*reps {
		return fmt.Errorf("compare: %d of %d texts are equal to their copies", equal, 2*n*reps)
	}
	t.check("trie Match, "+c.Name+", 64 targets, p50", fmt.Sprintf("<= %.1fx comparing", budgetRatio),
		ratio(got[0], got[1]) <= budgetRatio,
		"%.2fx comparing (%.2f us against %.2f us; p99 %.2f us)", ratio(got[0], got[1]), us(got[0]), us(got[1]), us(p99))
	t.reading("  of a text just made", "%.2fx comparing (%.2f us against %.2f us)", ratio(got[2], got[3]), us(got[2]),
		us(got[3]))
	t.reading("  the budget as a time", "%.1f us", us(budgetAbs))
	allocs := mallocs(n, match)
	t.check("  allocations", "0", allocs < 0.01, "%.3f", allocs)
	bad, checked := wrong(c, tr, ids, at, max(1, n/100))
	t.check("  equal to the oracle, every target", "all", bad == 0, "%d of %d answers", checked-bad, checked)
	runtime.KeepAlive(tr)
	return nil
}

// trieInsert measures Insert of c's requests in their order into an empty trie,
// and once more when all are there.
func trieInsert(t *table, c *corpus, reps int) error {
	t.say("trie, %s: Insert", c.Name)
	ids, at := c.place(64)
	n := len(c.Requests)
	texts, twins := c.texts(n), c.twins(n)
	var tr *trie.Trie
	insert := func(i int) { tr.Insert(scope, texts[i], ids[at[c.Requests[i].Conversation]]) }
	cached := make([]int, len(ids))
	equal := 0
	var mean time.Duration
	var failed error
	got := best(reps,
		func() time.Duration {
			runtime.GC()
			if tr, failed = trie.New(trie.Config{}); failed != nil {
				return 0
			}
			s := pass(n, insert)
			if m := s.mean(); mean == 0 || m < mean {
				mean = m
			}
			return s.p(.5)
		},
		func() time.Duration { return pass(n, insert).p(.5) },
		func() time.Duration {
			return pass(n, func(i int) { cached = tr.Match(scope, texts[i], ids, cached) }).p(.5)
		},
		func() time.Duration {
			return pass(n, func(i int) {
				if compare(texts[i], twins[i]) {
					equal++
				}
			}).p(.5)
		},
	)
	if failed != nil {
		return failed
	}
	if equal != n*reps {
		return fmt.Errorf("compare: %d of %d texts are equal to their copies", equal, n*reps)
	}
	before := tr.Stats()
	for i := range n {
		insert(i)
	}
	t.check("trie Insert, chat, p50", "<= 2.3x comparing (2.5 us)", ratio(got[0], got[3]) <= 2.3,
		"%.2fx comparing (%.2f us against %.2f us; mean %.2f us)", ratio(got[0], got[3]), us(got[0]), us(got[3]), us(mean))
	t.check("  of a prompt that is there", "a read: <= 1.15x Match", ratio(got[1], got[2]) <= 1.15,
		"%.2fx Match (%.2f us against %.2f us)", ratio(got[1], got[2]), us(got[1]), us(got[2]))
	t.check("  and grows nothing", "equal Stats", tr.Stats() == before, "%d nodes, %d prompts", before.Nodes,
		before.Prompts)
	return nil
}

// trieMemory measures the memory of a trie with all of c's requests.
func trieMemory(t *table, c *corpus) error {
	t.say("trie, %s: memory", c.Name)
	ids, at := c.place(64)
	a0, u0 := heap()
	tr, err := fill(c, ids, at)
	if err != nil {
		return err
	}
	a1, u1 := heap()
	st := tr.Stats()
	// The texts are the corpus's own memory: a trie that kept them instead of
	// copying would hide its size here, and pin the request in a gateway.
	const mb = 1e6
	alloc, inuse := float64(a1)-float64(a0), float64(u1)-float64(u0)
	t.check("trie memory, chat", "<= 24 MB", max(alloc, inuse) <= 24*mb,
		"%.1f MB of objects, %.1f MB of spans for %.1f MB of distinct text in %d nodes", alloc/mb, inuse/mb,
		float64(st.Bytes)/mb, st.Nodes)
	runtime.KeepAlive(tr)
	return nil
}

// trieGrowth measures how Match grows with the number of targets.
func trieGrowth(t *table, c *corpus, reps int) error {
	t.say("trie, %s: growth with the targets", c.Name)
	sizes := []int{8, 64, 512}
	var measures []func() time.Duration
	for _, targets := range sizes {
		ids, at := c.place(targets)
		tr, err := fill(c, ids, at)
		if err != nil {
			return err
		}
		cached := make([]int, targets)
		// The same number of different texts for all, in an order of its own.
		order := rand.New(rand.NewPCG(9, 9)).Perm(len(c.Requests))[:4000]
		measures = append(measures, func() time.Duration {
			return pass(len(order), func(i int) {
				var r workload.Request = c.Requests[order[i]]
				cached = tr.Match(scope, c.text(r), ids, cached)
			}).p(.5)
		})
	}
	got := best(reps, measures...)
	a, b := ratio(got[1], got[0]), ratio(got[2], got[0])
	t.check("trie Match, chat, 8 to 64 targets", "grows < 2x", a < 2, "%.2fx (%.2f, %.2f us)", a, us(got[0]), us(got[1]))
	t.check("  8 to 512 targets", "grows < 4x", b < 4, "%.2fx (%.2f us)", b, us(got[2]))
	return nil
}
