package file

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Links are followed.
func TestLoadThroughLinks(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "router.toml")
	if err := os.WriteFile(path, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	// As a ConfigMap is mounted: the file is a link through a link.
	for _, l := range [][2]string{{".", "data"}, {"data/router.toml", "linked.toml"}} {
		if err := os.Symlink(l[0], filepath.Join(dir, l[1])); err != nil {
			t.Fatal(err)
		}
	}
	if f, err := Load(filepath.Join(dir, "linked.toml"), options()); err != nil || len(f.Routes) != 2 {
		t.Errorf("%v", err)
	}
}

// A small file cannot describe a fleet of any size: its targets, and those of its
// routes, are bounded before anything is made of them.
func TestTargetsAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, "[[providers]]\nname = 'p%d'\napi_base = 'http://a%d'\nranks = 1024\n", i, i)
	}
	b.WriteString("[[routes]]\nmodel = 'm'\ntargets = [{ provider = 'p0' }]\n")
	_, err := Parse("", []byte(b.String()), options())
	want := "config: 80:9: providers[19].ranks: with these the file has more than 20000 targets"
	if err == nil || err.Error() != want {
		t.Errorf("got %.300v, want %s", err, want)
	}

	b.Reset()
	b.WriteString("[[providers]]\nname = 'p'\napi_base = 'http://a'\nranks = 1024\n")
	for i := range 300 {
		fmt.Fprintf(&b, "[[routes]]\nmodel = 'm%d'\ntargets = [{ provider = 'p' }]\n", i)
	}
	_, err = Parse("", []byte(b.String()), options())
	want = "config: 592:25: routes[195].targets[0].provider: with its ranks the routes have more than 200000 targets"
	if err == nil || err.Error() != want {
		t.Errorf("got %.300v, want %s", err, want)
	}
}

// A secret that was written where the name of its variable belongs is repeated neither
// by a message nor by a problem's Value.
func TestSecretInPlaceOfAName(t *testing.T) {
	const secret = "sk_live_51H8x"
	for _, line := range []string{"api_key_env = '%s'", "headers_env = { X-Key = '%s' }", "api_key_env = '%s-'",
		"lmcache = { endpoint = 'http://b', headers_env = { A = '%s' } }", "api_key = '%s'", "headers = '%s'"} {
		text := "[[providers]]\nname = 'a'\napi_base = 'http://a'\n" + fmt.Sprintf(line, secret) +
			"\n[[routes]]\nmodel = 'm'\ntargets = [{ provider = 'a' }]\n"
		_, err := Parse("", []byte(text), options())
		if err == nil || strings.Contains(fmt.Sprintf("%v %+v", err, err), secret) {
			t.Errorf("%s: %v", line, err)
			continue
		}
		for _, e := range err.(*Error).Problems {
			if e.Line != 4 || strings.Contains(fmt.Sprintf("%#v", e), secret) {
				t.Errorf("%s: %#v", line, e)
			}
		}
	}
}

// Each Problem has its file, place, key, value and what is allowed.
func TestProblems(t *testing.T) {
	_, err := Parse("f.toml", []byte(strings.Replace(whole, "weight = 0.25", "weight = -1, wight = 2",
		1)+"prefix_bytes = -1\n"), options())
	bad, ok := err.(*Error)
	if !ok || len(bad.Problems) != 3 {
		t.Fatalf("%v", err)
	}
	for i, want := range []Problem{
		{File: "f.toml", Key: "routes[0].targets[0].weight", Value: -1.0,
			Allowed: "above 0, and to send nothing to a provider leave it out"},
		{File: "f.toml", Key: "routes[0].targets[0].wight"},
		{File: "f.toml", Key: "routes[1].consistent_hash.prefix_bytes", Value: -1, Allowed: "at least 1"},
	} {
		got := bad.Problems[i]
		if got.Line == 0 || got.Column == 0 || got.Message == "" {
			t.Errorf("%+v has no place or no message", got)
		}
		got.Line, got.Column, got.Message, got.Err = 0, 0, "", nil
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}
