package textcache

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router"
	"github.com/warmroute/router/trie"
)

func targets(ids ...string) []router.Target {
	ts := make([]router.Target, len(ids))
	for i, id := range ids {
		ts[i].ID = id
	}
	return ts
}

// A prompt that was prepared is matched as one that was not, whatever was sent,
// failed or forgotten since, and whichever targets are offered in whatever order.
func TestPreparedAsLook(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 5))
		c := newCache(t, trie.Config{})
		all := []string{"a", "b", "c", "d", "e", "f"}
		prompt := func() router.Prompt {
			p := router.Prompt{Model: []string{"m", "n"}[rng.IntN(2)]}
			text := strings.Repeat("All begin alike. ", rng.IntN(4)) + fmt.Sprint(rng.IntN(3)) + strings.Repeat("x", rng.IntN(3))
			switch rng.IntN(12) {
			case 0: // longer than the kept part of those that were sent
				p.Text = text + strings.Repeat("A long one. ", recentBytes/12+1)
			case 1, 2:
				for i := range text {
					p.Tokens = append(p.Tokens, uint32(text[i]))
				}
			default:
				p.Text = text
			}
			return p
		}
		var open []router.Decision
		act := func() {
			switch n := rng.IntN(20); {
			case n == 0:
				c.Forget(all[rng.IntN(len(all))])
			case n < 4 && len(open) > 0:
				i := rng.IntN(len(open))
				c.record(open[i], failed)
				open = append(open[:i], open[i+1:]...)
			default:
				d := decide(prompt(), all[rng.IntN(len(all))], rng.IntN(4) == 0)
				c.record(d, sentNow)
				open = append(open, d)
			}
		}
		offer := func() []router.Target {
			ids := append([]string(nil), all...)
			if rng.IntN(4) == 0 {
				rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
			}
			if rng.IntN(3) == 0 {
				ids = ids[rng.IntN(len(ids)):]
			}
			if rng.IntN(8) == 0 {
				ids = append(ids, fmt.Sprint("new ", rng.IntN(5)))
			}
			return targets(ids[:rng.IntN(len(ids)+1)]...)
		}
		var room Targets
		for step := range 400 {
			p := prompt()
			c.Prepare(&p, &room)
			k := room.KeyOf(&p)
			for range []int{0, 0, 1, 3, recentTexts + 5}[rng.IntN(5)] {
				act()
			}
			ts := offer()
			c.Look(&k, ts, &room)
			var fresh Targets
			c.Look(&k, ts, &fresh)
			if diff := cmp.Diff([][]int{fresh.Cached}, [][]int{append([]int(nil), room.Cached...)}); diff != "" && len(ts) > 0 {
				t.Fatalf("seed %d, step %d, %d offered (-fresh +prepared):\n%s", seed, step, len(ts), diff)
			}
			if room.prepared.is || len(room.IDs) != len(ts) {
				t.Fatalf("after Look: %+v", room.prepared)
			}
		}
	}
}

// Only a list of IDs that is new makes Prepare learn; a part of it, again and again,
// does not.
func TestLearnOnce(t *testing.T) {
	c := newCache(t, trie.Config{})
	look := func(ids ...string) {
		var room Targets
		p := text("prompt")
		c.Prepare(&p, &room)
		k := room.KeyOf(&p)
		c.Look(&k, targets(ids...), &room)
	}
	look("a", "b", "c")
	first := c.offered.Load()
	for range 3 {
		look("a", "c")
		look("b")
		look("b", "c", "a")
		look()
	}
	if c.offered.Load() != first {
		t.Error("learned again")
	}
	look("d")
	if diff := cmp.Diff([]string{"a", "b", "c", "d"}, *c.offered.Load()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for i := range 3 * maxOffered {
		look(fmt.Sprint("target ", i))
	}
	if n := len(*c.offered.Load()); n > maxOffered {
		t.Errorf("%d IDs are kept", n)
	}
	c.Forget("target 7")
	if c.offered.Load() != nil {
		t.Error("a target that is gone is prepared")
	}
}

// Prepare and Look allocate nothing, once their scratch has grown.
func TestPrepareAllocatesNothing(t *testing.T) {
	c := newCache(t, trie.Config{})
	ts := targets("a", "b", "c")
	p := text(strings.Repeat("prompt ", 1000))
	c.record(decide(p, "b", false), sentNow)
	var room Targets
	other := decide(text(strings.Repeat("prompt ", 1000)+"?"), "c", false)
	c.record(other, sentNow)
	n := testing.AllocsPerRun(100, func() {
		c.Prepare(&p, &room)
		k := room.KeyOf(&p)
		c.recent.add(&k, "c")
		c.Look(&k, ts, &room)
	})
	if n != 0 || room.Cached[1] != len(p.Text) || room.Cached[2] != len(p.Text) {
		t.Errorf("%v allocations, %v", n, room.Cached)
	}
}

func TestPrepareStorm(t *testing.T) {
	c := newCache(t, trie.Config{})
	ts := targets("a", "b", "c", "d")
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			var room Targets
			for i := range 300 {
				p := text(strings.Repeat("All begin alike. ", 1+rng.IntN(9)) + fmt.Sprint(g, i))
				c.Prepare(&p, &room)
				k := room.KeyOf(&p)
				offered := ts[rng.IntN(3):]
				c.Look(&k, offered, &room)
				for _, n := range room.Cached {
					if n < 0 || n > len(p.Text) {
						t.Errorf("%d of %d", n, len(p.Text))
					}
				}
				d := decide(p, offered[rng.IntN(len(offered))].ID, false)
				c.record(d, sentNow, []router.Outcome{finished, failed, replied}[rng.IntN(3)])
				if rng.IntN(40) == 0 {
					c.Forget("a")
				}
			}
		})
	}
	wg.Wait()
}
