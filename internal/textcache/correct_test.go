package textcache

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/trie"
)

// chat is a text of 4,000 bytes that shares three bytes with another at most.
func chat(n int) router.Prompt { return text(strings.Repeat(fmt.Sprintf("%04d", n), 1000)) }

// reported is the end of a request of 1,000 tokens.
func reported(cached int) router.Outcome {
	return router.Outcome{
		Stage: router.Finished, Status: 200, PromptTokens: 1000, CachedTokens: cached, CachedReported: true}
}

// believed counts the chats of which a holds all.
func (c *Cache) believed(chats int) (n int) {
	for i := range chats {
		if c.cached(chat(i), "a")[0] == 4000 {
			n++
		}
	}
	return n
}

// fill sends chats to a, which it computes, and one that is cached, so that a report of 0 means something.
func fill(t *testing.T, chats int, byHand bool) *Cache {
	c := newCache(t, trie.Config{})
	for i := range chats {
		c.record(decide(chat(i), "a", byHand), sentNow, firstSeen, reported(0))
	}
	c.record(decide(chat(chats-1), "a", byHand), sentNow, firstSeen, reported(990))
	return c
}

// What a report of one chat among 20 leaves of the others, which were sent in order.
func TestReportCorrects(t *testing.T) {
	for _, c := range []struct {
		name    string
		chat    int
		report  router.Outcome
		at, end int // how many chats are believed
	}{
		{"the oldest is denied", 0, reported(0), 17, 17},
		{"one of the older half is denied", 7, reported(0), 8, 13},
		{"the one before the last is denied: half stays", 18, reported(0), 9, 11},
		{"a third is left", 7, reported(330), 8, 13},
		{"most is left", 7, reported(700), 20, 20},
		{"all is confirmed", 7, reported(990), 20, 20},
		{"nothing is reported", 7, finished, 20, 20},
		{"it failed", 7, router.Outcome{Stage: router.Failed, Status: 500, CachedReported: true}, 20, 20},
		{"nothing but the status", 7, router.Outcome{Stage: router.Finished, Status: 200}, 20, 20},
		{"no number of tokens", 7, router.Outcome{Stage: router.Finished, CachedReported: true}, 8, 13},
		{"fewer than nothing", 7, router.Outcome{Stage: router.Finished, CachedReported: true, CachedTokens: -5}, 8, 13},
	} {
		for _, byHand := range []bool{false, true} {
			cache := fill(t, 20, byHand)
			cache.record(decide(chat(c.chat), "a", byHand), sentNow, c.report)
			if got := cache.believed(20); got < c.at || got > c.end {
				t.Errorf("%s, by hand %v: %d chats are believed, want %d to %d", c.name, byHand, got, c.at, c.end)
			}
			if n := cache.cached(chat(c.chat), "a")[0]; n != 4000 {
				t.Errorf("%s, by hand %v: %d bytes of its own are believed", c.name, byHand, n)
			}
		}
	}
}

// A request that shares a prompt with one under way denies nothing: the first was not
// computed when it was sent. Nor do small differences of small prompts.
func TestNoDenial(t *testing.T) {
	c := fill(t, 20, false)
	first, second := decide(chat(20), "a", false), decide(chat(20), "a", false)
	c.record(first, sentNow)
	c.record(second, sentNow)
	c.record(first, firstSeen, reported(0))
	c.record(second, firstSeen, reported(0))
	third := decide(chat(21), "a", false)
	c.record(third, sentNow, canceled)
	c.record(decide(chat(21), "a", false), sentNow, firstSeen, reported(0))
	for range 5 {
		c.record(decide(text(strings.Repeat("short", 90)), "a", false), sentNow, router.Outcome{
			Stage: router.Finished, PromptTokens: 112, CachedReported: true})
	}
	media := text(strings.Repeat("said before the picture ", 40) + "media:1234")
	c.record(decide(media, "a", false), sentNow, finished)
	c.record(decide(text(media.Text+"and so on"), "a", false), sentNow, router.Outcome{
		Stage: router.Finished, PromptTokens: 8000, CachedTokens: 240})
	if got := c.believed(22); got != 22 {
		t.Errorf("%d chats are believed, want 22", got)
	}
}

// One wrong report takes half at most, and what comes after it brings all back.
func TestOneWrongReport(t *testing.T) {
	c := fill(t, 40, false)
	c.record(decide(chat(39), "a", false), sentNow, reported(0))
	if got := c.believed(40); got < 19 { // of 40, rounded to whole chats
		t.Fatalf("%d chats are left", got)
	}
	for range 6 {
		for i := range 40 {
			c.record(decide(chat(i), "a", false), sentNow, firstSeen, reported(990))
		}
	}
	if got := c.believed(40); got != 40 {
		t.Errorf("%d chats are believed after all was confirmed", got)
	}
}

// Reports that are always 0 are not believed for long.
func TestAlwaysNothing(t *testing.T) {
	c := newCache(t, trie.Config{})
	for range 10 {
		for i := range 20 {
			c.record(decide(chat(i), "a", false), sentNow, firstSeen, reported(0))
		}
	}
	if got := c.believed(20); got != 20 || c.trie.Usage("a").Limit != 0 {
		t.Errorf("%d chats are believed, limit %d", got, c.trie.Usage("a").Limit)
	}
}

// Forget drops what was learned about a target.
func TestForgetLearned(t *testing.T) {
	c := fill(t, 20, false)
	c.record(decide(chat(3), "a", false), sentNow, reported(0))
	c.Forget("a")
	if _, ok := c.learned.last["a"]; ok || c.trie.Usage("a") != (trie.Usage{}) {
		t.Errorf("%+v is left", c.trie.Usage("a"))
	}
	for i := range 20 {
		c.record(decide(chat(i), "a", false), sentNow, finished)
	}
	if got := c.believed(20); got != 20 {
		t.Errorf("%d chats are believed after Forget", got)
	}
}

// Many requests at once, and many targets, leave little behind.
func TestLearnedIsBounded(t *testing.T) {
	c := fill(t, 20, false)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 3 * maxWaiting / 2 {
				id := fmt.Sprint(g, i)
				c.record(decide(text(fmt.Sprint("prompt ", g, i)), id, false), sentNow)
				if i%16 == 0 {
					c.record(decide(chat(i), "a", g%2 == 0), sentNow, firstSeen, reported(i%1000))
				}
			}
		})
	}
	wg.Wait()
	if n := len(c.learned.waiting) + len(c.learned.late); n > 2*maxWaiting {
		t.Errorf("%d prompts wait", n)
	}
	for i := range 2 * maxTargets {
		c.learned.of(fmt.Sprint(i))
	}
	if n := len(c.learned.last); n > maxTargets {
		t.Errorf("%d targets are remembered", n)
	}
}

// An engine that caches whole blocks of 512 tokens reports 0 of 500 that it has, and 512 of 1,000.
func TestLargeBlocksDenyNothing(t *testing.T) {
	c := newCache(t, trie.Config{})
	report := func(p router.Prompt) {
		tokens := len(p.Text) / 4
		held := c.cached(p, "a")[0] / 4
		c.record(decide(p, "a", false), sentNow, firstSeen, router.Outcome{Stage: router.Finished, Status: 200,
			PromptTokens: tokens, CachedTokens: min(held, tokens-1) / 512 * 512, CachedReported: true})
	}
	for _, size := range []int{4800, 8800} { // so that the block is known
		p := text(strings.Repeat("long", size/4))
		report(p)
		report(text(p.Text + "and more"))
	}
	for i := range 20 {
		report(chat(i))
	}
	for i := range 20 {
		p := text(chat(i).Text[:2000])
		report(p)
		report(text(p.Text + "goes on"))
	}
	if got := c.believed(20); got != 20 || c.trie.Usage("a").Limit != 0 {
		t.Errorf("%d chats are believed, limit %d", got, c.trie.Usage("a").Limit)
	}
}

// A record at its limit grows again, if nothing is denied, although nothing old is asked for.
func TestLimitIsProbed(t *testing.T) {
	c := fill(t, 20, false)
	c.record(decide(chat(15), "a", false), sentNow, reported(0))
	before := c.trie.Usage("a").Limit
	if before == 0 {
		t.Fatal("no limit")
	}
	for i := range 100 {
		c.record(decide(chat(100+i), "a", false), sentNow, firstSeen, reported(0))
	}
	if after := c.trie.Usage("a").Limit; after < before+before/8 {
		t.Errorf("the limit is %d after 100 new chats, %d before", after, before)
	}
}
