package debugui_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/debugui"
	canonical "github.com/warmroute/router/prompt"
)

func (s *setup) try(t testing.TB, body string) (v detail, status int) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/x/explain", strings.NewReader(body))
	r.Host = "localhost"
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.page.ServeHTTP(w, r)
	if w.Code == http.StatusOK {
		if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
	}
	return v, w.Code
}

// TestTry tries prompts of every kind after one of them was sent.
func TestTry(t *testing.T) {
	s := start(t, debugui.Config{}, router.Trace{}, "a", "b")
	chat := `{"model":"llama","messages":[{"role":"user","content":"` + long + `"}]}`
	p, err := canonical.FromChat([]byte(chat))
	if err != nil {
		t.Fatal(err)
	}
	s.route(t, p.Text).Done(router.Outcome{Stage: router.Finished})
	before := s.state(t, "").Totals
	quoted := func(v string) string {
		b, _ := json.Marshal(v)
		return string(b)
	}
	for name, c := range map[string]struct {
		path, body string
		cached     bool
		note       bool
	}{
		"text":   {"", long, true, false},
		"a chat": {"/v1/chat/completions", chat, true, false},
		"another chat": {"/v1/chat/completions", `{"model":"llama","messages":[{"role":"user","content":"hello"}]}`,
			false, false},
		"another API":        {"/v1/messages", chat, true, false},
		"a completion":       {"/v1/completions", `{"model":"llama","prompt":"hello"}`, false, false},
		"a completion's ids": {"/v1/completions", `{"model":"llama","prompt":[1,2,3]}`, false, false},
		"broken":             {"/v1/chat/completions", `{"model":`, false, true},
		"unknown":            {"/v1/nothing", chat, false, false},
	} {
		v, status := s.try(t, `{"route":"llama","model":"llama","path":`+quoted(c.path)+`,"body":`+quoted(c.body)+`}`)
		if status != http.StatusOK || len(v.Candidates) != 2 || !v.Candidates[0].Chosen || v.Candidates[1].Chosen ||
			(v.Note != "") != c.note {
			t.Errorf("%s: %d %+v", name, status, v)
			continue
		}
		if got := v.Candidates[0].Cached > 1000; got != c.cached {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if after := s.state(t, "").Totals; after != before {
		t.Errorf("a try was counted: %+v, before %+v", after, before)
	}
	if _, status := s.try(t, `{"route":"nowhere"}`); status != http.StatusNotFound {
		t.Errorf("no route: %d", status)
	}
}

// FuzzTry sends whatever as a prompt to try, and as what the page asks for.
func FuzzTry(f *testing.F) {
	f.Add(`{"route":"llama","path":"/v1/chat/completions","body":"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"}`, "route=llama&show=all&find=a")
	f.Add(`{"route":"llama","body":"\ufffd"}`, "seq=1&route=llama")
	s := start(f, debugui.Config{ShowPrompts: true}, router.Trace{}, "a", "b\xff")
	f.Fuzz(func(t *testing.T, body, query string) {
		_, _ = s.try(t, body)
		for _, path := range []string{"/state", "/decision"} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.URL.RawQuery, r.Host = query, "localhost"
			w := httptest.NewRecorder()
			s.page.ServeHTTP(w, r)
			if w.Code >= 500 || w.Code == http.StatusOK && !json.Valid(w.Body.Bytes()) {
				t.Errorf("%s?%s: %d %s", path, query, w.Code, w.Body)
			}
		}
	})
}
