package vllmtest_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/warmroute/router/vllmtest"
)

// fast is a replica with steps that take next to no time.
func fast(t testing.TB, cfg vllmtest.Config) *vllmtest.Server {
	t.Helper()
	if cfg.TimeScale == 0 && !cfg.Instant {
		cfg.TimeScale = 1e-4
	}
	s, err := vllmtest.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func post(t testing.TB, s *vllmtest.Server, path string, body any) *http.Response {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Client().Post(s.URL+path, "application/json", bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func call(t testing.TB, s *vllmtest.Server, path string, body, into any) {
	t.Helper()
	res := post(t, s, path, body)
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d: %s", path, res.StatusCode, b)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("%s: %v: %s", path, err, b)
	}
}

type obj = map[string]any

type openAIReply struct {
	Model   string
	Choices []struct {
		Index   int
		Message struct{ Role, Content string }
		Delta   struct{ Role, Content string }
		Text    string
		Finish  *string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt  int `json:"prompt_tokens"`
		Output  int `json:"completion_tokens"`
		Total   int `json:"total_tokens"`
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

// events returns the data lines of a stream.
func events(t testing.TB, r io.Reader) []string {
	t.Helper()
	var out []string
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if d, ok := strings.CutPrefix(sc.Text(), "data: "); ok {
			out = append(out, d)
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func tokens(t testing.TB, s *vllmtest.Server, body any) []uint32 {
	t.Helper()
	var r struct{ Tokens []uint32 }
	call(t, s, "/tokenize", body, &r)
	return r.Tokens
}

// A conversation's next turn finds all that the one before it has computed: its
// prompt and its reply but for the reply's last token, in whole blocks.
func TestNextTurnHitsPromptAndReply(t *testing.T) {
	for _, stream := range []bool{false, true} {
		for _, maxTokens := range []int{1, 2, 15, 16, 17, 40, 200} {
			t.Run(fmt.Sprintf("stream=%v/max=%d", stream, maxTokens), func(t *testing.T) {
				s := fast(t, vllmtest.Config{ReplyTokens: 60})
				msgs := []obj{{"role": "system", "content": strings.Repeat("You are a patient clerk.\n", 9)}}
				resident := 0
				for turn := range 4 {
					msgs = append(msgs, obj{"role": "user", "content": fmt.Sprintf("Question %d: où est la gare?", turn)})
					body := obj{"model": "m", "messages": msgs, "max_tokens": maxTokens, "stream": stream}
					var r openAIReply
					var text string
					if stream {
						body["stream_options"] = obj{"include_usage": true}
						text = readStream(t, post(t, s, "/v1/chat/completions", body).Body, &r)
					} else {
						call(t, s, "/v1/chat/completions", body, &r)
						text = r.Choices[0].Message.Content
					}
					prompt := len(tokens(t, s, obj{"messages": msgs}))
					if r.Usage.Prompt != prompt || r.Usage.Total != prompt+r.Usage.Output {
						t.Fatalf("turn %d: usage %+v, /tokenize says %d", turn, *r.Usage, prompt)
					}
					if want := min(resident, (prompt-1)/16) * 16; r.Usage.Details.Cached != want {
						t.Fatalf("turn %d: %d tokens cached, want %d", turn, r.Usage.Details.Cached, want)
					}
					if want := min(maxTokens, 60); r.Usage.Output != want {
						t.Fatalf("turn %d: %d tokens generated, want %d", turn, r.Usage.Output, want)
					}
					resident = (prompt + r.Usage.Output - 1) / 16
					msgs = append(msgs, obj{"role": "assistant", "content": text})
				}
			})
		}
	}
}

// readStream reads a chat's or a completion's stream, checks its shape and
// returns the text; r gets the usage.
func readStream(t testing.TB, body io.Reader, r *openAIReply) string {
	t.Helper()
	ev := events(t, body)
	if len(ev) < 3 || ev[len(ev)-1] != "[DONE]" {
		t.Fatalf("stream of %d events ends wrongly: %q", len(ev), ev)
	}
	var text, finish string
	for i, e := range ev[:len(ev)-1] {
		var c openAIReply
		if err := json.Unmarshal([]byte(e), &c); err != nil {
			t.Fatalf("event %d: %v: %s", i, err, e)
		}
		if c.Usage != nil {
			if i != len(ev)-2 || len(c.Choices) != 0 {
				t.Fatalf("usage in event %d of %d", i, len(ev))
			}
			r.Usage = c.Usage
			continue
		}
		if finish != "" {
			t.Fatalf("event after the finish: %s", e)
		}
		text += c.Choices[0].Delta.Content + c.Choices[0].Text
		if c.Choices[0].Finish != nil {
			finish = *c.Choices[0].Finish
		}
	}
	if finish != "stop" && finish != "length" {
		t.Fatalf("finish_reason %q", finish)
	}
	return text
}

func TestCompletionThatIsContinuedHits(t *testing.T) {
	for _, prompt := range []string{"Once upon a time", "ends in a newline\n", "ä", "x"} {
		s := fast(t, vllmtest.Config{})
		text := strings.Repeat("A story.\n", 10) + prompt
		resident := 0
		for turn := range 3 {
			var r openAIReply
			call(t, s, "/v1/completions", obj{"prompt": text, "max_tokens": 37, "ignore_eos": true}, &r)
			if want := min(resident, (r.Usage.Prompt-1)/16) * 16; r.Usage.Details.Cached != want {
				t.Fatalf("%q, turn %d: %d cached, want %d", prompt, turn, r.Usage.Details.Cached, want)
			}
			resident = (r.Usage.Prompt + 36) / 16
			text += r.Choices[0].Text
		}
	}
}

func TestTokenIDsAreTakenAsTheyAre(t *testing.T) {
	s := fast(t, vllmtest.Config{})
	ids := make([]uint32, 64)
	for i := range ids {
		ids[i] = uint32(i * 7)
	}
	var r openAIReply
	for i, want := range []int{0, 48} { // a wholly cached prompt computes its last block again
		r = openAIReply{}
		call(t, s, "/v1/completions", obj{"prompt": ids, "max_tokens": 1}, &r)
		if r.Usage.Prompt != 64 || r.Usage.Details.Cached != want {
			t.Fatalf("request %d: %+v, want 64 tokens, %d cached", i, *r.Usage, want)
		}
	}
	r = openAIReply{}
	call(t, s, "/v1/completions", obj{"prompt": [][]uint32{ids, ids[:20]}, "max_tokens": 3}, &r)
	if len(r.Choices) != 2 || r.Usage.Prompt != 84 || r.Usage.Output != 6 || r.Usage.Details.Cached != 48+16 {
		t.Fatalf("batch: %+v %+v", r.Choices, *r.Usage)
	}
	res := post(t, s, "/v1/completions", obj{"prompt": []string{"a", "b"}, "max_tokens": 3, "stream": true})
	seen := map[int]int{}
	for _, e := range events(t, res.Body) {
		var c openAIReply
		if e != "[DONE]" && json.Unmarshal([]byte(e), &c) == nil && c.Choices[0].Finish != nil {
			seen[c.Choices[0].Index]++
		}
	}
	if seen[0] != 1 || seen[1] != 1 || len(seen) != 2 {
		t.Fatalf("a streamed batch finished %v", seen)
	}
}

func TestScopesShareNothing(t *testing.T) {
	s := fast(t, vllmtest.Config{Model: "base", Adapters: []string{"lora-a", "lora-b"}})
	text := strings.Repeat("the same text for all ", 40)
	for _, model := range []string{"base", "lora-a", "lora-b"} {
		for _, salt := range []string{"", "tenant-1", "tenant-2"} {
			for i, hit := range []bool{false, true} {
				body := obj{"model": model, "prompt": text}
				if salt != "" {
					body["cache_salt"] = salt
				}
				var r openAIReply
				call(t, s, "/v1/completions", body, &r)
				if (r.Usage.Details.Cached > 0) != hit || r.Model != model {
					t.Errorf("%s/%s, request %d: %d cached", model, salt, i, r.Usage.Details.Cached)
				}
			}
		}
	}
	if res := post(t, s, "/v1/completions", obj{"model": "other", "prompt": "x"}); res.StatusCode != http.StatusNotFound {
		t.Errorf("unknown model: status %d", res.StatusCode)
	}
	var list struct {
		Data []struct {
			ID     string
			Parent *string
		}
	}
	res, err := s.Client().Get(s.URL + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	if len(list.Data) != 3 || list.Data[0].ID != "base" || list.Data[2].Parent == nil || *list.Data[2].Parent != "base" {
		t.Errorf("models: %+v", list.Data)
	}
}

type anthropicUsage struct {
	Input  int `json:"input_tokens"`
	Read   int `json:"cache_read_input_tokens"`
	Output int `json:"output_tokens"`
}

func TestMessages(t *testing.T) {
	s := fast(t, vllmtest.Config{ReplyTokens: 30})
	system := strings.Repeat("Be brief and kind. ", 20)
	first := obj{"model": "m", "max_tokens": 100, "system": system, "messages": []obj{{"role": "user",
		"content": "Hello"}}}
	var r struct {
		Type, Role string
		Content    []struct{ Type, Text string }
		Stop       string `json:"stop_reason"`
		Usage      anthropicUsage
	}
	call(t, s, "/v1/messages", first, &r)
	if r.Type != "message" || r.Role != "assistant" || r.Stop != "end_turn" || r.Usage.Output != 30 ||
		r.Usage.Read != 0 || len(r.Content) != 1 {
		t.Fatalf("%+v", r)
	}
	prompt := r.Usage.Input

	// Blocks, rolling cache_control, a new billing line: the same conversation.
	next := obj{
		"model": "m", "max_tokens": 10, "stream": true,
		"system": []obj{
			{"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=eb6c6;"},
			{"type": "text", "text": system, "cache_control": obj{"type": "ephemeral"}},
		},
		"messages": []obj{
			{"role": "user", "content": []obj{{"type": "text", "text": "Hello", "cache_control": obj{"type": "ephemeral"}}}},
			{"role": "assistant", "content": r.Content},
			{"role": "user", "content": "And then?"},
		},
	}
	res := post(t, s, "/v1/messages", next)
	var kinds []string
	var text, stop string
	var usage anthropicUsage
	for _, e := range events(t, res.Body) {
		var ev struct {
			Type    string
			Message struct{ Usage anthropicUsage }
			Delta   struct {
				Text string
				Stop string `json:"stop_reason"`
			}
			Usage anthropicUsage
		}
		if err := json.Unmarshal([]byte(e), &ev); err != nil {
			t.Fatalf("%v: %s", err, e)
		}
		if len(kinds) == 0 || kinds[len(kinds)-1] != ev.Type {
			kinds = append(kinds, ev.Type)
		}
		text += ev.Delta.Text
		switch ev.Type {
		case "message_start":
			usage = ev.Message.Usage
		case "message_delta":
			usage, stop = ev.Usage, ev.Delta.Stop
		}
	}
	if got, want := strings.Join(kinds, " "),
		"message_start content_block_start content_block_delta content_block_stop message_delta message_stop"; got != want {
		t.Errorf("events %s", got)
	}
	if want := (prompt + 29) / 16 * 16; usage.Read != want || usage.Output != 10 || stop != "max_tokens" ||
		len(text) != 40 {
		t.Errorf("usage %+v, want %d read; stop %q, text %q", usage, want, stop, text)
	}
	// The same conversation by the chat API is the same prompt.
	var c openAIReply
	call(t, s, "/v1/chat/completions", obj{"max_tokens": 1, "messages": []obj{{"role": "system", "content": system},
		{"role": "user", "content": "Hello"}}}, &c)
	if c.Usage.Prompt != prompt || c.Usage.Details.Cached != (prompt-1)/16*16 {
		t.Errorf("chat: %+v, want %d tokens", *c.Usage, prompt)
	}
}

func TestRefusals(t *testing.T) {
	s := fast(t, vllmtest.Config{Model: "m", Blocks: 16, MaxBody: 2000})
	hi := []obj{{"role": "user", "content": "hi"}}
	for _, c := range []struct {
		path   string
		body   any
		status int
	}{
		{"/v1/chat/completions", obj{}, 400},
		{"/v1/chat/completions", obj{"messages": "x"}, 400},
		{"/v1/chat/completions", obj{"messages": []obj{{"role": "user", "content": 7}}}, 400},
		{"/v1/chat/completions", obj{"messages": hi, "n": 2}, 400},
		{"/v1/chat/completions", obj{"messages": hi, "max_tokens": 0}, 400},
		{"/v1/chat/completions", obj{"messages": hi, "max_tokens": 1000}, 400},
		{"/v1/chat/completions", obj{"messages": []obj{{"role": "user", "content": strings.Repeat("long", 256)}}}, 400},
		{"/v1/chat/completions", obj{"messages": []obj{{"role": "user", "content": strings.Repeat("long", 600)}}}, 413},
		{"/v1/completions", obj{"prompt": []int{}}, 400},
		{"/v1/completions", obj{"prompt": []int{-1}}, 400},
		{"/v1/messages", obj{"messages": hi}, 400},
		{"/v1/completions", obj{"prompt": "x", "model": "nobody"}, 404},
		{"/tokenize", obj{}, 400},
		{"/v1/nothing", obj{}, 404},
	} {
		res := post(t, s, c.path, c.body)
		b, _ := io.ReadAll(res.Body)
		var e struct {
			Error struct{ Message string }
		}
		if err := json.Unmarshal(b, &e); res.StatusCode != c.status || err != nil || e.Error.Message == "" {
			t.Errorf("%s %v: status %d, want %d: %s", c.path, c.body, res.StatusCode, c.status, b)
		}
	}
	if st := s.Stats(); st.Requests != 12 || st.Failed != 12 || st.BlocksUsed != 0 || st.Running != 0 {
		t.Errorf("%+v", st)
	}
}

func TestRepliesAreDeterministic(t *testing.T) {
	var texts []string
	for range 2 {
		s := fast(t, vllmtest.Config{})
		for _, p := range []string{"one", "two"} {
			var r openAIReply
			call(t, s, "/v1/chat/completions", obj{"messages": []obj{{"role": "user", "content": p}}}, &r)
			texts = append(texts, r.Choices[0].Message.Content)
		}
	}
	if texts[0] != texts[2] || texts[1] != texts[3] || texts[0] == texts[1] {
		t.Errorf("%q", texts)
	}
}
