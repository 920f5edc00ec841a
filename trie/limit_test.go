package trie

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recordOf is the record of one target as one would write it without caring for speed.
type recordOf struct {
	texts []string // the least recently inserted first
	seq   []uint64
	limit int
}

// bytes counts the text once that several prompts share.
func (o *recordOf) bytes() int {
	prefixes := make(map[string]bool)
	for _, s := range o.texts {
		for i := range s {
			prefixes[s[:i+1]] = true
		}
	}
	return len(prefixes)
}

func (o *recordOf) drop(i int) {
	o.texts, o.seq = slices.Delete(o.texts, i, i+1), slices.Delete(o.seq, i, i+1)
}

func (o *recordOf) keepLimit() {
	for o.limit > 0 && len(o.texts) > 1 && o.bytes() > o.limit {
		o.drop(0)
	}
}

func (o *recordOf) insert(text string, seq uint64) (past Past) {
	for i, s := range o.texts {
		n := 0
		for n < len(s) && n < len(text) && s[n] == text[n] {
			n++
		}
		if n > 0 && n >= past.Held {
			if n > past.Held {
				past.Last = 0
			}
			past.Held, past.Last = n, max(past.Last, o.seq[i])
		}
	}
	past.Now = seq
	if i := slices.Index(o.texts, text); i >= 0 {
		o.drop(i)
	}
	o.texts, o.seq = append(o.texts, text), append(o.seq, seq)
	o.keepLimit()
	return past
}

// TestLimitAgainstNaive inserts, expires, limits and forgets, and compares each target's record with a list.
func TestLimitAgainstNaive(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 9))
		tr, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		records := map[string]*recordOf{"a": {}, "b": {}, "c": {}}
		seq := uint64(0)
		for step := range 200 {
			id := string(rune('a' + r.IntN(3)))
			o := records[id]
			switch r.IntN(12) {
			case 0:
				last, least := uint64(r.Int64N(int64(seq)+1)), r.IntN(40)
				tr.Expire(id, last, least)
				for len(o.texts) > 1 && o.bytes() > least && o.seq[0] <= last {
					o.drop(0)
				}
			case 1:
				n := r.IntN(60) - 5
				tr.Limit(id, n)
				if len(o.texts) > 0 || tr.Usage(id).Limit > 0 {
					o.limit = max(n, 0)
					o.keepLimit()
				}
			case 2:
				if r.IntN(4) == 0 {
					tr.Forget(id)
					*o = recordOf{}
				}
			default:
				text := strings.Repeat("s", r.IntN(5)) + fmt.Sprint(r.IntN(9)) + strings.Repeat("t", r.IntN(9))
				seq++
				got, want := tr.InsertPast("m", text, id), o.insert(text, seq)
				if got.Last == 0 { // not looked for
					want.Last = 0
				}
				if got != want {
					t.Fatalf("seed %d, step %d: inserted %q at %s: %+v, want %+v", seed, step, text, id, got, want)
				}
			}
			tr.verify(t)
			want := Usage{Bytes: o.bytes(), Limit: o.limit}
			if len(o.seq) > 0 {
				want.Oldest, want.Newest = o.seq[0], o.seq[len(o.seq)-1]
			}
			if got := tr.Usage(id); got != want {
				t.Fatalf("seed %d, step %d: %s has %+v, want %+v", seed, step, id, got, want)
			}
		}
	}
}

// TestLastInsertIsFound for a conversation, and is not looked for if many prompts begin alike.
func TestLastInsertIsFound(t *testing.T) {
	tr, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	tr.Insert("m", "a conversation", "a")
	if got, want := tr.InsertPast("m", "a conversation goes on", "a"), (Past{Held: 14, Last: 1, Now: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for i := range 2 * lookedAt {
		tr.Insert("m", fmt.Sprint("a system prompt, and ", string(rune('A'+i))), "a")
	}
	if got := tr.InsertPast("m", "a system prompt, but another", "a"); got.Held != 17 || got.Last != 0 {
		t.Errorf("%+v, want 17 bytes and no insert", got)
	}
	for _, p := range []Past{tr.InsertPast("m", "", "a"), tr.InsertPast("m", strings.Repeat("x", 513<<20), "a")} {
		if p != (Past{}) {
			t.Errorf("%+v of what is not recorded", p)
		}
	}
	if got := tr.Usage("nobody"); got != (Usage{}) {
		t.Errorf("nobody has %+v", got)
	}
	tr.Limit("nobody", 5)
	tr.Expire("nobody", 5, 0)
}

// What Expire and Limit drop still counts as recorded prompts, so that targets compare, until it is long ago.
func TestWarmedCountsLost(t *testing.T) {
	tr, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	insert := func(id string, from, n int) {
		for i := range n {
			tr.Insert("m", fmt.Sprintf("%06d and more", from+i), id)
		}
	}
	insert("a", 0, 20)
	insert("b", 0, 20)
	last := tr.Usage("a").Newest
	tr.Expire("a", last, 0)
	tr.Limit("b", 100)
	ids := []string{"a", "b"}
	if diff := cmp.Diff([]int{20, 20}, tr.Warmed(ids, nil)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	insert("b", 100, 10*mostLost)
	got := tr.Warmed(ids, nil)
	if got[0] > 1 || got[1] > mostLost+100 {
		t.Errorf("%v after many more", got)
	}
	tr.Forget("b")
	if got := tr.Warmed(ids, nil); got[1] != 0 {
		t.Errorf("%d after Forget", got[1])
	}
}
