package trace

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestBlocksAndTextAgree: two prompts share as many leading blocks as their texts
// share bytes, for pieces and for real text, in blocks of any size.
func TestBlocksAndTextAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var rs []Request
	for i := range 60 {
		q := Request{After: None, Output: 1 + r.IntN(50)}
		for range 1 + r.IntN(8) {
			q.Prompt = append(q.Prompt, Piece{ID: uint64(r.IntN(3)), Tokens: 1 + r.IntN(40)})
		}
		if i%2 == 0 { // one that is known for its lengths to differ
			q.Prompt[0] = Piece{ID: 1, Tokens: 64}
		}
		q.Reply = []Piece{{ID: uint64(r.IntN(3)), Tokens: q.Output}}
		q.Input = total(q.Prompt)
		rs = append(rs, q)
	}
	texts := make([]Request, len(rs))
	for i, q := range rs {
		texts[i] = Request{After: None, Input: q.Input, Output: q.Output, Text: q.PromptText(), ReplyText: q.KnownReply()}
	}
	for _, w := range []*Workload{{Name: "pieces", Requests: rs}, {Name: "text", Requests: texts}} {
		if err := w.Check(); err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{1, 3, 16, 64} {
			blocks := w.Blocks(size)
			for i := range rs {
				if want := (rs[i].Input + rs[i].Output) / size; len(blocks[i]) != want {
					t.Fatalf("%s: %d blocks of %d for %d tokens", w.Name, len(blocks[i]), size, rs[i].Input+rs[i].Output)
				}
				for k := range i {
					a := texts[i].Text + texts[i].ReplyText
					b := texts[k].Text + texts[k].ReplyText
					want := commonPrefix(a, b) / BytesPerToken / size
					got := 0
					for got < min(len(blocks[i]), len(blocks[k])) && blocks[i][got] == blocks[k][got] {
						got++
					}
					// Pieces that are cut differently are other content to pieces, though
					// their text is equal: fewer blocks may be shared, never more.
					if got > want || w.Name == "text" && got != want {
						t.Fatalf("%s: requests %d and %d share %d blocks of %d, their text %d", w.Name, i, k, got, size, want)
					}
				}
			}
		}
	}
}

func TestPiecesAreTold(t *testing.T) {
	a, b := Request{Prompt: []Piece{{7, 100}}}, Request{Prompt: []Piece{{7, 33}}}
	if !strings.HasPrefix(a.PromptText(), b.PromptText()) || len(b.PromptText()) != 132 {
		t.Error("a shorter piece is not the beginning of a longer one")
	}
	const n = 2000
	texts := make([]string, n)
	for i := range texts {
		q := Request{Prompt: []Piece{{uint64(i), 16}}}
		texts[i] = q.PromptText()
	}
	slices.Sort(texts)
	for i := 1; i < n; i++ {
		if c := commonPrefix(texts[i-1], texts[i]); c > 12 {
			t.Errorf("the texts of two ids share %d bytes", c)
		}
	}
	if got := texts[0][:8]; got != "aahbffkc" {
		t.Errorf("the text changed: %q", got)
	}
}

func TestGenerated(t *testing.T) {
	for _, s := range Generated() {
		t.Run(s.Name, func(t *testing.T) {
			rate := s.Rates[0]
			w, err := s.Build(rate, 1)
			if err != nil {
				t.Fatal(err)
			}
			again, _ := s.Build(rate, 1)
			if !reflect.DeepEqual(w.Requests, again.Requests) {
				t.Error("the same seed gives another workload")
			}
			other, _ := s.Build(rate, 2)
			if reflect.DeepEqual(w.Requests, other.Requests) {
				t.Error("another seed gives the same workload")
			}
			for i := 1; i < len(s.Rates); i++ {
				if s.Rates[i] <= s.Rates[i-1] {
					t.Errorf("rates %v", s.Rates)
				}
			}
			if len(s.Rates) < 3 {
				t.Errorf("only %d rates", len(s.Rates))
			}
			// Without waiting for answers, arrivals come at the rate.
			at := make([]time.Duration, len(w.Requests))
			last := time.Duration(0)
			for i, r := range w.Requests {
				at[i] = r.Arrival
				if r.After != None {
					at[i] = at[r.After] + r.Think
				}
				last = max(last, at[i])
			}
			if got := float64(len(at)) / last.Seconds(); math.Abs(got/rate-1) > 0.45 {
				t.Errorf("%.2f requests a second, want %v", got, rate)
			}
		})
	}
}

func TestConversationsGoOn(t *testing.T) {
	for _, s := range Generated() {
		if s.Name != "chat" && s.Name != "agents" {
			continue
		}
		w, err := s.Build(10, 1)
		if err != nil {
			t.Fatal(err)
		}
		turns := 0
		for _, r := range w.Requests {
			if r.After == None {
				continue
			}
			turns++
			before := &w.Requests[r.After]
			want := append(slices.Clone(before.Prompt), before.Reply...)
			if r.Session != before.Session || len(r.Prompt) != len(want)+1 || !slices.Equal(r.Prompt[:len(want)], want) {
				t.Fatalf("%s: a turn does not go on from the one before", s.Name)
			}
		}
		if turns < len(w.Requests)/2 {
			t.Errorf("%s: %d of %d are later turns", s.Name, turns, len(w.Requests))
		}
	}
}

func TestHotShares(t *testing.T) {
	for _, s := range Generated() {
		if s.Name != "hot" {
			continue
		}
		w, _ := s.Build(10, 1)
		count := make(map[uint64]int)
		most := 0
		for _, r := range w.Requests {
			count[r.Prompt[0].ID]++
			most = max(most, count[r.Prompt[0].ID])
		}
		if share := float64(most) / float64(len(w.Requests)); math.Abs(share-0.8) > 0.03 {
			t.Errorf("%v share one prompt", share)
		}
	}
}

func TestSpread(t *testing.T) {
	var rs []Request
	for i := range 300 {
		rs = append(rs, Request{Arrival: time.Duration(i/100) * 3 * time.Second, After: None, Input: i + 1})
	}
	rs = append(rs, Request{Arrival: 6500 * time.Millisecond, After: None, Input: 301})
	got := Spread(rs, 3*time.Second, 1)
	for i := range got {
		from := rs[i].Arrival
		to := from + 3*time.Second
		if i >= 200 {
			to = 6500 * time.Millisecond
		}
		if i < 300 && (got[i].Arrival < from || got[i].Arrival >= to) {
			t.Errorf("request %d is moved from %v to %v", i, from, got[i].Arrival)
		}
		if i > 0 && got[i].Arrival < got[i-1].Arrival || got[i].Input != i+1 {
			t.Errorf("request %d is out of order", i)
		}
	}
	if !cmp.Equal(got, Spread(rs, 3*time.Second, 1)) || cmp.Equal(got, Spread(rs, 3*time.Second, 2)) {
		t.Error("the seed does not decide")
	}
}

func TestCopies(t *testing.T) {
	session := func(name string, from int, at time.Duration, texts ...string) []Request {
		var rs []Request
		for i, s := range texts {
			q := Request{Arrival: at, After: None, Session: name, Text: s, Input: tokens(len(s)), Output: 1}
			if i > 0 {
				q.After = from + i - 1
			}
			rs = append(rs, q)
		}
		return rs
	}
	rs := session("a", 0, 0, "system one", "system one more", "other")
	rs = append(rs, session("b", 3, 10*time.Second, "system two", "system two more")...)
	if got := sharedWithOthers(rs); !slices.Equal(got, []int{7, 7, 0, 7, 7}) {
		t.Errorf("shared: %v", got)
	}
	out := Copies(rs, 3)
	w := &Workload{Requests: out}
	if err := w.Check(); err != nil {
		t.Fatal(err)
	}
	count := make(map[string]int)
	for _, r := range out {
		count[r.Text]++
		if r.After != None && (out[r.After].Session != r.Session || r.Text != "other" &&
			!strings.HasPrefix(r.Text, out[r.After].Text) && len(r.Text) > 5) {
			t.Errorf("%q follows %q", r.Text, out[r.After].Text)
		}
	}
	if len(out) != 15 || count["system one"] != 1 || count["system pof"] != 1 || count["system qpg"] != 1 {
		t.Errorf("%v", count)
	}
}

func TestCheck(t *testing.T) {
	ok := Request{After: None, Prompt: []Piece{{1, 2}}, Input: 2, Output: 1}
	for name, bad := range map[string]func(r *Request){
		"tokens":  func(r *Request) { r.Input = 3 },
		"output":  func(r *Request) { r.Output = 0 },
		"after":   func(r *Request) { r.After = 1 },
		"think":   func(r *Request) { r.Think = -1 },
		"arrival": func(r *Request) { r.Arrival = -1 },
	} {
		late := ok
		late.Arrival = time.Second
		w := &Workload{Requests: []Request{ok, late}}
		if err := w.Check(); err != nil {
			t.Fatal(err)
		}
		bad(&w.Requests[1])
		if w.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func BenchmarkPromptText(b *testing.B) {
	q := Request{Prompt: make([]Piece, 24)}
	for i := range q.Prompt {
		q.Prompt[i] = Piece{uint64(i), 512}
	}
	b.SetBytes(24 * 512 * 4)
	for b.Loop() {
		q.PromptText()
	}
}
