package vllmtest

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReturnTokenIDs: what a reply says of its prompt's ids is what /tokenize
// says, and the ids of the output are those that the next prompt has for it.
func TestReturnTokenIDs(t *testing.T) {
	s := NewServer(Config{ReplyTokens: 7, TimeScale: 1e-6})
	defer s.Close()
	post := func(path, body string) string {
		t.Helper()
		resp, err := s.Client().Post(s.URL+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s, %v: %s", resp.Status, err, b)
		}
		return string(b)
	}
	type object struct {
		Prompt  []uint32 `json:"prompt_token_ids"`
		Choices []struct {
			Prompt  []uint32 `json:"prompt_token_ids"`
			Tokens  []uint32 `json:"token_ids"`
			Text    string
			Message struct{ Content string }
			Delta   struct{ Content string }
		}
	}
	for _, c := range []struct{ path, text string }{
		{pathChat, `"messages":[{"role":"user","content":"What is the weather?"}]`},
		{pathCompletions, `"prompt":"What is the weather?","max_tokens":20`},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprint(c.path, stream), func(t *testing.T) {
				var want struct{ Tokens []uint32 }
				if err := json.Unmarshal([]byte(post(pathTokenize, "{"+c.text+"}")), &want); err != nil {
					t.Fatal(err)
				}
				body := post(c.path, fmt.Sprintf(`{%s,"stream":%v,"return_token_ids":true}`, c.text, stream))
				var prompt, output []uint32
				var text string
				events := []string{body}
				if stream {
					events = strings.Split(strings.TrimSpace(body), "\n\n")
				}
				for _, e := range events {
					if e = strings.TrimPrefix(e, "data: "); e == "[DONE]" {
						break
					}
					var o object
					if err := json.Unmarshal([]byte(e), &o); err != nil {
						t.Fatalf("%v: %s", err, e)
					}
					prompt = append(prompt, o.Prompt...)
					for _, ch := range o.Choices {
						prompt = append(prompt, ch.Prompt...)
						output = append(output, ch.Tokens...)
						text += ch.Text + ch.Message.Content + ch.Delta.Content
					}
				}
				if d := cmp.Diff(want.Tokens, prompt); d != "" {
					t.Errorf("prompt: %s", d)
				}
				if d := cmp.Diff(append(appendTokens(nil, text), tokEnd), output); d != "" {
					t.Errorf("output: %s", d)
				}
			})
		}
	}
	if b := post(pathChat, `{"messages":[{"role":"user","content":"x"}]}`); strings.Contains(b, "token_ids") {
		t.Errorf("ids that nobody asked for: %s", b)
	}
}
