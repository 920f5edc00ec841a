package prompt_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/warmroute/router/prompt"
)

func headers(kv ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(kv); i += 2 {
		h.Set(kv[i], kv[i+1])
	}
	return h
}

const uuid = "0d1f3f3e-1111-4222-8333-944455556666"

// TestSession has requests and the keys they name.
func TestSession(t *testing.T) {
	long := strings.Repeat("k", prompt.MaxSession)
	for _, c := range []struct {
		name string
		h    http.Header
		body string
		want string
	}{
		{"none", headers(), `{}`, ""},
		{"session", headers("X-Session-Id", "k", "X-Claude-Code-Session-Id", "c", "session-id", "d"),
			`{"prompt_cache_key":"p"}`, "x-session-id:0::k"},
		{"Claude Code", headers("X-Claude-Code-Session-Id", "c", "session-id", "d"), `{}`, "x-claude-code-session-id:0::c"},
		{"its sub-agent", headers("X-Claude-Code-Session-Id", "c", "X-Claude-Code-Agent-Id", "a"), `{}`,
			"x-claude-code-session-id/agent:0::1:c:a"},
		{"metadata", headers("session-id", "d"), `{"metadata":{"user_id":"{\"device_id\":\"x\",\"session_id\":\"s\"}"}}`,
			"body.metadata.user_id:0::s"},
		{"older metadata", headers(), `{"metadata":{"user_id":"user_ab12_account_` + uuid + `_session_` + uuid + `"}}`,
			"body.metadata.user_id:0::" + uuid},
		{"its sub-agent", headers("X-Claude-Code-Agent-Id", "a"), `{"metadata":{"user_id":"{\"session_id\":\"s\"}"}}`,
			"body.metadata.user_id/agent:0::1:s:a"},
		{"a user is no session", headers(), `{"metadata":{"user_id":"user_ab12"},"user":"u","previous_response_id":"r"}`, ""},
		{"nor is a JSON user", headers(), `{"metadata":{"user_id":"{\"device_id\":\"x\"}"}}`, ""},
		{"nor these", headers("X-Request-Id", "r", "X-Client-Request-Id", "r", "X-Parent-Session-Id", "p",
			"X-Claude-Code-Agent-Id", "a"), `{"previous_response_id":"r"}`, ""},
		{"Codex", headers("session-id", "k", "session_id", "l"), `{}`, "session-id:0::k"},
		{"older Codex", headers("session_id", "k"), `{}`, "session_id:0::k"},
		{"as made by hand", http.Header{"session_id": {"k"}}, `{}`, "session_id:0::k"},
		{"thread", headers("thread-id", "k"), `{}`, "thread-id:0::k"},
		{"conversation header", headers("conversation_id", "k"), `{}`, "conversation_id:0::k"},
		{"affinity", headers("x-session-affinity", "k", "x-amp-thread-id", "l"), `{"prompt_cache_key":"p"}`,
			"x-session-affinity:0::k"},
		{"OpenCode", headers("x-opencode-session", "k"), `{}`, "x-opencode-session:0::k"},
		{"Amp", headers("x-amp-thread-id", "k"), `{}`, "x-amp-thread-id:0::k"},
		{"cache key", headers(), `{"conversation":"c","prompt_cache_key":"p"}`, "body.prompt_cache_key:0::p"},
		{"conversation", headers(), `{"conversation":{"id":"c"},"conversation_id":"d"}`, "body.conversation:0::c"},
		{"conversation id", headers(), `{"conversation_id":"d"}`, "body.conversation_id:0::d"},
		{"long", headers("X-Session-Id", long), `{}`, "x-session-id:0::" + long},
		{"too long, so the next", headers("X-Session-Id", long+"k", "session-id", "d"), `{}`, "session-id:0::d"},
		{"control character", headers("X-Session-Id", "a\x01b"), `{"prompt_cache_key":"a\nb"}`, ""},
		{"C1 control character", headers("X-Session-Id", "a\u0085b"), `{}`, ""},
		{"blank", headers("X-Session-Id", "  "), `{}`, ""},
	} {
		p, err := prompt.FromRequest("/v1/responses", c.h, []byte(c.body))
		if err != nil || p.Session != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, p.Session, err, c.want)
		}
	}
	p, err := prompt.FromChat([]byte(`{"prompt_cache_key":"p"}`))
	if err != nil || p.Session != "body.prompt_cache_key:0::p" {
		t.Errorf("a body alone: %q, %v", p.Session, err)
	}
}

// TestSessionsApart has requests of which no two may share a session.
func TestSessionsApart(t *testing.T) {
	r := prompt.Parser{Tenant: func(h http.Header) string { return h.Get("Authorization") }}
	seen := map[string]int{}
	for i, h := range []http.Header{
		headers("X-Session-Id", "k"),
		headers("session-id", "k"),
		headers("session_id", "k"),
		headers("conversation_id", "k"),
		headers("X-Session-Id", "k", "Authorization", "t"),
		headers("X-Session-Id", "t:k"),
		headers("X-Session-Id", ":k", "Authorization", "t"),
		headers("X-Session-Id", "k", "Authorization", "t:"),
		headers("X-Claude-Code-Session-Id", "a", "X-Claude-Code-Agent-Id", "b:c"),
		headers("X-Claude-Code-Session-Id", "a:b", "X-Claude-Code-Agent-Id", "c"),
		headers("X-Claude-Code-Session-Id", "a:b:c"),
		headers("X-Claude-Code-Session-Id", "1:a:b:c"),
		headers("X-Session-Id", "k", "Authorization", strings.Repeat("t", 9999)),
		headers("X-Session-Id", "k", "Authorization", strings.Repeat("t", 9998)+"u"),
	} {
		p, err := r.FromRequest("/v1/chat/completions", h, []byte(`{}`))
		if err != nil || p.Session == "" || len(p.Session) > 2048 {
			t.Fatalf("%d: %q, %v", i, p.Session, err)
		}
		if j, ok := seen[p.Session]; ok {
			t.Errorf("%d and %d share %q", i, j, p.Session)
		}
		seen[p.Session] = i
	}
}

func TestPaths(t *testing.T) {
	const body = `{"model":"m","messages":[{"role":"user","content":"chat"}],"prompt":"prompt","input":"input","text":"text","query":"query"}`
	for path, want := range map[string]string{
		"/v1/chat/completions":                  u + "chat",
		"/openai/v1/chat/completions?api=1":     u + "chat",
		"/v1/completions":                       "prompt",
		"/v1/responses/":                        u + "input",
		"/prefix/v1/messages?beta=true":         u + "chat",
		"/v1/embeddings":                        "input",
		"/generate":                             "text",
		"/completion":                           "prompt",
		"/v1/rerank":                            "query",
		"/v1/moderations":                       "",
		"/api/generate":                         "",
		"/v1/messages/count_tokens":             "",
		"/?x=/v1/chat/completions":              "",
		"":                                      "",
		"/v1/audio/transcriptions":              "",
		"/v1/chat/completions/../../etc/passwd": "",
	} {
		var told []string
		r := prompt.Parser{Unknown: func(path string, err error) { told = append(told, path+": "+err.Error()) }}
		p, err := r.FromRequest(path, headers("X-Session-Id", "k"), []byte(body))
		if err != nil || p.Text != want || p.Model != "m" || p.Session == "" {
			t.Errorf("%s: %+v, %v", path, p, err)
		}
		if (len(told) == 1) != (want == "") {
			t.Errorf("%s: told %q", path, told)
		}
	}
	for _, body := range []string{"", "\x00\x01--boundary", `{"model":"m"`, `[1]`} {
		if p, err := prompt.FromRequest("/v1/audio/transcriptions", nil, []byte(body)); err != nil || p.Text != "" {
			t.Errorf("%q on an unknown path: %+v, %v", body, p, err)
		}
	}
	n := 0
	r := prompt.Parser{Unknown: func(string, error) { n++ }}
	if _, err := r.FromRequest("/v1/messages", nil, []byte(`{`)); !errors.Is(err, prompt.ErrSyntax) || n != 1 {
		t.Errorf("a broken body: %v, told %d times", err, n)
	}
}

func TestTokenIDs(t *testing.T) {
	for in, want := range map[string][]uint32{
		"1":                          {1},
		"1,2,3":                      {1, 2, 3},
		"0, 4294967295":              {0, 4294967295},
		"1 ,\t2\t , 3":               {1, 2, 3},
		"007":                        {7},
		"":                           nil,
		" 1":                         nil,
		"1 ":                         nil,
		"1,":                         nil,
		",1":                         nil,
		"1,,2":                       nil,
		"1 2":                        nil,
		"+1":                         nil,
		"-1":                         nil,
		"1.0":                        nil,
		"0x1":                        nil,
		"4294967296":                 nil,
		"1\n,2":                      nil,
		"99999999999999999999999999": nil,
	} {
		got, err := prompt.ParseTokenIDs(in)
		if diff := cmp.Diff(want, got); diff != "" || (err == nil) != (want != nil) || err != nil &&
			!errors.Is(err, prompt.ErrBadTokenIDs) {
			t.Errorf("%q: %v (-want +got)\n%s", in, err, diff)
		}
	}
	body := []byte(`{"prompt":[9]}`)
	p, err := prompt.FromRequest("/v1/completions", headers("X-Rolter-Vllm-Token-Ids", "1, 2"), body)
	if diff := cmp.Diff([]uint32{1, 2}, p.Tokens); diff != "" || err != nil {
		t.Errorf("header: %v\n%s", err, diff)
	}
	p, err = prompt.FromRequest("/v1/completions", headers("x-rolter-vllm-token-ids", "1,x"), body)
	if diff := cmp.Diff([]uint32{9}, p.Tokens); diff != "" || !errors.Is(err, prompt.ErrBadTokenIDs) {
		t.Errorf("bad header: %v\n%s", err, diff)
	}
}

func ExampleFromRequest() {
	body := []byte(`{"model":"llama","messages":[
		{"role":"system","content":"You are brief."},
		{"role":"user","content":[{"type":"text","text":"Hello"}]}]}`)
	h := http.Header{"X-Session-Id": {"chat-7"}}
	p, err := prompt.FromRequest("/v1/chat/completions", h, body)
	fmt.Printf("%s %q %s %v\n", p.Model, p.Text, p.Session, err)
	// Output: llama "\xffsYou are brief.\xffuHello" x-session-id:0::chat-7 <nil>
}
