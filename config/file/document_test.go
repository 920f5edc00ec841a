package file_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmroute/router/config/file"
)

func anyEnv(string) (string, bool) { return "a value of some length", true }

// TestDocument: the example with every key is the same after both of its forms.
func TestDocument(t *testing.T) {
	data, err := os.ReadFile("../router.example.toml")
	if err != nil {
		t.Fatal(err)
	}
	o := file.Options{LookupEnv: anyEnv, KVEvents: true, Share: true}
	want, err := file.Parse("", data, o)
	if err != nil {
		t.Fatal(err)
	}
	d, err := file.NewDocument(data)
	if err != nil {
		t.Fatal(err)
	}
	j, err := file.NewDocumentJSON(d.JSON())
	if err != nil {
		t.Fatal(err)
	}
	for form, b := range map[string][]byte{"TOML": d.TOML(), "JSON": j.TOML()} {
		got, err := file.Parse("", b, o)
		if err != nil {
			t.Fatalf("%s: %v\n%s", form, err, b)
		}
		if diff := cmp.Diff(want.Effective(), got.Effective()); diff != "" {
			t.Errorf("%s: %s", form, diff)
		}
	}
}

const fleet = `
[[providers]]
name = "a"
api_base = "http://a:1"
[providers.kv_events]
endpoint = "tcp://a:2"
[[providers]]
name = "b/c"
api_base = "http://b:1"
[[routes]]
model = "m"
targets = [{ provider = "a", weight = 2.5 }, { provider = "b/c" }]
[[routes]]
model = "n"
targets = [{ provider = "a" }]
`

// TestDocumentChanges: providers and their sources come, change and go; what is refused changes nothing.
func TestDocumentChanges(t *testing.T) {
	d, err := file.NewDocument([]byte(fleet))
	if err != nil {
		t.Fatal(err)
	}
	same := func(err error, is error) {
		t.Helper()
		if !errors.Is(err, is) {
			t.Errorf("%v, want %v", err, is)
		}
	}
	before := string(d.TOML())
	same(d.SetProvider("d", map[string]any{"api_base": "http://d:1"}), file.ErrNoRoute)
	same(d.SetProvider("d", nil, "m", "none"), file.ErrNoRoute)
	same(d.RemoveProvider("none"), file.ErrNoProvider)
	same(d.RemoveProvider("a"), file.ErrLastTarget)
	same(d.SetSource("a", "metrics", nil), file.ErrNoSource)
	same(d.SetSource("none", file.SourceLMCache, nil), file.ErrNoProvider)
	same(d.RemoveSource("none", file.SourceLMCache), file.ErrNoProvider)
	if _, err := d.Provider("none"); err == nil || string(d.TOML()) != before {
		t.Errorf("what is refused changes the document: %v\n%s", err, cmp.Diff(before, string(d.TOML())))
	}
	for _, err := range []error{
		d.SetProvider("d", map[string]any{"api_base": "http://d:1"}, "n"),
		d.SetProvider("a", map[string]any{"api_base": "http://a:9"}), // its source stays
		d.SetSource("b/c", file.SourceLMCache, map[string]any{"endpoint": "http://b:3", "refresh_secs": int64(3)}),
		d.SetSource("b/c", file.SourceKVEvents, map[string]any{"endpoint": "tcp://b:2"}),
		d.RemoveSource("b/c", file.SourceKVEvents),
		d.RemoveSource("b/c", file.SourceKVEvents),
		d.RemoveProvider("a"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	f, err := file.Parse("", d.TOML(), file.Options{KVEvents: true})
	if err != nil {
		t.Fatalf("%v\n%s", err, d.TOML())
	}
	if diff := cmp.Diff([]string{"b/c", "d"}, d.Providers()); diff != "" || len(f.Providers) != 2 {
		t.Error(diff)
	}
	if l := f.Providers[0].LMCache; l == nil || l.RefreshSecs != 3 || l.TimeoutSecs != 2 ||
		f.Providers[0].KVEvents != nil {
		t.Errorf("%+v", l)
	}
	if m, n := f.Routes[0].Targets, f.Routes[1].Targets; len(m) != 1 || m[0].Provider != "b/c" || len(n) != 1 ||
		n[0].Provider != "d" {
		t.Errorf("%+v, %+v", m, n)
	}
	d, err = file.NewDocument([]byte(fleet))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.SetProvider("a", map[string]any{"api_base": "http://a:9"}); err != nil {
		t.Fatal(err)
	}
	p, err := d.Provider("a")
	if err != nil || p["api_base"] != "http://a:9" || p[file.SourceKVEvents] == nil {
		t.Errorf("%v, %v", p, err)
	}
	p["api_base"] = "http://other"
	if again, _ := d.Provider("a"); again["api_base"] != "http://a:9" {
		t.Error("the table is not a copy")
	}
}

// TestDocumentJSON: what cannot stand in a file is refused.
func TestDocumentJSON(t *testing.T) {
	for _, c := range []struct{ json, says string }{
		{"", "not a JSON object"}, {"[]", "not a JSON object"}, {"null", "not one JSON object"}, {"{} {}", "not one"},
		{`{"a": 1e999}`, "too large"}, {`{"a": [null]}`, "null in an array"},
		{strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40), "nested"},
		{strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000), "depth"},
		{`{"a": "` + strings.Repeat("x", 5<<20) + `"}`, "more than"},
	} {
		_, err := file.NewDocumentJSON([]byte(c.json))
		var e *file.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.40s: %v, want %q", c.json, err, c.says)
		}
	}
	d, err := file.NewDocumentJSON([]byte(`{"queue": {"enabled": true, "max_waiting": 7, "priority_header": null}}`))
	if err != nil || strings.Contains(string(d.TOML()), "priority_header") ||
		!strings.Contains(string(d.TOML()), "max_waiting = 7\n") {
		t.Errorf("%v\n%s", err, d.TOML())
	}
}

// FuzzDocument: a document of JSON is a file's text that is read as the same again.
func FuzzDocument(f *testing.F) {
	d, err := file.NewDocument([]byte(fleet))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(d.JSON())
	f.Add([]byte(`{"a": [{"b": [1, "x", {"": 2.5}]}, true], "\u0000\n\"'": {}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := file.NewDocumentJSON(b)
		if err != nil {
			return
		}
		text := d.TOML()
		again, err := file.NewDocument(text)
		if err != nil {
			if strings.Contains(err.Error(), "more than") { // a bound of files
				return
			}
			t.Fatalf("%v\n%s", err, text)
		}
		if got, want := string(again.JSON()), string(d.JSON()); got != want {
			t.Errorf("%s\nis read again as\n%s", want, got)
		}
		_ = d.RemoveProvider("a")
		_ = d.SetProvider("a", map[string]any{"api_base": "x"})
		_ = d.SetSource("a", file.SourceKVEvents, map[string]any{})
	})
}
