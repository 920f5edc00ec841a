package prompt_test

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	router "github.com/warmroute/router"
	"github.com/warmroute/router/prompt"
)

// checkHeld holds what must be true of the ids of any request or reply.
func checkHeld(t *testing.T, ids []string) {
	t.Helper()
	if len(ids) > 64 {
		t.Fatalf("%d ids", len(ids))
	}
	for i, id := range ids {
		if id == "" || len(id) > router.MaxHeldID || slices.Contains(ids[:i], id) {
			t.Fatalf("id %d of %q", i, ids)
		}
	}
}

func TestMustOfBodies(t *testing.T) {
	image := func(url, uuid string) string {
		return `{"type":"image_url","image_url":` + url + `,"uuid":` + uuid + `}`
	}
	chat := func(parts ...string) string {
		return `{"messages":[{"role":"user","content":[` + strings.Join(parts, ",") + `]}]}`
	}
	long := strings.Repeat("x", 1<<16)
	for _, tt := range []struct {
		path, body   string
		must, brings []string
	}{
		{"/v1/responses", `{"input":"hi","previous_response_id":"resp_1"}`, []string{"resp_1"}, nil},
		{"/v1/responses", `{"input":"hi","previous_response_id":null,"conversation":null}`, nil, nil},
		{"/v1/responses", `{"conversation":"conv_1","input":"hi"}`, []string{"conv_1"}, nil},
		{"/v1/responses", `{"conversation":{"id":"conv_1"},"previous_response_id":"r","input":"hi"}`,
			[]string{"r", "conv_1"}, nil},
		{"/v1/chat/completions", `{"conversation":"mine","messages":[]}`, nil, nil},
		{"/v1/responses", `{"input":[{"role":"user","content":[{"type":"input_file","file_id":"file-1"},
			{"type":"input_image","file_id":"file-2","detail":"low"},{"type":"input_file","file_id":"file-1"}]}]}`,
			[]string{"file-1", "file-2"}, nil},
		{"/v1/chat/completions", chat(`{"type":"file","file":{"file_id":"file-3"}}`), []string{"file-3"}, nil},
		{"/v1/messages", chat(`{"type":"document","source":{"type":"file","file_id":"file_4"}}`), []string{"file_4"}, nil},
		{"/v1/chat/completions", chat(image("null", `"u1"`)), []string{"media:u1"}, nil},
		{"/v1/chat/completions", chat(image("{}", `"u1"`)), []string{"media:u1"}, nil},
		{"/v1/chat/completions", chat(image(`{"url":""}`, `"u1"`)), []string{"media:u1"}, nil},
		{"/v1/chat/completions", chat(`{"image_url":null,"uuid":"u1"}`), []string{"media:u1"}, nil},
		{"/v1/chat/completions", chat(image(`{"url":"http://a"}`, `"u1"`)), nil, []string{"media:u1"}},
		{"/v1/chat/completions", chat(image(`{"url":"http://a"}`, `null`)), nil, nil},
		{"/v1/chat/completions", chat(image(`{"url":"http://a"}`, `"u1"`), image("null", `"u1"`)), nil, []string{"media:u1"}},
		{"/v1/chat/completions", chat(`{"type":"video_url","video_url":null,"uuid":"u2"}`), []string{"media:u2"}, nil},
		{"/v1/chat/completions", chat(`{"type":"text","text":"a","uuid":"u2"}`), nil, nil},
		{"/v1/responses/resp_1", "", []string{"resp_1"}, nil},
		{"/v1/responses/resp_1?stream=true", "", []string{"resp_1"}, nil},
		{"/openai/v1/responses/resp_1/cancel", "{}", []string{"resp_1"}, nil},
		{"/v1/responses/resp_1/input_items", "", []string{"resp_1"}, nil},
		{"/v1/responses/a%2Fb/", "", []string{"a/b"}, nil},
		{"/v1/responses/", "{}", nil, nil},
		{"/v1/responses/compact", `{"model":"m","previous_response_id":"resp_1"}`, []string{"resp_1"}, nil},
		{"/v1/conversations/conv_1/items/x", "", []string{"conv_1"}, nil},
		{"/v1/files/file-1/content", "", []string{"file-1"}, nil},
		{"/v1/files", "", nil, nil},
	} {
		unknown := 0
		r := prompt.Parser{Unknown: func(string, error) { unknown++ }}
		p, err := r.FromRequest(tt.path, nil, []byte(tt.body))
		if err != nil {
			t.Errorf("%s %s: %v", tt.path, tt.body, err)
		}
		if diff := cmp.Diff([2][]string{tt.must, tt.brings}, [2][]string{p.Must, p.Brings}); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", tt.path, tt.body, diff)
		}
		state := strings.Contains(tt.path, "/v1/responses") || strings.Contains(tt.path, "/v1/conversations/") ||
			strings.Contains(tt.path, "/v1/files")
		if got := prompt.KeepsState(tt.path); got != state {
			t.Errorf("%s keeps state: %v", tt.path, got)
		}
		if prompt.APIOf(tt.path) == "" {
			if p.Text != "" {
				t.Errorf("%s has the text %q", tt.path, p.Text)
			}
			if want := tt.must == nil || strings.HasSuffix(tt.path, "/compact"); want != (unknown > 0) {
				t.Errorf("%s is unknown: %d", tt.path, unknown)
			}
		}
	}
	p, err := prompt.FromRequest("/v1/responses", http.Header{}, []byte(`{"previous_response_id":"`+long+`"}`))
	if err != nil || len(p.Must) != 1 {
		t.Fatal(p.Must, err)
	}
	checkHeld(t, p.Must)
	h := new(router.Holders)
	h.Bind(long, "a")
	if at, _ := h.Holder(p.Must[0]); at != "a" {
		t.Errorf("a long id is at %q", at)
	}
	parts := make([]string, 1000)
	for i := range parts {
		parts[i] = image("null", fmt.Sprintf(`"u%d"`, i)) + "," + image(`"a"`, fmt.Sprintf(`"v%d"`, i))
	}
	if p, err = prompt.FromChat([]byte(chat(parts...))); err != nil {
		t.Error(err)
	}
	checkHeld(t, p.Must)
	checkHeld(t, p.Brings)
}

// To an engine the uuid of a medium is all of its identity.
func TestUUID(t *testing.T) {
	text := func(url, uuid string) string {
		p, err := prompt.FromChat([]byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"What is it?"},
			{"type":"image_url","image_url":` + url + `,"uuid":` + uuid + `}]}]}`))
		if err != nil {
			t.Error(err)
		}
		return p.Text
	}
	one := text(`{"url":"http://a"}`, `"u1"`)
	for _, same := range []string{text(`{"url":"http://b"}`, `"u1"`), text(`null`, `"u1"`), text(`{}`, `"u1"`)} {
		if same != one {
			t.Errorf("%q, want %q", same, one)
		}
	}
	for _, other := range []string{
		text(`{"url":"http://a"}`, `"u2"`), text(`{"url":"http://a"}`, `null`), text(`{"url":"u1"}`, `null`),
		text(`null`, `"u2"`), text(`null`, `null`),
	} {
		if other == one {
			t.Errorf("%q twice", one)
		}
	}
}

func TestMade(t *testing.T) {
	for _, tt := range []struct {
		reply string
		want  []string
	}{
		{`{"id":"resp_1","created_at":1,"object":"response","output":[],"conversation":{"id":"conv_1"}}`,
			[]string{"resp_1", "conv_1"}},
		{"{\n \"id\": \"resp_1\",\n \"object\": \"response\", \"output\": [{\"id\":\"msg_1\"}]\n}\n", []string{"resp_1"}},
		{`{"object":"conversation","id":"conv_1"}`, []string{"conv_1"}},
		{`{"object":"file","id":"file-1","bytes":3}`, []string{"file-1"}},
		{`{"id":"file_1","type":"file"}`, []string{"file_1"}},
		{`{"id":"resp_1","deleted":true,"object":"response"}`, nil},
		{`{"id":"chatcmpl-1","object":"chat.completion","choices":[]}`, nil},
		{`{"id":"msg_1","type":"message","content":[]}`, nil},
		{`{"object":"response","id":7}`, nil},
		{"event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\"," +
			"\"object\":\"response\",\"conversation\":\"conv_1\"}}\n\n" +
			"data: {\"type\":\"response.output_text.delta\",\"delta\":\"x\"}\n\n", []string{"resp_1", "conv_1"}},
		{"data: {\"id\":\"chatcmpl-1\",\"choices\":[]}\n\n", nil},
	} {
		for _, step := range []int{1, 7, len(tt.reply)} {
			var r prompt.Reply
			for b := range slices.Chunk([]byte(tt.reply), step) {
				r.Write(b)
				r.Made()
			}
			if diff := cmp.Diff(tt.want, r.Made()); diff != "" {
				t.Errorf("%q by %d (-want +got):\n%s", tt.reply, step, diff)
			}
			if diff := cmp.Diff(tt.want, r.Outcome(200, nil).Made); diff != "" {
				t.Errorf("%q: outcome (-want +got):\n%s", tt.reply, diff)
			}
			if m := r.Outcome(404, nil).Made; m != nil {
				t.Errorf("%q: a 404 made %q", tt.reply, m)
			}
		}
	}
	if ids := (*prompt.Reply)(nil).Made(); ids != nil {
		t.Error(ids)
	}
}

// The id is known before the last byte: of a stream by its first event, of a long JSON reply as soon as it has come.
func TestMadeEarly(t *testing.T) {
	var s, j prompt.Reply
	s.Write([]byte("data: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\"}}\n\n"))
	j.Write([]byte(`{"id":"resp_1","object":"response","output":[{"content":"` + strings.Repeat("x", 1000)))
	for name, r := range map[string]*prompt.Reply{"stream": &s, "JSON": &j} {
		if diff := cmp.Diff([]string{"resp_1"}, r.Made()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Asking after each byte costs no more than reading the reply a few times.
func TestMadeWork(t *testing.T) {
	if testing.Short() {
		t.Skip("a megabyte byte by byte takes a second")
	}
	reply := []byte(`{"n":["` + strings.Repeat("x", 1<<20) + `"],"id":"resp_1","object":"response"}`)
	var r prompt.Reply
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range reply {
		r.Write(reply[i : i+1])
		r.Made()
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
	if diff := cmp.Diff([]string{"resp_1"}, r.Made()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzMade(f *testing.F) {
	f.Add("/v1/responses/resp_1", []byte(`{"id":"resp_1","object":"response","conversation":{"id":"c"}}`), 3)
	f.Add("/v1/files/%zz", []byte("data: {\"type\":\"response.created\",\"response\":{\"id\":\"r\"}}\n\n"), 1)
	f.Fuzz(func(t *testing.T, path string, reply []byte, step int) {
		p, _ := prompt.FromRequest(path, nil, reply)
		checkHeld(t, p.Must)
		checkHeld(t, p.Brings)
		var r prompt.Reply
		for b := range slices.Chunk(reply, max(1, step)) {
			r.Write(b)
			checkHeld(t, r.Made())
		}
		checkHeld(t, r.Outcome(200, nil).Made)
	})
}
