package prompt_test

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/warmroute/router/internal/shareddata"
	"github.com/warmroute/router/prompt"
)

// message is a chat message as the recordings have it; the members keep their
// order and bytes.
type message = json.RawMessage

func trajectories(t testing.TB) [][]message {
	t.Helper()
	raw, err := os.ReadFile(shareddata.Path(t, "taubench/gpt-4o-airline.json"))
	if err != nil {
		t.Fatal(err)
	}
	var runs []struct{ Traj []message }
	if err := json.Unmarshal(raw, &runs); err != nil {
		t.Fatal(err)
	}
	var all [][]message
	for _, r := range runs {
		all = append(all, r.Traj)
	}
	return all
}

func role(t testing.TB, m message) string {
	t.Helper()
	var v struct{ Role string }
	if err := json.Unmarshal(m, &v); err != nil {
		t.Fatal(err)
	}
	return v.Role
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestTauBench replays recorded agent runs: each assistant message is the reply
// to the turns before it. Every request's text, and with the reply's text too,
// begins the next request's.
func TestTauBench(t *testing.T) {
	requests, shared, total := 0, 0, 0
	for n, traj := range trajectories(t) {
		text := ""
		for i, m := range traj {
			if role(t, m) != "assistant" {
				continue
			}
			body := marshal(t, map[string]any{"model": "m", "messages": traj[:i]})
			p, err := prompt.FromChat(body)
			if err != nil {
				t.Fatalf("run %d, message %d: %v", n, i, err)
			}
			if !strings.HasPrefix(p.Text, text) {
				t.Fatalf("run %d, message %d: the text does not extend the one before and its reply", n, i)
			}
			if len(p.Text) > 2*len(body)+1024 {
				t.Fatalf("run %d, message %d: %d bytes of text from %d of body", n, i, len(p.Text), len(body))
			}
			requests++
			shared += len(text)
			total += len(p.Text)

			var whole, streamed prompt.Reply
			whole.Write(marshal(t, map[string]any{"choices": []any{map[string]any{"index": 0, "message": m}}}))
			streamed.Write(chatStream(t, m, 7))
			if whole.Text() == "" || whole.Text() != streamed.Text() {
				t.Fatalf("run %d, message %d: the reply is %q whole, %q streamed", n, i, whole.Text(), streamed.Text())
			}
			text = p.Text + whole.Text()
		}
	}
	if requests != 2454 {
		t.Errorf("%d requests, want 2454", requests)
	}
	t.Logf("%d requests, %d bytes, %.1f%% of them known from the request before", requests, total,
		100*float64(shared)/float64(total))
}

// chatStream makes the events of a streamed reply, n bytes of content each.
func chatStream(t testing.TB, m message, n int) []byte {
	t.Helper()
	var v struct {
		Content   *string
		ToolCalls []struct {
			ID       string
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"`
	}
	if err := json.Unmarshal(m, &v); err != nil {
		t.Fatal(err)
	}
	var b []byte
	send := func(delta any) {
		b = append(b, "data: "...)
		b = append(b, marshal(t, map[string]any{"object": "chat.completion.chunk",
			"choices": []any{map[string]any{"index": 0, "delta": delta}}})...)
		b = append(b, "\n\n"...)
	}
	send(map[string]any{"role": "assistant", "content": ""})
	if v.Content != nil {
		for _, piece := range pieces(*v.Content, n) {
			send(map[string]any{"content": piece})
		}
	}
	for i, c := range v.ToolCalls {
		send(map[string]any{"tool_calls": []any{map[string]any{"index": i, "id": c.ID, "type": "function",
			"function": map[string]any{"name": c.Function.Name, "arguments": ""}}}})
		for _, piece := range pieces(c.Function.Arguments, n) {
			send(map[string]any{"tool_calls": []any{map[string]any{"index": i, "function": map[string]any{"arguments": piece}}}})
		}
	}
	return append(b, "data: [DONE]\n\n"...)
}

// pieces cuts s into parts of about n bytes, between characters.
func pieces(s string, n int) []string {
	var out []string
	lo := 0
	for i := range s {
		if i-lo >= n {
			out = append(out, s[lo:i])
			lo = i
		}
	}
	return append(out, s[lo:])
}

// lines calls f with each line of a recording.
func lines(t testing.TB, name string, f func(line []byte)) {
	t.Helper()
	file, err := os.Open(shareddata.Path(t, name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := bufio.NewScanner(file)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		f(s.Bytes())
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestToolCalls reads recorded tool-call requests, as OpenAI's and as
// Anthropic's: the texts of requests with the same tools share them, and no two
// different requests have one text.
func TestToolCalls(t *testing.T) {
	seen := map[string]string{}
	prefix := map[string]string{}
	n := 0
	lines(t, "toolcalls/BFCL_v4_live_multiple.jsonl", func(line []byte) {
		var v struct {
			Question [][]message
			Function []json.RawMessage
		}
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		var tools []any
		for _, f := range v.Function {
			tools = append(tools, map[string]any{"type": "function", "function": f})
		}
		body := marshal(t, map[string]any{"messages": v.Question[0], "tools": tools})
		got := text(t, "chat", string(body))
		definitions := got[:strings.LastIndex(got, "\xffd")+2]
		key := string(marshal(t, tools))
		if old, ok := prefix[key]; ok && old != definitions {
			t.Fatalf("same tools, other text: %.200q", got)
		}
		prefix[key] = definitions
		key = string(marshal(t, v.Question[0])) + key
		if old, ok := seen[got]; ok && old != key {
			t.Fatalf("two requests with one text: %.200q", got)
		}
		seen[got] = key
		n++
		if strings.Contains(got, "\n  ") && !strings.Contains(string(body), `\n  `) {
			t.Fatalf("white space of the JSON in the text: %.200q", got)
		}
	})
	if n != 1053 {
		t.Errorf("%d requests, want 1053", n)
	}
}

// TestAgentText rebuilds the prompts of recorded coding-agent sessions: the
// text of a completion is the prompt itself, so what two prompts share, their
// texts share too.
func TestAgentText(t *testing.T) {
	last := map[string]string{}
	n := 0
	lines(t, "agent_text/lmcache_miniswe.delta.jsonl", func(line []byte) {
		var v struct {
			Session, Suffix, Output string
			Keep                    int
		}
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		whole := last[v.Session][:v.Keep] + v.Suffix
		body := marshal(t, map[string]any{"prompt": whole})
		if got := text(t, "completion", string(body)); got != whole {
			t.Fatalf("%d bytes of text from a prompt of %d", len(got), len(whole))
		}
		last[v.Session] = whole
		var r prompt.Reply
		r.Write(marshal(t, map[string]any{"choices": []any{map[string]any{"text": v.Output}}}))
		if want := v.Output[:min(len(v.Output), prompt.DefaultReply)]; !strings.HasPrefix(want, r.Text()) ||
			len(r.Text()) < len(want)-4 {
			t.Fatalf("a reply of %d bytes became %d", len(v.Output), len(r.Text()))
		}
		n++
	})
	if n != 402 {
		t.Errorf("%d requests, want 402", n)
	}
}
