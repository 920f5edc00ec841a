package trace

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router/internal/shareddata"
)

type reader = func(string, io.Reader) ([]Request, error)

func TestReaders(t *testing.T) {
	tests := []struct {
		name string
		read reader
		in   string
		want []Request
	}{
		{"mooncake", Mooncake,
			`{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [0, 9]}
			 {"timestamp": 3000, "input_length": 512, "output_length": 0, "hash_ids": [0]}`,
			[]Request{
				{After: None, Prompt: []Piece{{0, 512}, {9, 188}}, Input: 700, Output: 5},
				{After: None, Arrival: 3 * time.Second, Prompt: []Piece{{0, 512}}, Input: 512, Output: 1},
			}},
		{"bailian", Bailian,
			`{"chat_id": 5, "parent_chat_id": -1, "timestamp": 1.5, "input_length": 20, "output_length": 7, "type": "text", "turn": 1, "hash_ids": [1, 2]}
			 {"chat_id": 8, "parent_chat_id": 5, "timestamp": 61.25, "input_length": 32, "output_length": 9, "type": "text", "turn": 2, "hash_ids": [1, 3]}

			 {"chat_id": 9, "parent_chat_id": 77, "timestamp": 62, "input_length": 17, "output_length": 1, "type": "file", "turn": 4, "hash_ids": [4]}`,
			[]Request{
				{After: None, Arrival: 1500 * time.Millisecond, Session: "chat-5", Prompt: []Piece{{1, 16}, {2, 4}}, Input: 20,
					Output: 7},
				{After: None, Arrival: 61250 * time.Millisecond, Session: "chat-5", Prompt: []Piece{{1, 16}, {3, 16}}, Input: 32,
					Output: 9},
				{After: None, Arrival: 62 * time.Second, Session: "chat-9", Prompt: []Piece{{4, 16}, {ID(9, 0x72657374), 1}},
					Input: 17, Output: 1},
			}},
		{"azure", Azure,
			"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 " +
				"18:15:50.9951690,396,109",
			[]Request{
				{After: None, Prompt: []Piece{{ID(1, 0x617a757265), 374}}, Input: 374, Output: 44},
				{After: None, Arrival: 4314579 * time.Microsecond, Prompt: []Piece{{ID(2, 0x617a757265), 396}}, Input: 396,
					Output: 109},
			}},
		{"delta", Delta,
			`{"ts_us": 0, "session": "a", "keep": 0, "suffix": "hello you", "input_bytes": 9, "output": "fine"}
			 {"ts_us": 100, "session": "b", "keep": 0, "suffix": "", "input_bytes": 0, "output": "lost"}
			 {"ts_us": 2000000, "session": "a", "keep": 9, "suffix": " so: fine, more", "input_bytes": 24, "output": "x"}
			 {"ts_us": 2500000, "session": "a", "keep": 5, "suffix": "!", "input_bytes": 6, "output": ""}`,
			[]Request{
				{After: None, Session: "a", Text: "hello you", Input: 3, Output: 1, ReplyText: " so: fine"},
				{After: 0, Arrival: 2 * time.Second, Think: time.Second, Session: "a", Text: "hello you so: fine, more", Input: 6,
					Output: 1, ReplyText: "x"},
				{After: 1, Arrival: 2500 * time.Millisecond, Think: 250 * time.Millisecond, Session: "a", Text: "hello!", Input: 2,
					Output: 1},
			}},
		{"log", Log,
			`{"time": 20, "prompt": "tell me", "output_tokens": 3, "reply": " all"}
			 {"time": 12.5, "session": "u7", "blocks": ["x", 2], "block_tokens": 4, "input_tokens": 6, "output_tokens": 12, "status": 200}
			 {"time": 13, "input_tokens": 99}`,
			[]Request{
				{After: None, Session: "u7", Prompt: []Piece{{uint64(blockIDOf(t, `"x"`)), 4}, {2, 2}}, Input: 6, Output: 12},
				{After: None, Arrival: 500 * time.Millisecond, Prompt: []Piece{{ID(2, 0x6c6f67), 99}}, Input: 99, Output: 1},
				{After: None, Arrival: 7500 * time.Millisecond, Text: "tell me", Input: 2, Output: 3, ReplyText: " all"},
			}},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.read("in", strings.NewReader(c.in))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			w := &Workload{Name: c.name, Requests: got}
			if err := w.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

func blockIDOf(t *testing.T, s string) (b blockID) {
	if err := b.UnmarshalJSON([]byte(s)); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestLogOfMessages(t *testing.T) {
	in := `{"time": "2026-01-02T03:04:05Z", "messages": [{"role": "user", "content": "Hi"}], "output_tokens": 2, "reply": "Ho"}
{"time": "2026-01-02T03:04:06.5+00:00", "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}, {"role": "user", "content": "And?"}]}`
	rs, err := Log("in", strings.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	if rs[1].Arrival != 1500*time.Millisecond {
		t.Errorf("the second arrives after %v", rs[1].Arrival)
	}
	if !strings.HasPrefix(rs[1].Text, rs[0].Text+rs[0].ReplyText) {
		t.Errorf("%q does not go on from %q and %q", rs[1].Text, rs[0].Text, rs[0].ReplyText)
	}
}

func TestBadLines(t *testing.T) {
	const good = `{"timestamp": 9, "input_length": 1, "output_length": 5, "hash_ids": [0]}` + "\n"
	tests := []struct {
		read     reader
		in, want string
	}{
		{Mooncake, "", "in: is empty"},
		{Mooncake, good + `{"timestamp": 10, "input_length"`, "in:2: the object is cut short"},
		{Mooncake, good + `{"timestamp": 10, "input_length": "x"}`, "in:2: json: cannot unmarshal string"},
		{Mooncake, good + `{"timestamp": 3, "input_length": 1, "hash_ids": [0]}`, "in:2: timestamp 3 comes after 9"},
		{Mooncake, good + good + `{"timestamp": 10, "input_length": 513, "hash_ids": [0]}`,
			"in:3: 1 hash ids for 513 tokens; blocks of 512 make 2"},
		{Mooncake, good + `{"input_length": 1, "hash_ids": [0]}`, "in:2: no timestamp"},
		{Mooncake, good + `{"timestamp": 10, "input_length": 1, "output_length": -1, "hash_ids": [0]}`,
			"in:2: an output of -1 tokens"},
		{Mooncake, good + good + good[:70] + "} {}", "in:3: "},
		{Bailian, `{"timestamp": 0, "input_length": 1, "hash_ids": [0]}`, "in:1: no chat_id"},
		{Bailian, `{"chat_id": 1, "timestamp": 0, "input_length": 1, "hash_ids": [0, 1]}`, "in:1: 2 hash ids for 1 tokens"},
		{Azure, "TIME,A,B\n", "in:1: the columns are not"},
		{Azure, "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,374\n",
			"in: record on line 2: wrong number of fields"},
		{Azure, "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,374,1\n", `in:2: parsing time "yesterday"`},
		{Azure, "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,0,1\n", "in:2: a prompt of 0 tokens"},
		{Delta, `{"ts_us": 0, "session": "a", "keep": 1, "suffix": "x", "input_bytes": 2}`,
			"in:1: keep is 1; the prompt before has 0 bytes"},
		{Delta, `{"ts_us": 0, "session": "a", "keep": 0, "suffix": "x", "input_bytes": 2}`,
			"in:1: the prompt comes to 1 bytes"},
		{Log, `{"prompt": "x"}`, "in:1: no time"},
		{Log, `{"time": 1}`, "in:1: none of messages, prompt, blocks and input_tokens"},
		{Log, `{"time": 1, "prompt": "x", "blocks": [1]}`, "in:1: more than one of"},
		{Log, `{"time": 1, "prompt": "x"}` + "\n" + `{"time": "2026-01-02T03:04:05Z", "prompt": "x"}`,
			"in:2: time is in seconds in some lines"},
		{Log, `{"time": 1e300, "prompt": "x"}`, "in:1: time: "},
		{Log, `{"time": 1, "blocks": [true], "input_tokens": 3}`, "in:1: "},
		{Log, `{"time": 1, "blocks": [1], "block_tokens": -5}`, "in:1: block_tokens is -5"},
		{Log, `{"time": 1, "messages": [7]}`, "in:1: messages: "},
		{Tau, `[{"traj": []}]`, "in: has no trajectory"},
	}
	for _, c := range tests {
		_, err := c.read("in", strings.NewReader(c.in))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%.60q: %v, want %q", c.in, err, c.want)
		}
	}
}

func FuzzReaders(f *testing.F) {
	f.Add(`{"timestamp": 9, "input_length": 1, "output_length": 5, "hash_ids": [0]}`)
	f.Add(
		`{"chat_id": 5, "parent_chat_id": -1, "timestamp": 1.5, "input_length": 20, "output_length": 7, "hash_ids": [1, 2]}`)
	f.Add("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n")
	f.Add(`{"ts_us": 0, "session": "a", "keep": 0, "suffix": "hello you", "input_bytes": 9, "output": "fine"}`)
	f.Add(`{"time": 12.5, "session": "u7", "blocks": ["x", 2], "block_tokens": 4, "input_tokens": 6}`)
	f.Add(`{"time": 12.5, "messages": [{"role": "user", "content": "Hi"}], "reply": "x"}`)
	f.Add(`[{"traj": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}]`)
	f.Fuzz(func(t *testing.T, in string) {
		for i, read := range []reader{Mooncake, Bailian, Azure, Delta, Log, Tau} {
			rs, err := read("in", strings.NewReader(in))
			if err != nil {
				if rs != nil && i == 4 || !strings.HasPrefix(err.Error(), "in:") {
					t.Errorf("%v", err)
				}
				continue
			}
			w := &Workload{Requests: Spread(order(rs), quantum, 1)}
			if err := w.Check(); err != nil {
				t.Errorf("reader %d: %v", i, err)
			}
			if n := len(w.Requests); n > 0 && w.Requests[0].Input < 1<<12 {
				w.Requests = w.Requests[:1]
				w.Requests[0].PromptText()
				w.Blocks(16)
			}
		}
	})
}

func open(t *testing.T, name string) *os.File {
	f, err := os.Open(shareddata.Path(t, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		read     reader
		requests int
		input    int // tokens
	}{
		"mooncake/conversation_trace.jsonl":       {Mooncake, 12031, 144_793_823},
		"mooncake/synthetic_trace.jsonl":          {Mooncake, 3993, 61_194_628},
		"azure/AzureLLMInferenceTrace_conv.csv":   {Azure, 19366, 22_361_870},
		"azure/AzureLLMInferenceTrace_code.csv":   {Azure, 8819, 18_059_974},
		"agent_text/lmcache_miniswe.delta.jsonl":  {Delta, 402, 2_418_842},
		"agent_text/lmcache_magagent.delta.jsonl": {Delta, 0, 0},
		"taubench/gpt-4o-airline.json":            {Tau, 2454, 0},
	} {
		t.Run(name, func(t *testing.T) {
			rs, err := c.read(name, open(t, name))
			if err != nil {
				t.Fatal(err)
			}
			w := &Workload{Name: name, Requests: order(rs)}
			if err := w.Check(); err != nil {
				t.Fatal(err)
			}
			sum := 0
			for i := range rs {
				sum += rs[i].Input
			}
			t.Logf("%d requests, %d tokens", len(rs), sum)
			if c.requests > 0 && len(rs) != c.requests || c.input > 0 && sum != c.input {
				t.Errorf("want %d requests, %d tokens", c.requests, c.input)
			}
		})
	}
}

// TestTauGoesOn: each prompt begins with the one before it and its reply.
func TestTauGoesOn(t *testing.T) {
	rs, err := Tau("tau", open(t, "taubench/gpt-4o-airline.json"))
	if err != nil {
		t.Fatal(err)
	}
	broken := 0
	for _, r := range rs {
		if r.After != None && !strings.HasPrefix(r.Text, rs[r.After].Text+rs[r.After].ReplyText) {
			broken++
		}
		if r.ReplyText == "" {
			t.Fatal("a reply is not known")
		}
	}
	if broken > 0 {
		t.Errorf("%d of %d prompts do not go on from the reply before", broken, len(rs))
	}
}

func TestSources(t *testing.T) {
	shareddata.Path(t, "mooncake")
	for _, s := range Recorded(shareddata.Path(t, "")) {
		t.Run(s.Name, func(t *testing.T) {
			a, err := s.Build(s.Rates[0], 1)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := s.Build(2*s.Rates[0], 1)
			if len(a.Requests) != len(b.Requests) {
				t.Error("another rate gives other requests")
			}
			if x, y := span(a), span(b); x < y*3/2 {
				t.Errorf("twice the rate: %v instead of %v", y, x)
			}
		})
	}
}

func span(w *Workload) (last time.Duration) {
	for i := range w.Requests {
		if w.Requests[i].After == None {
			last = max(last, w.Requests[i].Arrival)
		}
	}
	return last
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	for i, in := range []string{
		`{"timestamp": 9, "input_length": 1, "output_length": 5, "hash_ids": [0]}`,
		`{"chat_id": 5, "parent_chat_id": -1, "timestamp": 1.5, "input_length": 20, "output_length": 7, "hash_ids": [1, 2]}`,
		"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n",
		`{"ts_us": 0, "session": "a", "keep": 0, "suffix": "hello you", "input_bytes": 9, "output": "fine"}`,
		`{"time": 12.5, "input_tokens": 6}`,
		`[{"traj": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}]`,
	} {
		path := fmt.Sprintf("%s/%d", dir, i)
		if err := os.WriteFile(path, []byte(in), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := File(path)
		if err != nil {
			t.Fatal(err)
		}
		if w, err := s.Build(1, 1); err != nil || len(w.Requests) != 1 {
			t.Errorf("file %d: %v", i, err)
		}
	}
	if err := os.WriteFile(dir+"/x", []byte("what?"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := File(dir + "/x"); err == nil {
		t.Error("an unknown form is no error")
	}
}
