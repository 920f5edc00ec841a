package prompt_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	router "github.com/warmroute/router"
	"github.com/warmroute/router/prompt"
)

type reader = func([]byte) (router.Prompt, error)

var readers = map[string]reader{
	"chat":       prompt.FromChat,
	"completion": prompt.FromCompletion,
	"responses":  prompt.FromResponses,
	"messages":   prompt.FromMessages,
	"embeddings": prompt.FromEmbeddings,
}

func text(t testing.TB, api, body string) string {
	t.Helper()
	p, err := readers[api]([]byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if len(p.Text) > 2*len(body)+1024 {
		t.Fatalf("%s: %d bytes of text", body, len(p.Text))
	}
	return p.Text
}

const u, a, s = "\xffu", "\xffa", "\xffs"

// TestText pins the canonical text of one body each.
func TestText(t *testing.T) {
	for _, c := range []struct{ name, api, body, want string }{
		{"turns", "chat", `{"messages":[{"role":"system","content":"S"},{"role":"user","content":"U"},{"role":"assistant","content":"A"}]}`, s + "S" + u + "U" + a + "A"},
		{"members in any order", "chat",
			`{"messages":[{"tool_calls":[{"function":{"arguments":"{}","name":"f"},"id":"1"}],"content":"A","reasoning_content":"R","role":"assistant"}]}`, a + "\xffrR\xffxA\xffcf\xffj{}"},
		{"tools go first", "chat",
			`{"messages":[{"role":"user","content":"U"}],"tools":[{"type":"function", "function": {"name":"f","cache_control":null}}]}`, "\xffd" + `{"type":"function","function":{"name":"f"}}` + u + "U"},
		{"last of doubles", "chat",
			`{"messages":[{"role":"user","content":"x"}],"messages":[{"role":"user","content":"y","content":"U"}]}`, u + "U"},
		{"escapes", "chat", `{"mess\u0061ges":[{"role":"us\u0065r","content":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00\ud83dx"}]}`,
			u + "\"\\/\b\f\n\r\té😀\ufffdx"},
		{"unknown role", "chat", `{"messages":[{"content":"U","role":"judge"}]}`, "\xffojudge\xffxU"},
		{"name", "chat", `{"messages":[{"role":"user","content":"U","name":"bob"}]}`, u + "\xffnbob\xffxU"},
		{"refusal", "chat", `{"messages":[{"role":"assistant","refusal":"no","content":null}]}`, a + "\xffkno"},
		{"tool result", "chat", `{"messages":[{"role":"tool","tool_call_id":"1","content":"R"}]}`, "\xfftR"},
		{"function call", "chat",
			`{"messages":[{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{ }"}}]}`, a +
				"\xffcf\xffj{ }"},
		{"system and instructions", "messages",
			`{"messages":[{"role":"user","content":"U"}],"system":[{"type":"text","text":"S"},{"type":"text","text":"T"}]}`, s +
				"S\xffxT" + u + "U"},
		{"system in its place", "messages",
			`{"messages":[{"role":"user","content":"U"},{"role":"system","content":"budget"}]}`, u + "U" + s + "budget"},
		{"thinking and call", "messages",
			`{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"T","signature":"s"},{"type":"text","text":"A"},{"type":"tool_use","input":{"b" : 1.0, "a":"\u00e9\/\u000a"},"id":"1","name":"f"}]}]}`, a + "\xffrT\xffxA\xffcf\xffj" + `{"b":1.0,"a":"é/\n"}`},
		{"result blocks", "messages",
			`{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"type":"text","text":"c"}]}]}`, u + "\xffRa\xffyb\xffxc"},
		{"responses text", "responses", `{"input":"U","instructions":"S"}`, s + "S" + u + "U"},
		{"responses items", "responses",
			`{"input":[{"role":"user","content":[{"type":"input_text","text":"U"}]},{"type":"reasoning","summary":[{"type":"summary_text","text":"R"}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"A"}]},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":"O"}]}`, u + "U\xffrR" + a + "A\xffcf\xffj{}\xfftO"},
		{"unknown item", "responses", `{"input":[{"type":"web_search_call", "action": {"q":"x"}}]}`, "\xffz" +
			`{"type":"web_search_call","action":{"q":"x"}}`},
		{"completion", "completion", `{"prompt":"P"}`, "P"},
		{"batch", "completion", `{"prompt":["P","Q"]}`, "P"},
		{"embedding", "embeddings", `{"input":["P","Q"]}`, "P"},
	} {
		if got := text(t, c.api, c.body); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

// TestSameText has bodies with equal texts, because the difference is not in the
// prompt.
func TestSameText(t *testing.T) {
	for name, c := range map[string]struct {
		api    string
		bodies []string
	}{
		"string or blocks, rolling markers": {"messages", []string{
			`{"messages":[{"role":"user","content":"U"}]}`,
			`{"messages":[{"role":"user","content":"U","cache_control":{"type":"ephemeral"}}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"U"}]}]}`,
			`{"messages":[{"role":"user","content":[{"cache_control":{"type":"ephemeral"},"text":"U","type":"text"}]}]}`,
			`{"messages":[{"content":[{"type":"text","text":""},{"type":"text","text":"U"}],"role":"user"}]}`,
		}},
		"markers on tools, images and calls": {"messages", []string{
			`{"tools":[{"name":"f","input_schema":{}}],"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QUJD"}}]},{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{}},{"type":"new","x":1}]}]}`,
			`{"tools":[{"name":"f","input_schema":{},"cache_control":{"ttl":"1h","type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"image","cache_control":{"type":"ephemeral"},"source":{"data":"QUJD","type":"base64","media_type":"image/png"}}]},{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{},"cache_control":{"type":"ephemeral"}},{"type":"new","cache_control":{"type":"ephemeral"},"x":1}]}]}`,
		}},
		"billing line": {"messages", []string{
			`{"system":[{"type":"text","text":"You are"}]}`,
			`{"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1.100.7b4; cc_entrypoint=cli; cch=eb6c6;"},{"type":"text","text":"You are"}]}`,
			`{"system":[{"type":"text","text":"x-anthropic-billing-header: cch=1;\nYou are","cache_control":{"type":"ephemeral"}}]}`,
			`{"system":"x-anthropic-billing-header: cch=2;\nYou are"}`,
			`{"messages":[{"content":"x-anthropic-billing-header: cch=2;\nYou are","role":"system"}]}`,
			`{"messages":[{"role":"system","content":[{"type":"text","text":"x-anthropic-billing-header: cch=2;"},"You are"]}]}`,
		}},
		"ids of calls": {"chat", []string{
			`{"messages":[{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"x"}]}`,
			`{"messages":[{"role":"assistant","content":"","tool_calls":[{"id":"2","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"2","content":[{"type":"text","text":"x"}]}]}`,
		}},
	} {
		for _, b := range c.bodies {
			if got, want := text(t, c.api, b), text(t, c.api, c.bodies[0]); got != want || got == "" {
				t.Errorf("%s: %s\n got %q\nwant %q", name, b, got, want)
			}
		}
	}
}

// TestOtherText has bodies of which no two texts are equal.
func TestOtherText(t *testing.T) {
	for name, c := range map[string]struct {
		api    string
		bodies []string
	}{
		"images": {"chat", []string{
			`{"messages":[{"role":"user","content":[{"type":"text","text":"U"},{"type":"image_url","image_url":{"url":"http://a/1"}}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"U"},{"type":"image_url","image_url":{"url":"http://a/2"}}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://a/1"}},{"type":"text","text":"U"}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"U"},{"type":"input_audio","input_audio":{"data":"QQ==","format":"wav"}}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"U"},{"type":"file","file":{"file_id":"f-1"}}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"U"}]}]}`,
		}},
		"nobody's line, or a user's": {"messages", []string{
			`{"messages":[{"role":"user","content":"x-anthropic-billing-header: a;\nU"}]}`,
			`{"messages":[{"role":"user","content":"U"}]}`,
			`{"messages":[{"role":"system","content":" x-anthropic-billing-header: a;\nU"}]}`,
			`{"messages":[{"role":"system","content":"U"}]}`,
		}},
		"forged marks": {"chat", []string{
			`{"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]}`,
			"{\"messages\":[{\"role\":\"user\",\"content\":\"a\xffub\"}]}",
			"{\"messages\":[{\"role\":\"user\",\"content\":\"a\xfe\x7fub\"}]}",
			"{\"messages\":[{\"role\":\"user\",\"content\":\"a\xfeub\"}]}",
			`{"messages":[{"role":"user","content":"a\u00ffub"}]}`,
			`{"messages":[{"role":"user","content":"aub"}]}`,
		}},
		"a schema's property named cache_control": {"messages", []string{
			`{"tools":[{"name":"f","input_schema":{"properties":{"cache_control":{"type":"string"}}}}]}`,
			`{"tools":[{"name":"f","input_schema":{"properties":{}}}]}`,
		}},
		"what a result holds, and what follows it": {"messages", []string{
			`{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"tool_result","content":"a"},{"type":"text","text":"b"}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image","source":{"type":"url","url":"u"}}]}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"tool_result","content":[]},{"type":"image","source":{"type":"url","url":"u"}}]}]}`,
		}},
	} {
		seen := map[string]string{}
		for _, b := range c.bodies {
			got := text(t, c.api, b)
			if other, ok := seen[got]; ok {
				t.Errorf("%s: one text %q of two prompts\n%s\n%s", name, got, other, b)
			}
			seen[got] = b
		}
	}
}

// TestExtends has conversations that grow: each text begins the next.
func TestExtends(t *testing.T) {
	for name, c := range map[string]struct {
		api    string
		bodies []string
	}{
		"blocks in the last message": {"messages", []string{
			`{"messages":[{"role":"user","content":[]}]}`,
			`{"messages":[{"role":"user","content":"a"}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"},{"type":"image","source":{"type":"url","url":"u"}}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"},{"type":"image","source":{"type":"url","url":"u"}},{"type":"tool_result","content":"r"}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"},{"type":"image","source":{"type":"url","url":"u"}},{"type":"tool_result","content":[{"type":"text","text":"r"},{"type":"text","text":"q"}]},{"type":"text","text":"c","cache_control":{"type":"ephemeral"}}]},{"role":"assistant","content":""}]}`,
		}},
		"chat": {"chat", []string{
			`{"tools":[{"function":{"name":"f"}}],"messages":[]}`,
			`{"messages":[{"role":"system","content":"S"}],"tools":[{"function":{"name":"f"}}]}`,
			`{"messages":[{"content":"S","role":"system"},{"role":"assistant","content":"a"}],"tools":[{"function":{"name":"f"}}]}`,
			`{"messages":[{"content":"S","role":"system"},{"role":"assistant","content":"a","tool_calls":[{"function":{"name":"f","arguments":"1"}}]}],"tools":[{"function":{"name":"f"}}]}`,
			`{"messages":[{"content":"S","role":"system"},{"tool_calls":[{"function":{"name":"f","arguments":"1"}},{"function":{"name":"g","arguments":"2"}}],"role":"assistant","content":"a"},{"role":"tool","content":"x"}],"tools":[{"function":{"name":"f"}}]}`,
		}},
	} {
		for i := 1; i < len(c.bodies); i++ {
			before, after := text(t, c.api, c.bodies[i-1]), text(t, c.api, c.bodies[i])
			if !strings.HasPrefix(after, before) || len(after) == len(before) {
				t.Errorf("%s, %d: %q does not extend %q", name, i, after, before)
			}
		}
	}
}

func TestScope(t *testing.T) {
	p := prompt.Parser{Adapters: map[string]string{"sql": "llama"}, MaxText: 8}
	for _, c := range []struct {
		body string
		want router.Prompt
	}{
		{`{"model":"llama","cache_salt":"x","prompt":"ab"}`, router.Prompt{Model: "llama", Salt: "x", Text: "ab"}},
		{`{"model":"sql"}`, router.Prompt{Model: "llama", Adapter: "sql"}},
		{`{"model":"llama","lora_path":"l"}`, router.Prompt{Model: "llama", Adapter: "l"}},
		{`{"model":"sql","lora_path":["l",null]}`, router.Prompt{Model: "llama", Adapter: "l"}},
		{`{"model":"m","prompt":[1,2, 4294967295]}`, router.Prompt{Model: "m", Tokens: []uint32{1, 2, 4294967295}}},
		{`{"model":"m","prompt":[[1,2],[3]]}`, router.Prompt{Model: "m", Tokens: []uint32{1, 2}}},
		{`{"prompt":"abcdefgh"}`, router.Prompt{Text: "abcdefgh"}},
		{`{"prompt":"abcdefg\u00e9"}`, router.Prompt{Text: "abcdefg"}},
		{`{"prompt":"abcdefghi"}`, router.Prompt{Text: "abcdefgh"}},
		{"{\"prompt\":\"abcdefg\xff\"}", router.Prompt{Text: "abcdefg"}},
		{`{"model":null,"cache_salt":null,"lora_path":null,"prompt":null}`, router.Prompt{}},
	} {
		got, err := p.FromCompletion([]byte(c.body))
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got)\n%s", c.body, err, diff)
		}
	}
	m, err := prompt.FromMessages([]byte(`{"model":"m","cache_salt":"s","messages":[]}`))
	if diff := cmp.Diff(router.Prompt{Model: "m", Salt: "s"}, m); diff != "" || err != nil {
		t.Errorf("Anthropic's: %v\n%s", err, diff)
	}
}

func TestErrors(t *testing.T) {
	deep := strings.Repeat("[", 100_000)
	for _, c := range []struct {
		api, body string
		want      prompt.Error
		text      string
	}{
		{"chat", ``, prompt.Error{Kind: prompt.ErrSyntax}, ""},
		{"chat", `[]`, prompt.Error{Kind: prompt.ErrType}, ""},
		{"chat", `{"messages":[{"role":"user","content":"U"}`,
			prompt.Error{Kind: prompt.ErrSyntax, Field: "messages", Offset: 42}, ""},
		{"chat", `{"messages":[]} x`, prompt.Error{Kind: prompt.ErrSyntax, Offset: 16}, ""},
		{"chat", `{"messages":[{"role":"user","content":5},{"role":"user","content":"U"}]}`,
			prompt.Error{Kind: prompt.ErrType, Field: "messages[0]", Offset: 38}, u + u + "U"},
		{"chat", `{"messages":"U"}`, prompt.Error{Kind: prompt.ErrType, Field: "messages", Offset: 12}, ""},
		{"chat", `{"messages":[{"role":"user","content":"U"},7]}`,
			prompt.Error{Kind: prompt.ErrType, Field: "messages[1]", Offset: 43}, u + "U"},
		{"chat", "{\"messages\":[{\"content\":\"a\nb\"}]}",
			prompt.Error{Kind: prompt.ErrSyntax, Field: "messages[0]", Offset: 26}, ""},
		{"chat", `{"model":5,"messages":[]}`, prompt.Error{Kind: prompt.ErrType, Field: "model", Offset: 9}, ""},
		{"chat", `{"messages":` + deep, prompt.Error{Kind: prompt.ErrTooDeep, Field: "messages[0]", Offset: 1012}, ""},
		{"completion", `{"x":` + strings.Repeat(`{"a":`, 100_000), prompt.Error{Kind: prompt.ErrTooDeep, Offset: 5000}, ""},
		{"completion", `{"prompt":[1,-2]}`, prompt.Error{Kind: prompt.ErrType, Field: "prompt", Offset: 13}, ""},
		{"completion", `{"prompt":[1,4294967296]}`, prompt.Error{Kind: prompt.ErrType, Field: "prompt", Offset: 13}, ""},
		{"completion", `{"prompt":[1,1.5]}`, prompt.Error{Kind: prompt.ErrType, Field: "prompt", Offset: 13}, ""},
		{"completion", `{"prompt":01}`, prompt.Error{Kind: prompt.ErrSyntax, Field: "prompt", Offset: 11}, ""},
	} {
		p, err := readers[c.api]([]byte(c.body))
		var e *prompt.Error
		if !errors.As(err, &e) || !errors.Is(err, c.want.Kind) {
			t.Errorf("%.60s: error %v, want %v", c.body, err, &c.want)
			continue
		}
		if c.want.Kind == prompt.ErrTooDeep {
			e.Offset, c.want.Offset = 0, 0
		}
		if diff := cmp.Diff(c.want, *e); diff != "" {
			t.Errorf("%.60s: (-want +got)\n%s", c.body, diff)
		}
		if p.Text != c.text || p.Tokens != nil {
			t.Errorf("%.60s: text %q, tokens %v", c.body, p.Text, p.Tokens)
		}
	}
	r := prompt.Parser{MaxBody: 10}
	if p, err := r.FromChat([]byte(`{"model":"m"}`)); !errors.Is(err, prompt.ErrTooLarge) || p.Model != "" {
		t.Errorf("a body over MaxBody: %v, %v", p, err)
	}
	// What was read before the end is not lost.
	if p, _ := prompt.FromChat([]byte(`{"model":"m","cache_salt":"s","prompt_cache_key":"k","messages":[`)); p.Model != "m" || p.Salt != "s" || p.Session == "" {
		t.Errorf("a broken body's scope: %v", p)
	}
}

// TestNoAlias changes the body after it was read.
func TestNoAlias(t *testing.T) {
	for name, read := range readers {
		body := []byte(`{"model":"model","cache_salt":"salt","lora_path":"lora","prompt_cache_key":"key","messages":[{"role":"user","content":"text"}],"input":"text","prompt":"text"}`)
		p, err := read(body)
		if err != nil {
			t.Fatal(err)
		}
		before := strings.Join([]string{p.Model, p.Salt, p.Adapter, p.Session, p.Text}, "|")
		for i := range body {
			body[i] = '#'
		}
		read([]byte(`{"model":"other","messages":[{"role":"user","content":"other"}],"prompt":"other","input":"other"}`))
		if after := strings.Join([]string{p.Model, p.Salt, p.Adapter, p.Session, p.Text}, "|"); after != before ||
			!strings.Contains(after, "text") {
			t.Errorf("%s: %q became %q", name, before, after)
		}
	}
}
