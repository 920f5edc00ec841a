package workload_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router/internal/workload"
)

// digest hashes every body of w in the order of arrival.
func digest(w *workload.Workload) string {
	h := fnv.New128a()
	var b []byte
	for i, r := range w.Requests {
		b = w.AppendBody(b[:0], r, i%2 == 0)
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func TestSameEverywhere(t *testing.T) {
	small := workload.ChatConfig{Conversations: 100, Systems: 5}
	for _, c := range []struct {
		name string
		w    *workload.Workload
		want string
	}{
		{"chat", workload.Chat(small), "998936ff32f17e60202b9e27bd33cc61"},
		{"chat with an opening", workload.Chat(workload.ChatConfig{Conversations: 100, Systems: 5, Opening: 300}),
			"cdc0289d65f06c6a375bafb3838bed4d"},
		{"long", workload.Long(workload.LongConfig{Documents: 4}), "f7a1bdc135886bcfa63b178e3d288834"},
	} {
		if got := digest(c.w); got != c.want {
			t.Errorf("%s: digest %s, want %s: published figures were made with the latter", c.name, got, c.want)
		}
	}
	other := small
	other.Seed = 1
	if digest(workload.Chat(other)) == digest(workload.Chat(small)) {
		t.Error("the seed makes no difference")
	}
}

func TestChatSizes(t *testing.T) {
	w := workload.Chat(workload.ChatConfig{})
	if got := len(w.Conversations); got != 2000 {
		t.Errorf("%d conversations", got)
	}
	if got := len(w.Requests); got != 11_000 {
		t.Errorf("%d requests", got)
	}
	if got := w.Distinct(); got < 17_500_000 || got > 17_700_000 {
		t.Errorf("%d distinct bytes, want 17.6 million", got)
	}
	total := 0
	for _, r := range w.Requests {
		total += w.Size(r)
	}
	if mean := total / len(w.Requests); mean < 14_000 || mean > 14_400 {
		t.Errorf("mean prompt of %d bytes, want 14.2 KB", mean)
	}
	checkShape(t, w)

	systems := make(map[string]int)
	turns := make(map[int]int)
	for _, c := range w.Conversations {
		if n := len(c.Messages[0].Content); n != 8192 {
			t.Fatalf("a system prompt of %d bytes", n)
		}
		systems[c.Messages[0].Content]++
		turns[c.Turns()]++
	}
	if len(systems) != 20 {
		t.Errorf("%d system prompts", len(systems))
	}
	for s, n := range systems {
		if n != 100 {
			t.Errorf("the system prompt %.20q has %d conversations", s, n)
		}
	}
	want := make(map[int]int)
	for i := range 10 {
		want[i+1] = 200
	}
	if d := cmp.Diff(want, turns); d != "" {
		t.Errorf("conversations by turns: %s", d)
	}
}

func TestLongSizes(t *testing.T) {
	w := workload.Long(workload.LongConfig{})
	if got := len(w.Requests); got != 4000 {
		t.Errorf("%d requests", got)
	}
	if got, want := w.Distinct(), 200*(128<<10)+4000*200; got != want {
		t.Errorf("%d distinct bytes, want %d", got, want)
	}
	for _, r := range w.Requests {
		if got := w.Size(r); got != 128<<10+200 {
			t.Fatalf("a prompt of %d bytes", got)
		}
	}
	checkShape(t, w)
}

// checkShape checks what every workload promises: turns in order and not one
// after the other, roles by turns, bodies that say what the messages say.
func checkShape(t *testing.T, w *workload.Workload) {
	t.Helper()
	next := make([]int, len(w.Conversations))
	inARow := 0
	for i, r := range w.Requests {
		if r.Turn != next[r.Conversation] {
			t.Fatalf("request %d is turn %d of conversation %d, want %d", i, r.Turn, r.Conversation, next[r.Conversation])
		}
		next[r.Conversation]++
		if i > 0 && w.Requests[i-1].Conversation == r.Conversation {
			inARow++
		}
	}
	if inARow > len(w.Requests)/50 {
		t.Errorf("%d of %d requests follow one of their own conversation", inARow, len(w.Requests))
	}
	for c := range w.Conversations {
		if got := w.Conversations[c].Turns(); next[c] != got {
			t.Errorf("conversation %d: %d requests, want %d", c, next[c], got)
		}
		if last := w.Last(c); last.Turn != next[c]-1 {
			t.Errorf("conversation %d: last turn %d", c, last.Turn)
		}
	}
	for _, r := range w.Requests[:200] {
		var body struct {
			Model    string
			Messages []workload.Message
			Stream   bool
		}
		if err := json.Unmarshal(w.AppendBody(nil, r, true), &body); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(w.Messages(r), body.Messages); d != "" || body.Model != w.Model || !body.Stream {
			t.Fatalf("body of %v: %s", r, d)
		}
		for i, m := range body.Messages {
			want := []string{"assistant", "user"}[i%2]
			if i == 0 {
				want = "system"
			}
			if m.Role != want || m.Content == "" {
				t.Fatalf("message %d of %v: role %q, %d bytes", i, r, m.Role, len(m.Content))
			}
		}
		if body.Messages[len(body.Messages)-1].Role != "user" {
			t.Fatalf("%v does not end with the user's message", r)
		}
	}
}

func TestOpening(t *testing.T) {
	for _, opening := range []int{0, 300} {
		w := workload.Chat(workload.ChatConfig{Conversations: 40, Opening: opening})
		systems := make(map[int]string)
		for _, c := range w.Conversations {
			systems[c.System] = c.Messages[0].Content
		}
		least, most := 1<<30, 0
		for i, a := range systems {
			for j, b := range systems {
				if i < j {
					n := 0
					for n < len(a) && a[n] == b[n] {
						n++
					}
					least, most = min(least, n), max(most, n)
				}
			}
		}
		// Words are common to all: a few bytes more are equal by chance.
		if least < opening || most > opening+12 {
			t.Errorf("opening %d: system prompts share %d to %d leading bytes", opening, least, most)
		}
	}
}

// TestText holds the text to be like words: neither random bytes nor a few
// sentences over and over.
func TestText(t *testing.T) {
	w := workload.Chat(workload.ChatConfig{Conversations: 200})
	count := make(map[string]int)
	total := 0
	for _, c := range w.Conversations {
		for _, m := range c.Messages[1:] {
			for _, word := range strings.Fields(m.Content) {
				count[strings.Trim(word, `.,"`)]++
				total++
			}
			if i := strings.IndexFunc(m.Content, func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') }); i >= 0 {
				t.Fatalf("%q is not plain text", m.Content[i])
			}
		}
	}
	most := 0
	for _, n := range count {
		most = max(most, n)
	}
	if len(count) < 2000 || most < total/50 || most > total/5 {
		t.Errorf("%d different words of %d, the commonest %d times", len(count), total, most)
	}
}

func ExampleWorkload_AppendBody() {
	w := workload.Chat(workload.ChatConfig{Conversations: 1, Systems: 1, SystemBytes: 20, Turns: 1, UserBytes: 12,
		AssistantBytes: 12})
	fmt.Printf("%s\n", w.AppendBody(nil, w.Requests[0], true))
	// Output:
	// {"model":"bench","messages":[{"role":"system","content":"Fuwohula, tuweb ticu"},{"role":"user","content":"Gecukor kocic"}],"stream":true}
}
