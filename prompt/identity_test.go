package prompt_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/warmroute/router/prompt"
)

// TestConversationKeys: Codex's sub-agents share their root's session-id and have a thread-id of their own, which
// comes first.
func TestConversationKeys(t *testing.T) {
	for _, c := range []struct {
		h    http.Header
		want string
	}{
		{headers("session-id", "run", "thread-id", "a"), "thread-id:0::a"},
		{headers("session_id", "run", "thread_id", "a"), "thread_id:0::a"},
		{headers("session-id", "run", "thread_id", "a"), "thread_id:0::a"},
		{headers("session_id", "run", "conversation_id", "a"), "conversation_id:0::a"},
		{headers("session-id", "run"), "session-id:0::run"},
		{headers("session-id", "run", "thread-id", "bad\x01"), "session-id:0::run"},
		{http.Header{"thread_id": {"a"}, "session_id": {"run"}}, "thread_id:0::a"},
		{headers("x-session-id", "s", "thread-id", "a"), "x-session-id:0::s"},
	} {
		if p, err := prompt.FromRequest("/v1/responses", c.h, []byte(`{"prompt_cache_key":"run"}`)); err != nil ||
			p.Session != c.want {
			t.Errorf("%v: %q, %v; want %q", c.h, p.Session, err, c.want)
		}
	}
}

// TestBesideMessages: content outside of the messages decides about the prompt too.
func TestBesideMessages(t *testing.T) {
	for _, c := range []struct{ path, form, one, two string }{
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"documents":%s}`,
			`[{"title":"a","text":"one"}]`, `[{"title":"a","text":"two"}]`},
		{"/v1/chat/completions", `{"chat_template":%s,"messages":[{"role":"user","content":"x"}]}`, `"one"`, `"two"`},
		{"/v1/messages", `{"chat_template":%s,"messages":[{"role":"user","content":"x"}]}`, `"one"`, `"two"`},
		{"/v1/responses", `{"input":"x","previous_input_messages":%s}`, `[{"role":"user","content":"one"}]`,
			`[{"role":"user","content":"two"}]`},
		{"/v1/responses", `{"input":"x","prompt":%s}`, `{"id":"one"}`, `{"id":"one","variables":{"a":"b"}}`},
		{"/v1/completions", `{"prompt":"x","prompt_embeds":%s}`, `"b25l"`, `"dHdv"`},
		{"/v1/completions", `{"prompt_embeds":%s}`, `["b25l"]`, `["dHdv"]`},
	} {
		text := func(value string) string {
			p, err := prompt.FromRequest(c.path, nil, []byte(fmt.Sprintf(c.form, value)))
			if err != nil {
				t.Errorf("%s, %s: %v", c.form, value, err)
			}
			return p.Text
		}
		none, one, two := text("null"), text(c.one), text(c.two)
		if one == two || one == none || two == none {
			t.Errorf("%s: %q and %q, without %q", c.form, one, two, none)
		}
		if !strings.HasSuffix(one, none) && c.path != "/v1/responses" {
			t.Errorf("%s: %q does not come before %q", c.form, one, none)
		}
	}
	// The messages of before go on in the input.
	p, _ := prompt.FromRequest("/v1/responses", nil,
		[]byte(`{"input":"y","previous_input_messages":[{"role":"user","content":"x"},{"role":"assistant","content":"a"}]}`))
	if want := u + "x" + a + "a" + u + "y"; p.Text != want {
		t.Errorf("%q, want %q", p.Text, want)
	}
}

// TestPartsWithoutType: a part without a type is what its members make of it, as in vLLM.
func TestPartsWithoutType(t *testing.T) {
	text := func(part string) string {
		p, err := prompt.FromChat([]byte(`{"messages":[{"role":"user","content":[` + part + `]}]}`))
		if err != nil {
			t.Errorf("%s: %v", part, err)
		}
		return p.Text
	}
	for untyped, typed := range map[string]string{
		`{"text":"x"}`:                                `{"type":"text","text":"x"}`,
		`{"image_url":{"url":"http://a"}}`:            `{"type":"image_url","image_url":{"url":"http://a"}}`,
		`{"image_url":"http://a"}`:                    `{"type":"image_url","image_url":{"url":"http://a"}}`,
		`{"video_url":{"url":"http://a"}}`:            `{"type":"video_url","video_url":{"url":"http://a"}}`,
		`{"input_audio":{"data":"AA=="}}`:             `{"type":"input_audio","input_audio":{"data":"AA=="}}`,
		`{"refusal":"no"}`:                            `{"type":"refusal","refusal":"no"}`,
		`{"image_url":null,"text":"x"}`:               `{"type":"text","text":"x"}`,
		`{"audio_url":{"url":"data:,a"}}`:             `{"type":"audio_url","audio_url":{"url":"data:,a"}}`,
		`{"image_embeds":{"image":"AA=="}}`:           `{"type":"image_embeds","image_embeds":{"image":"AA=="}}`,
		`"x",{"file":{"file_data":"AA=="}}`:           `"x",{"type":"file","file":{"file_data":"AA=="}}`,
		`{"image_url":{"url":"http://a"},"uuid":"u"}`: `{"type":"image_url","image_url":{"url":"http://a"},"uuid":"u"}`,
	} {
		if got, want := text(untyped), text(typed); got != want {
			t.Errorf("%s: %q, with its type %q", untyped, got, want)
		}
	}
}

// TestUnknownBlocks: large data in a block or an item that is not known is not copied into the text, other data are
// another text, and short values stand as they are.
func TestUnknownBlocks(t *testing.T) {
	data := func(seed byte) string { return strings.Repeat("iVBORw0KGgo"+string(seed), 90_000) }
	for _, c := range []struct{ path, form string }{
		{"/v1/responses", `{"input":[{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,%s"}}]}`},
		{"/v1/responses", `{"input":[{"type":"image_generation_call","id":"ig_1","status":"completed","result":"%s"}]}`},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"hologram","hologram":{"points":"%s"}}]}]}`},
		{"/v1/messages", `{"messages":[{"role":"user","content":[{"type":"hologram","source":{"bytes":"%s=="}}]}]}`},
	} {
		var texts []string
		for _, d := range []string{data('A'), data('A'), data('B')} {
			p, err := prompt.FromRequest(c.path, nil, []byte(fmt.Sprintf(c.form, d)))
			if err != nil || len(p.Text) > 1000 {
				t.Errorf("%s: %d bytes, %v", c.form, len(p.Text), err)
			}
			texts = append(texts, p.Text)
		}
		if texts[0] != texts[1] || texts[0] == texts[2] {
			t.Errorf("%s: %q and %q", c.form, texts[0], texts[2])
		}
	}
	prose := strings.Repeat("a text of some words, ", 1000)
	p, _ := prompt.FromRequest("/v1/responses", nil, []byte(`{"input":[{"type":"note","text":"`+prose+`"}]}`))
	if !strings.Contains(p.Text, prose) {
		t.Errorf("prose became %.100q", p.Text)
	}
}

// TestUnknownItems: an item of a reply has an id and a status, which clients leave out when they send it back.
func TestUnknownItems(t *testing.T) {
	text := func(item string) string {
		p, err := prompt.FromResponses([]byte(`{"input":[` + item + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		return p.Text
	}
	whole := `{"id":"ws_1","type":"web_search_call","status":"completed","action":{"id":"kept","type":"search","query":"x"}}`
	bare := text(`{"type":"web_search_call","action":{"id":"kept","type":"search","query":"x"}}`)
	if got := text(whole); got != bare || !strings.Contains(got, "kept") {
		t.Errorf("%q, sent back %q", got, bare)
	}
	for _, reply := range []string{
		`{"object":"response","output":[` + whole + `]}`,
		events(`{"type":"response.output_item.added","output_index":0,"item":{"id":"ws_1","type":"web_search_call","status":"in_progress"}}`,
			`{"type":"response.output_item.done","output_index":0,"item":`+whole+`}`),
	} {
		var r prompt.Reply
		r.Write([]byte(reply))
		if r.Text() != bare {
			t.Errorf("a reply's %q, sent back %q", r.Text(), bare)
		}
	}
}

// TestPythonJSON: engines read bodies with Python's reader, which takes more than RFC 8259.
func TestPythonJSON(t *testing.T) {
	want := u + "x"
	for _, body := range []string{
		`{"temperature":NaN,"messages":[{"role":"user","content":"x"}]}`,
		`{"messages":[{"role":"user","content":"x"}],"logit_bias":{"1":Infinity,"2":-Infinity}}`,
		"\xef\xbb\xbf" + `{"messages":[{"role":"user","content":"x"}]}`,
	} {
		if p, err := prompt.FromChat([]byte(body)); err != nil || p.Text != want {
			t.Errorf("%q: %q, %v", body, p.Text, err)
		}
	}
	for _, body := range []string{`{"a":nan}`, `{"a":-NaN}`, `{"a":Infinit}`, `{"a":+Infinity}`, `{"a":Infinityx}`,
		"\xef\xbb{}", `{"a":01}`} {
		if _, err := prompt.FromChat([]byte(body)); !errors.Is(err, prompt.ErrSyntax) {
			t.Errorf("%q: %v", body, err)
		}
	}
	p, _ := prompt.FromChat([]byte(`{"tools":[{"a":NaN}],"messages":[{"role":"user","content":"x"}]}`))
	if want := "\xffd" + `{"a":NaN}` + u + "x"; p.Text != want {
		t.Errorf("%q", p.Text)
	}
}

// TestScopeBound: names of any length are short in a scope, and others are others.
func TestScopeBound(t *testing.T) {
	long := strings.Repeat("x", prompt.MaxScope)
	seen := map[string]bool{}
	for _, member := range []string{"model", "cache_salt", "lora_path", "extra_key"} {
		for _, value := range []string{long, long + "x", long + "y", strings.Repeat("z", 1<<20)} {
			p, err := prompt.FromChat([]byte(`{"messages":[],"` + member + `":"` + value + `"}`))
			if err != nil || max(len(p.Model), len(p.Adapter), len(p.Salt)) > prompt.MaxScope || seen[p.Scope()] {
				t.Errorf("%s of %d bytes: %.100v, %v", member, len(value), p, err)
			}
			if member != "extra_key" && len(value) == prompt.MaxScope && p.Model+p.Salt+p.Adapter != value {
				t.Errorf("%s: one of the greatest length was changed", member)
			}
			seen[p.Scope()] = true
		}
	}
}

// TestScopeNames: whatever separates caches in an engine is in the scope, by every name that it has.
func TestScopeNames(t *testing.T) {
	seen := map[string]string{}
	for _, member := range []string{
		``, `"cache_salt":"a",`, `"cache_salt":"b",`, `"extra_key":"a",`, `"extra_key":["b"],`,
		`"cache_salt":"a","extra_key":"b",`,
		`"lora_path":"a",`, `"lora_request":{"lora_name":"b","lora_int_id":1,"lora_path":"/p"},`,
	} {
		for _, c := range []struct{ path, rest string }{
			{"/v1/chat/completions", `"messages":[]`}, {"/v1/completions", `"prompt":"x"`}, {"/v1/responses", `"input":"x"`},
			{"/v1/messages", `"messages":[]`}, {"/generate", `"text":"x"`},
		} {
			p, err := prompt.FromRequest(c.path, nil, []byte(`{`+member+c.rest+`}`))
			if err != nil {
				t.Errorf("%s, %s: %v", c.path, member, err)
			}
			if other, ok := seen[p.Scope()]; ok && other != member {
				t.Errorf("%s: %s and %s have one scope", c.path, member, other)
			}
			seen[p.Scope()] = member
		}
	}
	if len(seen) != 8 {
		t.Errorf("%d scopes", len(seen))
	}
}
