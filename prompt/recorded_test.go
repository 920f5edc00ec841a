package prompt_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/warmroute/router/prompt"
)

// recordedChats are the chats that were asked of our own engines, in their order.
func recordedChats(t testing.TB) (all [][]message) {
	t.Helper()
	files, err := filepath.Glob("testdata/vllm/*/multi_turn_chat.requests.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		s := bufio.NewScanner(f)
		for s.Buffer(nil, 1<<20); s.Scan(); {
			var r struct {
				Kind string
				Body json.RawMessage
			}
			if err := json.Unmarshal(s.Bytes(), &r); err != nil {
				t.Fatal(err)
			}
			if r.Kind != "request" {
				continue
			}
			var body struct{ Messages []message }
			if err := json.Unmarshal(r.Body, &body); err != nil {
				t.Fatal(err)
			}
			all = append(all, body.Messages)
		}
		if err := s.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestRecordedChats holds recorded chats to one another: the text of one begins another's where its messages do, and
// with the recorded reply, whole or streamed, they begin the next turn's.
func TestRecordedChats(t *testing.T) {
	chats := recordedChats(t)
	same := func(a, b []message) bool {
		return slices.EqualFunc(a, b, func(a, b message) bool { return string(a) == string(b) })
	}
	var texts []string
	for _, c := range chats {
		body := marshal(t, map[string]any{"model": "m", "messages": c})
		texts = append(texts, text(t, "chat", string(body)))
		if anthropic := text(t, "messages", string(body)); anthropic != texts[len(texts)-1] {
			t.Fatalf("as Anthropic's messages: %q, as a chat %q", anthropic, texts[len(texts)-1])
		}
	}
	extends, replies := 0, 0
	for i, a := range chats {
		for j, b := range chats {
			want := len(a) <= len(b) && same(a, b[:len(a)])
			if got := strings.HasPrefix(texts[j], texts[i]); got != want {
				t.Fatalf("chat %d begins chat %d: %v, its text: %v", i, j, want, got)
			}
			if !want || len(a) == len(b) {
				continue
			}
			extends++
			reply := b[len(a)]
			if role(t, reply) != "assistant" {
				t.Fatalf("%s after a user's message", reply)
			}
			for _, form := range [][]byte{
				marshal(t, map[string]any{"choices": []any{map[string]any{"index": 0, "message": reply}}}),
				chatStream(t, reply, 7),
			} {
				var r prompt.Reply
				r.Write(form)
				if r.Text() == "" || !strings.HasPrefix(texts[j], texts[i]+r.Text()) {
					t.Fatalf("chat %d with its reply does not begin chat %d", i, j)
				}
				replies++
			}
		}
	}
	if len(chats) != 36 || extends < 40 {
		t.Errorf("%d chats, %d of them extend another, %d replies", len(chats), extends, replies)
	}
}
