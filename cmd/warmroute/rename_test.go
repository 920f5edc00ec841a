package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router/internal/reqbody"
	"github.com/warmroute/router/prompt"
)

func TestRename(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"first", `{"model":"a","x":1}`, `{"model":"N","x":1}`},
		{"last", `{"x":1,"model":"a"}`, `{"x":1,"model":"N"}`},
		{"alone", `{"model":"a"}`, `{"model":"N"}`},
		{"spaces", " {\n\t\"model\" :\r\n \"a\" , \"x\" : 1 }\n", " {\n\t\"model\" :\r\n \"N\" , \"x\" : 1 }\n"},
		{"twice", `{"model":"a","x":[1,{}],"model":"b"}`, `{"model":"N","x":[1,{}],"model":"N"}`},
		{"escaped key", `{"mod\u0065l":"a","\u006dode\u006C":"b"}`, `{"mod\u0065l":"N","\u006dode\u006C":"N"}`},
		{"escaped value", `{"model":"a\"},{\\","x":1}`, `{"model":"N","x":1}`},
		{"another's", `{"tools":[{"model":"a"}],"metadata":{"model":"b"},"x":"\"model\":\"c\"","model":"d"}`,
			`{"tools":[{"model":"a"}],"metadata":{"model":"b"},"x":"\"model\":\"c\"","model":"N"}`},
		{"near keys", `{"Model":"a","models":"b","mode":"c","":"d"}`, `{"Model":"a","models":"b","mode":"c","":"d"}`},
		{"none", `{"messages":[]}`, `{"messages":[]}`},
		{"empty", `{}`, `{}`},
		{"no object", `["model","a"]`, `["model","a"]`},
		{"nothing", ``, ``},
		{"broken after it", `{"model":"a",`, `{"model":"N",`},
		{"broken before it", `{"x":1 "model":"a"}`, `{"x":1 "model":"a"}`},
		{"never closed", `{"model":"a`, `{"model":"N"`},
		{"byte order mark", "\xef\xbb\xbf" + `{"model":"a"}`, "\xef\xbb\xbf" + `{"model":"N"}`},
		{"numbers as they are", `{"seed":1e400,"model":"a","t":0.10000000000000000000001}`,
			`{"seed":1e400,"model":"N","t":0.10000000000000000000001}`},
	} {
		at, ok := modelSpans([]byte(c.body))
		if !ok {
			t.Errorf("%s: too many", c.name)
			continue
		}
		if got := string(rename(at, "N").apply([]byte(c.body))); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if _, ok := modelSpans([]byte("{" + strings.Repeat(`"model":"a",`, maxNames+1) + `"x":1}`)); ok {
		t.Error("any number of names is taken")
	}
	if got := string(rename([]reqbody.Span{{Lo: 9, Hi: 12}},
		"a\"\n\u00e9<").apply([]byte(`{"model":"x"}`))); !json.Valid([]byte(got)) {
		t.Errorf("not JSON: %s", got)
	}
}

// oracle finds the values of the members "model" with encoding/json. ok is false where
// body is no object.
func oracle(body []byte) (at []reqbody.Span, last string, ok bool) {
	d := json.NewDecoder(bytes.NewReader(body))
	if tok, err := d.Token(); err != nil || tok != json.Delim('{') {
		return nil, "", false
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, "", false
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, "", false
		}
		if key == "model" {
			hi := int(d.InputOffset())
			at = append(at, reqbody.Span{Lo: hi - len(v), Hi: hi})
			last = ""
			_ = json.Unmarshal(v, &last) // "" if it is no string
		}
	}
	_, err := d.Token()
	return at, last, err == nil
}

// FuzzRename holds that what is found is what a JSON parser finds, that the name that
// counts is the one that the prompt has, and that reading in pieces of any size gives
// what apply does.
func FuzzRename(f *testing.F) {
	for _, s := range []string{`{"model":"a","x":[{"model":"b"}],"mod\u0065l":"c"}`, `{"a":"\\\"","model":null}`,
		`{"model":1}`, `[1]`, `{"model":"a`, " {} "} {
		f.Add([]byte(s), "meta-llama/Llama", 3)
	}
	pool, err := reqbody.New(reqbody.Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, in []byte, name string, step int) {
		at, few := modelSpans(in)
		want, last, valid := oracle(in)
		if valid && json.Valid(in) {
			if few != (len(want) <= maxNames) {
				t.Fatalf("%d found, %v", len(want), few)
			}
			if d := cmp.Diff(want, at); few && d != "" {
				t.Fatalf("%q (-want +got):\n%s", in, d)
			}
			p, err := prompt.FromRequest("/v1/other", http.Header{}, in)
			if err == nil && len(want) > 0 && p.Model != last {
				t.Fatalf("%q: the prompt's model is %q, the last one %q", in, p.Model, last)
			}
		}
		e := rename(at, name)
		all := e.apply(in)
		if len(all) != e.size(len(in)) {
			t.Fatalf("%d bytes, not %d", len(all), e.size(len(in)))
		}
		if valid && few && json.Valid(in) && !json.Valid(all) {
			t.Fatalf("%q became %q", in, all)
		}
		b, err := pool.Read(httptest.NewRecorder(), httptest.NewRequest("POST", "/", bytes.NewReader(in)))
		if err != nil {
			t.Fatal(err)
		}
		defer b.Release()
		r := bodyOf(b, e)
		var got []byte
		buf := make([]byte, max(step&0xff, 1))
		for {
			n, err := r.Read(buf)
			got = append(got, buf[:n]...)
			if err == io.EOF {
				break
			}
		}
		if err := r.Close(); err != nil || len(in) > 0 && !bytes.Equal(got, all) {
			t.Fatalf("read %q, want %q, %v", got, all, err)
		}
	})
}

func BenchmarkModelSpans(b *testing.B) {
	body := []byte(`{"model":"a","messages":[{"role":"user","content":"` + strings.Repeat(`a line of text\n`, 1000) +
		`"}],"stream":true}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if at, _ := modelSpans(body); len(at) != 1 {
			b.Fatal(at)
		}
	}
}
