package textcache

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/trie"
)

func newCache(t testing.TB, cfg trie.Config) *Cache {
	t.Helper()
	tr, err := trie.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return New(tr)
}

func text(s string) router.Prompt { return router.Prompt{Model: "m", Text: s} }

// cached returns what each of ids holds of p, in the unit of decisions.
func (c *Cache) cached(p router.Prompt, ids ...string) []int {
	k := KeyOf(&p)
	var room Targets
	ts := make([]router.Target, len(ids))
	for i, id := range ids {
		ts[i].ID = id
	}
	c.Look(&k, ts, &room)
	out := make([]int, len(ids))
	for i, n := range room.Cached {
		out[i] = k.Units(n)
	}
	return out
}

func (c *Cache) warmed(ids ...string) []int {
	room := Targets{IDs: ids}
	c.LookWarmed(&room)
	return room.Warmed
}

// decide returns a decision for id, with a memo or made by hand.
func decide(p router.Prompt, id string, byHand bool) router.Decision {
	d := router.Decision{Prompt: p, Target: router.Target{ID: id}}
	if !byHand {
		d.Memo = NewMemo(KeyOf(&p))
	}
	return d
}

func (c *Cache) record(d router.Decision, outcomes ...router.Outcome) {
	m, _ := d.Memo.(*Memo)
	for _, o := range outcomes {
		c.Record(&d, m, &o)
	}
}

var (
	sentNow   = router.Outcome{Stage: router.Sent}
	firstSeen = router.Outcome{Stage: router.FirstToken}
	finished  = router.Outcome{Stage: router.Finished}
	failed    = router.Outcome{Stage: router.Failed}
	canceled  = router.Outcome{Stage: router.Canceled}
	replied   = router.Outcome{Stage: router.Finished, Reply: "+reply"}
)

// What one request leaves of "prompt" and of its reply, for each order of calls,
// with a memo and without.
func TestRecord(t *testing.T) {
	cutReply := router.Outcome{Stage: router.Failed, Reply: "+reply"}
	for _, c := range []struct {
		name         string
		calls        []router.Outcome
		want, warmed int
	}{
		{"nothing", nil, 0, 0},
		{"sent", []router.Outcome{sentNow}, 6, 1},
		{"finished", []router.Outcome{sentNow, firstSeen, finished}, 6, 1},
		{"no first token seen", []router.Outcome{sentNow, finished}, 6, 1},
		{"reply", []router.Outcome{sentNow, replied}, 12, 1},
		{"reply, then canceled", []router.Outcome{sentNow, firstSeen, {Stage: router.Canceled, Reply: "+re"}}, 9, 1},
		{"reply, then failed", []router.Outcome{sentNow, firstSeen, cutReply}, 12, 1},
		{"failed", []router.Outcome{sentNow, failed}, 0, 0},
		{"turned down", []router.Outcome{sentNow, {Stage: router.Failed, Status: 400}}, 0, 0},
		{"failed after the first token", []router.Outcome{sentNow, firstSeen, failed}, 6, 1},
		{"failed after tokens that nobody told of", []router.Outcome{sentNow, {Stage: router.Failed, OutputTokens: 3}}, 6, 1},
		{"failed after a reply that nobody told of", []router.Outcome{sentNow, cutReply}, 12, 1},
		{"canceled", []router.Outcome{sentNow, canceled}, 6, 1},
		{"failed twice", []router.Outcome{sentNow, failed, failed}, 0, 0},
		{"replied twice", []router.Outcome{sentNow, replied, replied}, 12, 1},
		{"finished, then failed", []router.Outcome{sentNow, finished, failed}, 6, 1},
		{"failed, then first token", []router.Outcome{sentNow, failed, firstSeen, finished}, 0, 0},
		{"first token twice, then failed", []router.Outcome{sentNow, firstSeen, firstSeen, failed}, 6, 1},
		{"never sent", []router.Outcome{firstSeen, failed}, 0, 0},
		{"never sent, reply", []router.Outcome{firstSeen, replied}, 0, 0},
		{"ended before it was sent", []router.Outcome{replied, sentNow}, 6, 1},
		{"no stage, unknown stage", []router.Outcome{{Reply: "+reply"}, {Stage: 77, Reply: "+reply"}}, 0, 0},
		{"no stage between", []router.Outcome{sentNow, {}, {Stage: 77}, failed}, 0, 0},
	} {
		for _, byHand := range []bool{false, true} {
			cache := newCache(t, trie.Config{})
			cache.record(decide(text("prompt"), "a", byHand), c.calls...)
			got := append(cache.cached(text("prompt+reply"), "a", "b"), cache.warmed("a", "b")...)
			if diff := cmp.Diff([]int{c.want, 0, c.warmed, 0}, got); diff != "" {
				t.Errorf("%s, by hand %v: cached and warmed (-want +got)\n%s", c.name, byHand, diff)
			}
		}
	}
}

// A failure takes back what its own request added, and nothing of another's.
func TestFailureLeavesOthersAlone(t *testing.T) {
	for _, byHand := range []bool{false, true} {
		c := newCache(t, trie.Config{})
		one, two := decide(text("shared+one"), "a", byHand), decide(text("shared+two"), "a", byHand)
		again, there := decide(text("shared+one"), "a", byHand), decide(text("shared+one"), "b", byHand)
		for _, d := range []router.Decision{one, two, again, there} {
			c.record(d, sentNow)
		}
		for i, step := range []struct {
			fails router.Decision
			want  []int
		}{{one, []int{10, 10}}, {again, []int{7, 10}}, {again, []int{7, 10}}, {two, []int{0, 10}}, {there, []int{0, 0}}} {
			c.record(step.fails, failed)
			if diff := cmp.Diff(step.want, c.cached(text("shared+one"), "a", "b")); diff != "" {
				t.Errorf("by hand %v, after failure %d: (-want +got)\n%s", byHand, i+1, diff)
			}
		}
	}
}

// Who is sent a prompt that another request of the same kind extended by a reply
// still takes back its own alone.
func TestFailureAfterAnothersReply(t *testing.T) {
	c := newCache(t, trie.Config{})
	a, b := decide(text("prompt"), "a", false), decide(text("prompt"), "a", false)
	c.record(a, sentNow)
	c.record(b, sentNow)
	c.record(a, replied)
	c.record(b, failed)
	if got := c.cached(text("prompt+reply"), "a"); got[0] != 12 {
		t.Errorf("cached %d, want 12", got[0])
	}
	if got := c.warmed("a"); got[0] != 1 {
		t.Errorf("%d prompts, want 1", got[0])
	}
}

// A Forget between Sent and the end: nothing is taken back that another request
// added since, no reply is added to a removed prompt, and other targets are not
// affected.
func TestForgetBetween(t *testing.T) {
	for _, byHand := range []bool{false, true} {
		c := newCache(t, trie.Config{})
		fails, replies := decide(text("prompt"), "a", byHand), decide(text("question"), "a", byHand)
		other, answer := decide(text("prompt"), "b", byHand), decide(text("question"), "b", byHand)
		for _, d := range []router.Decision{fails, replies, other, answer} {
			c.record(d, sentNow)
		}
		c.Forget("a")
		if got := c.cached(text("prompt"), "a"); got[0] != 0 {
			t.Fatalf("cached %d after Forget", got[0])
		}
		since := decide(text("prompt"), "a", false)
		c.record(since, sentNow)
		for _, d := range []router.Decision{fails, other} {
			c.record(d, failed)
		}
		for _, d := range []router.Decision{replies, answer} {
			c.record(d, replied)
		}
		if diff := cmp.Diff([]int{6, 0}, c.cached(text("prompt"), "a", "b")); diff != "" {
			t.Errorf("by hand %v: prompt (-want +got)\n%s", byHand, diff)
		}
		if diff := cmp.Diff([]int{0, 14}, c.cached(text("question+reply"), "a", "b")); diff != "" {
			t.Errorf("by hand %v: question (-want +got)\n%s", byHand, diff)
		}
		c.record(since, failed)
		if got := c.cached(text("prompt"), "a"); got[0] != 0 {
			t.Errorf("by hand %v: what was sent after Forget is not taken back", byHand)
		}
	}
}

// More Forgets than are remembered: what was under way may have been forgotten,
// so nothing is taken back; what is sent later is as ever.
func TestManyForgets(t *testing.T) {
	c := newCache(t, trie.Config{})
	before := decide(text("before"), "a", false)
	c.record(before, sentNow)
	for i := range 5000 { // of which the log keeps 4,096
		c.Forget(fmt.Sprint("gone ", i))
	}
	after := decide(text("after"), "a", false)
	c.record(after, sentNow)
	c.record(before, failed)
	c.record(after, failed)
	if got := c.cached(text("before"), "a"); got[0] != 6 {
		t.Errorf("cached %d, want 6", got[0])
	}
	if got := c.cached(text("after"), "a"); got[0] != 0 {
		t.Errorf("cached %d, want 0", got[0])
	}
}

// What was made by hand and never ends is bounded, the oldest goes first, and
// what is used stays.
func TestManyByHand(t *testing.T) {
	c := newCache(t, trie.Config{})
	first, used := decide(text("first"), "a", true), decide(text("used"), "a", true)
	c.record(first, sentNow)
	c.record(used, sentNow)
	for i := range 3 * maxByHand {
		c.record(decide(text(fmt.Sprint("x", i)), "b", true), sentNow)
		if i%1000 == 0 {
			c.record(used, sentNow)
			c.record(used, finished)
		}
	}
	if n := len(c.byHand.open) + len(c.byHand.older); n > 2*maxByHand {
		t.Errorf("%d requests are kept", n)
	}
	last := decide(text(fmt.Sprint("x", 3*maxByHand-1)), "b", true)
	older := decide(text(fmt.Sprint("x", 3*maxByHand-maxByHand)), "b", true)
	for _, d := range []router.Decision{first, used, last, older} {
		c.record(d, failed)
	}
	for _, want := range []struct {
		p      router.Prompt
		cached []int
	}{{text("first"), []int{5, 0}}, {last.Prompt, []int{0, len(last.Prompt.Text) - 1}},
		{older.Prompt, []int{0, len(older.Prompt.Text) - 1}}} {
		if diff := cmp.Diff(want.cached, c.cached(want.p, "a", "b")); diff != "" {
			t.Errorf("%q: (-want +got)\n%s", want.p.Text, diff)
		}
	}
	c.Forget("b")
	for _, m := range []map[uint64]*count{c.byHand.open, c.byHand.older} {
		for _, k := range m {
			if k.id == "b" {
				t.Fatal("a forgotten target's requests are kept")
			}
		}
	}
}

// Equal requests made by hand are distinguished by their number.
func TestEqualByHand(t *testing.T) {
	for _, c := range []struct {
		calls []router.Outcome
		want  int
	}{
		{[]router.Outcome{sentNow, sentNow, failed, failed}, 0},
		{[]router.Outcome{sentNow, sentNow, failed, finished}, 6},
		{[]router.Outcome{sentNow, sentNow, firstSeen, failed, failed}, 6},
		{[]router.Outcome{sentNow, firstSeen, firstSeen, failed, sentNow, failed}, 6},
		{[]router.Outcome{sentNow, firstSeen, firstSeen, sentNow, finished, failed}, 6},
		{[]router.Outcome{sentNow, failed, failed, sentNow, failed}, 0},
	} {
		cache := newCache(t, trie.Config{})
		cache.record(decide(text("prompt"), "a", true), c.calls...)
		if got := cache.cached(text("prompt"), "a"); got[0] != c.want {
			t.Errorf("%v: cached %d, want %d", c.calls, got[0], c.want)
		}
		if n := len(cache.byHand.open); n != 0 {
			t.Errorf("%v: %d requests are kept", c.calls, n)
		}
	}
}

func TestTokens(t *testing.T) {
	c := newCache(t, trie.Config{})
	p := router.Prompt{Model: "m", Tokens: []uint32{1, 2, 0x01010101}}
	c.record(decide(p, "a", false), sentNow, replied)
	k := KeyOf(&p)
	if k.Units(k.Size()) != 3 || k.Unit() != router.Tokens {
		t.Errorf("length %d %s", k.Units(k.Size()), k.Unit())
	}
	for _, w := range []struct {
		name string
		p    router.Prompt
		want int
	}{
		{"itself, the reply's text is not tokens", p, 3},
		{"a token that shares three bytes", router.Prompt{Model: "m", Tokens: []uint32{1, 2, 0x02010101}}, 2},
		{"a token that shares the other three", router.Prompt{Model: "m", Tokens: []uint32{1, 2, 0x01010102}}, 2},
		{"another model", router.Prompt{Model: "n", Tokens: p.Tokens}, 0},
		{"another salt", router.Prompt{Model: "m", Salt: "s", Tokens: p.Tokens}, 0},
		{"the same bytes as text", text(strings.Clone(k.text)), 0},
		{"the same bytes as text of a model that looks like the scope",
			router.Prompt{Model: "\x00tm", Text: strings.Clone(k.text)}, 0},
		{"a text beside the tokens", router.Prompt{Model: "m", Text: "hello", Tokens: p.Tokens}, 0},
	} {
		if got := c.cached(w.p, "a"); got[0] != w.want {
			t.Errorf("%s: cached %d, want %d", w.name, got[0], w.want)
		}
	}
}

// The caller may use its tokens again once the request has ended.
func TestTokensAreNotKept(t *testing.T) {
	c := newCache(t, trie.Config{})
	tokens := []uint32{7, 8, 9}
	c.record(decide(router.Prompt{Tokens: tokens}, "a", false), sentNow, finished)
	clear(tokens)
	if got := c.cached(router.Prompt{Tokens: []uint32{7, 8, 9}}, "a"); got[0] != 3 {
		t.Errorf("cached %d, want 3", got[0])
	}
}

// Everything at once, for the race detector; in the end all failed, so nothing is
// left.
func TestAtOnce(t *testing.T) {
	c := newCache(t, trie.Config{})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 300 {
				d := decide(text(fmt.Sprint("prompt ", i%7, i)), fmt.Sprint(i%5), g%2 == 0)
				c.record(d, sentNow)
				c.cached(d.Prompt, "0", "1", "2", "3", "4")
				if i%50 == 0 {
					c.Forget("elsewhere")
				}
				c.record(d, failed)
			}
		})
	}
	wg.Wait()
	if s := c.trie.Stats(); s.Prompts != 0 || s.Bytes != 0 {
		t.Errorf("left over: %+v", s)
	}
	if n := len(c.byHand.open) + len(c.byHand.older); n != 0 {
		t.Errorf("%d requests made by hand are left over", n)
	}
}

// A scope of any length is hashed once a request, when its key is made, and stays apart from others.
func TestLongScope(t *testing.T) {
	long := strings.Repeat("salt", 1<<18)
	a, b := router.Prompt{Salt: long + "a", Text: "hello"}, router.Prompt{Salt: long + "b", Text: "hello"}
	ids := router.Prompt{Salt: long + "a", Tokens: []uint32{1, 2, 3}}
	for _, p := range []router.Prompt{a, ids} {
		if k := KeyOf(&p); len(k.scope) > 256 {
			t.Errorf("the key of a scope of %d bytes has %d", len(p.Scope()), len(k.scope))
		}
	}
	c := newCache(t, trie.Config{})
	c.record(decide(a, "x", false), sentNow)
	if got := [3]int{c.cached(a, "x")[0], c.cached(b, "x")[0], c.cached(ids, "x")[0]}; got != [3]int{5, 0, 0} {
		t.Errorf("cached %v", got)
	}
}
