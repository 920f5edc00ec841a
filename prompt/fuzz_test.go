package prompt_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	router "github.com/warmroute/router"
	"github.com/warmroute/router/prompt"
)

// checkPrompt holds what must be true of any body.
func checkPrompt(t *testing.T, read reader, body []byte) router.Prompt {
	t.Helper()
	mine := bytes.Clone(body)
	p, err := read(mine)
	var e *prompt.Error
	if err != nil && !errors.As(err, &e) {
		t.Fatalf("%q: error %T", body, err)
	}
	if e != nil && (e.Offset < 0 || e.Offset > len(body)) {
		t.Fatalf("%q: offset %d", body, e.Offset)
	}
	if errors.Is(err, prompt.ErrSyntax) && json.Valid(plainJSON(body)) {
		t.Fatalf("%q: %v, and it is valid", body, err)
	}
	if !errors.Is(err, prompt.ErrSyntax) && !errors.Is(err, prompt.ErrTooDeep) && !json.Valid(plainJSON(body)) {
		t.Fatalf("%q: no syntax error, and it is not valid: %v", body, err)
	}
	if len(p.Text) > 2*len(body)+1024 {
		t.Fatalf("%q: %d bytes of text", body, len(p.Text))
	}
	if utf8.Valid(body) {
		checkMarks(t, p.Text)
	}
	checkHeld(t, p.Must)
	checkHeld(t, p.Brings)
	before := strings.Clone(p.Text)
	for i := range mine {
		mine[i] = 'x'
	}
	if p.Text != before {
		t.Fatalf("%q: the text changed with the body", body)
	}
	if q, _ := read(body); !reflect.DeepEqual(p, q) {
		t.Fatalf("%q: %v, then %v", body, p, q)
	}
	return p
}

// plainJSON returns b with null in the place of the extensions that Python's reader
// takes beyond RFC 8259.
func plainJSON(b []byte) []byte {
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	var out []byte
	for i := 0; i < len(b); {
		if b[i] == '"' { // a string, as it is
			j := i + 1
			for j < len(b) && b[j] != '"' {
				if b[j] == '\\' {
					j++
				}
				j++
			}
			j = min(j+1, len(b))
			out = append(out, b[i:j]...)
			i = j
			continue
		}
		n := 0
		for _, w := range []string{"-Infinity", "Infinity", "NaN"} {
			if bytes.HasPrefix(b[i:], []byte(w)) {
				n = len(w)
				break
			}
		}
		if n > 0 {
			out = append(out, "null"...)
			i += n
			continue
		}
		out = append(out, b[i])
		i++
	}
	return out
}

// checkMarks holds that a text of valid UTF-8 is valid but for its marks, and
// that these are of the kinds there are.
func checkMarks(t *testing.T, text string) {
	t.Helper()
	parts := strings.Split(text, "\xff")
	for i, part := range parts {
		if i > 0 {
			if part == "" || !strings.Contains("dsvuatfoxnrkcjRyizT", part[:1]) {
				t.Fatalf("%q: mark %q", text, part)
			}
			part = part[1:]
		}
		if !utf8.ValidString(part) {
			t.Fatalf("%q: %q is not valid", text, part)
		}
	}
}

func seeds(f *testing.F) {
	for _, c := range replies {
		f.Add([]byte(c.next))
		f.Add([]byte(c.reply[0]))
	}
	for _, s := range []string{
		`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}},{"type":"x"},"t",{"type":"tool_result","content":[{"type":"image"},"a"]}],"name":"n"}],"tools":[{"a":{"cache_control":{"type":"ephemeral"}}}]}`,
		`{"system":[{"type":"text","text":"x-anthropic-billing-header: a\nb"}],"prompt":[[1,2]],"input":[{"type":"reasoning","encrypted_content":"e"}],"metadata":{"user_id":"{\"session_id\":\"s\"}"}}`,
		"{\"messages\":[{\"role\":\"\xff\",\"content\":\"\\ud83d\\ude00\xfe\xff\"}]}",
		`{"messages":[{"content":[{"type":"image"},{"type":"image"},{"type":"file"}]}]}`,
		`[[[[`, `{"a":1e5,"b":-0.1,"c":[true,false,null]}`,
	} {
		f.Add([]byte(s))
	}
}

func FuzzFromChat(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) { checkPrompt(t, prompt.FromChat, b) })
}

func FuzzFromCompletion(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		checkPrompt(t, prompt.FromCompletion, b)
		checkPrompt(t, prompt.FromEmbeddings, b)
	})
}

func FuzzFromResponses(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) { checkPrompt(t, prompt.FromResponses, b) })
}

func FuzzFromMessages(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) { checkPrompt(t, prompt.FromMessages, b) })
}

func FuzzFromRequest(f *testing.F) {
	f.Add("/v1/chat/completions", "x-session-id", "k", "1,2", []byte(`{"messages":[]}`), 10)
	f.Add("/v1/x?y", "session_id", "k", "", []byte(`{"model":"m"}`), 0)
	f.Fuzz(func(t *testing.T, path, header, key, ids string, body []byte, limit int) {
		r := prompt.Parser{MaxText: limit, Tenant: func(h http.Header) string { return h.Get("Authorization") }}
		p, _ := r.FromRequest(path, http.Header{header: {key}, "X-Rolter-Vllm-Token-Ids": {ids}}, body)
		if limit > 0 && len(p.Text) > limit {
			t.Fatalf("%d bytes of text, limit %d", len(p.Text), limit)
		}
		whole, _ := prompt.FromRequest(path, nil, body)
		if !strings.HasPrefix(whole.Text, p.Text) {
			t.Fatalf("%q is no beginning of %q", p.Text, whole.Text)
		}
		if utf8.Valid(body) {
			checkMarks(t, p.Text)
		}
	})
}

// FuzzGrow builds conversations of arbitrary texts: each grows by a block and by
// a turn, and different turns have different texts.
func FuzzGrow(f *testing.F) {
	f.Add("user", "a", "b", "assistant", "c")
	f.Add("system", "x-anthropic-billing-header: a\nb", "", "tool", "\xff\xfe")
	f.Fuzz(func(t *testing.T, role1, a, b, role2, c string) {
		block := func(s string) any { return map[string]any{"type": "text", "text": s} }
		turn := func(role string, content any) any { return map[string]any{"role": role, "content": content} }
		for _, api := range []string{"chat", "messages"} {
			var texts []string
			for _, messages := range [][]any{
				{},
				{turn(role1, a)},
				{turn(role1, []any{block(a), block(b)})},
				{turn(role1, []any{block(a), block(b)}), turn(role2, c)},
				{turn(role1, []any{block(a), block(b)}), turn(role2, []any{block(c)}), turn(role1, b)},
			} {
				texts = append(texts, text(t, api, string(marshal(t, map[string]any{"messages": messages}))))
			}
			for i := 1; i < len(texts); i++ {
				if !strings.HasPrefix(texts[i], texts[i-1]) {
					t.Fatalf("%s: %q does not extend %q", api, texts[i], texts[i-1])
				}
			}
			// A turn cannot be made from inside a text.
			one := text(t, api, string(marshal(t, map[string]any{"messages": []any{turn("user", a+b+c)}})))
			two := text(t, api, string(marshal(t, map[string]any{"messages": []any{turn("user", a), turn("user", b+c)}})))
			if one == two || strings.Count(one, "\xff") != 1 {
				t.Fatalf("%s: %q, %q", api, one, two)
			}
		}
	})
}

// FuzzReply writes a reply in two parts, cut anywhere, and with a limit.
func FuzzReply(f *testing.F) {
	for _, c := range replies {
		for _, r := range c.reply {
			f.Add([]byte(r), 7, 20)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, at, limit int) {
		var whole, parts prompt.Reply
		mine := bytes.Clone(b)
		whole.Write(mine)
		for i := range mine {
			mine[i] = 'x'
		}
		at = max(0, min(at, len(b)))
		parts.Write(b[:at])
		parts.Text()
		parts.Write(b[at:])
		got := whole.Text()
		if got != parts.Text() || got != whole.Text() {
			t.Fatalf("%q whole, %q in parts", got, parts.Text())
		}
		u := whole.Usage()
		if u != parts.Usage() || min(u.Prompt, u.Cached, u.Output) < 0 {
			t.Fatalf("%+v whole, %+v in parts", u, parts.Usage())
		}
		short := prompt.Reply{Limit: limit}
		short.Write(b)
		if limit > 0 && len(short.Text()) > limit {
			t.Fatalf("limit %d: %q", limit, short.Text())
		}
		if utf8.Valid(b) {
			checkMarks(t, got)
		}
	})
}

func FuzzParseTokenIDs(f *testing.F) {
	f.Add("1, 2,\t3")
	f.Fuzz(func(t *testing.T, s string) {
		ids, err := prompt.ParseTokenIDs(s)
		if err != nil {
			if ids != nil {
				t.Fatalf("%q: %v and %v", s, ids, err)
			}
			return
		}
		if len(ids) != strings.Count(s, ",")+1 || strings.Trim(s, "0123456789, \t") != "" {
			t.Fatalf("%q: %v", s, ids)
		}
	})
}
