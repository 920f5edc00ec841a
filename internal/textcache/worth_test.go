package textcache

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/internal/worthtest"
	"github.com/warmroute/router/trie"
)

// TestWorthAgainstNaive plays histories with prompts that many share, conversations and prompts on their own, on fleets
// in which some target has far more prompts than the others.
func TestWorthAgainstNaive(t *testing.T) {
	lowered := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 3))
		c := newCache(t, trie.Config{})
		sent := make(map[string][]string)
		ids := []string{"a", "b", "c", "d"}
		var chats []string
		for range 150 {
			p := text(strings.Repeat("s", 100*r.IntN(3)) + fmt.Sprint(r.IntN(40)) +
				strings.Repeat(string(rune('a'+r.IntN(3))), r.IntN(200)))
			if len(chats) > 0 && r.IntN(3) == 0 {
				p.Text = chats[r.IntN(len(chats))] + strings.Repeat("t", r.IntN(50))
			}
			chats = append(chats, p.Text)
			ts := make([]router.Target, 1+r.IntN(4))
			for i := range ts {
				ts[i].ID = ids[i]
				if r.IntN(6) == 0 {
					ts[i].State = router.Cooling
				}
				if seed%3 == 0 {
					ts[i].Weight = float64(r.IntN(3))
				}
			}
			k := KeyOf(&p)
			var room Targets
			c.Look(&k, ts, &room)
			exact := r.IntN(2) == 0
			got := c.Worth(&Prompt{Key: &k, Targets: &room, Held: room.Cached, Size: k.Size(), Exact: exact}, ts, nil)
			want := worthtest.Worth(sent, nil, p.Text, ts, room.Cached, k.Size(), exact)
			for i := range got {
				if ts[i].State == router.Ready && got[i] != want[i] {
					t.Fatalf("seed %d: worth %v of %v, want %v", seed, got, room.Cached, want)
				}
				if got[i] < room.Cached[i]/2 && 5*room.Cached[i] > k.Size() {
					lowered++
				}
			}
			id := ids[r.IntN(1+r.IntN(4))]
			c.record(decide(p, id, false), sentNow)
			if p.Text != "" {
				sent[id] = append(sent[id], p.Text)
			}
		}
	}
	if lowered < 20 {
		t.Errorf("only %d times was a common beginning worth less", lowered)
	}
}
