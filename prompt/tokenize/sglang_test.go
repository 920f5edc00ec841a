package tokenize

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
)

// sglang answers /tokenize as SGLang does: version 0.5.23 takes exactly one of prompt and messages, leaves out the
// tools that tool_choice does not name, and has no token_strs; before, messages are no member, and a prompt is
// required. Each tool is one id here, and each message two.
func sglang(t *testing.T, chats bool) string {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Prompt   *string
			Messages []json.RawMessage
			Tools    []struct{ Function struct{ Name string } }
			Choice   json.RawMessage `json:"tool_choice"`
		}
		b, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(b, &q)
		}
		if err != nil || !chats && q.Prompt == nil || (q.Prompt == nil) == (q.Messages == nil) {
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"object":"error","message":"1 validation error","type":"BadRequestError","code":400}`)
			return
		}
		var named struct{ Function struct{ Name string } }
		_ = json.Unmarshal(q.Choice, &named) // a string names none
		out := []uint32{}
		for _, tool := range q.Tools {
			if named.Function.Name == "" || named.Function.Name == tool.Function.Name {
				out = append(out, 7)
			}
		}
		for range q.Messages {
			out = append(out, 8, 9)
		}
		if q.Prompt != nil {
			out = append(out, 5)
		}
		json.NewEncoder(w).Encode(map[string]any{"tokens": out, "count": len(out), "max_model_len": 131072})
	})
}

// TestSGLang: the ids of chats come from SGLang from 0.5.23 on, with the tools that its prompt has.
func TestSGLang(t *testing.T) {
	c := newClient(t, Config{}, sglang(t, true))
	const tools = `"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}]`
	for body, want := range map[string][]uint32{
		`{"model":"m","messages":[{"role":"user","content":"x"}],"add_generation_prompt":true}`:                                {8, 9},
		`{"model":"m","messages":[{"role":"user","content":"x"}],` + tools + `}`:                                               {7, 7, 8, 9},
		`{"messages":[{"role":"user","content":"x"}],"tool_choice":"required",` + tools + `}`:                                  {7, 7, 8, 9},
		`{"messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"function","function":{"name":"g"}},` + tools + `}`: {7, 8, 9},
	} {
		if got, err := c.Tokens(t.Context(), chatPath, nil, []byte(body)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", body, got, err, want)
		}
	}
	if got, err := c.Tokens(t.Context(), textPath, nil, []byte(`{"prompt":"x"}`)); err != nil || !slices.Equal(got, []uint32{5}) {
		t.Error(got, err)
	}
	old := newClient(t, Config{}, sglang(t, false))
	if _, err := old.Tokens(t.Context(), chatPath, nil, chat("x")); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
	if _, err := old.Tokens(t.Context(), textPath, nil, []byte(`{"prompt":"x"}`)); err != nil {
		t.Error(err)
	}
}
