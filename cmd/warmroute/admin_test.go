package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warmroute/router/internal/ports"
	"github.com/warmroute/router/vllmtest"
)

const adminToken = "a token of sixteen bytes or more"

// admins is a gateway with an admin API.
type admins struct {
	*program
	t         *testing.T
	api, file string
}

func startAdmin(t *testing.T, text string) *admins {
	t.Helper()
	signalled(t)
	t.Setenv("ADMIN_TOKEN", adminToken)
	debug, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	a := &admins{t: t, api: "http://" + debug + adminPath, file: filepath.Join(t.TempDir(), "router.toml")}
	place(t, a.file, text)
	a.program = start(t, "-config", a.file, "-debug", debug, "-admin", "ADMIN_TOKEN", "-watch", "0s")
	return a
}

// do sends a request, with headers as names and values in turn, and returns the answer.
func (a *admins) do(method, path, body string, header ...string) (status int, reply string, h http.Header) {
	a.t.Helper()
	r, err := http.NewRequest(method, a.api+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, readAll(a.t, resp.Body), resp.Header
}

// served reports whether the model is served, and by which target.
func (a *admins) served(model string) (target string, ok bool) {
	a.t.Helper()
	resp, err := http.Post(a.url+"/v1/completions", "application/json",
		strings.NewReader(fmt.Sprintf(`{"model":%q,"prompt":"hello","max_tokens":1}`, model)))
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	readAll(a.t, resp.Body)
	return resp.Header.Get(headerTarget), resp.StatusCode == http.StatusOK
}

// TestAdmin: providers and their sources are created, changed and removed while requests are served; what is refused
// changes nothing, and a file is written whole.
func TestAdmin(t *testing.T) {
	engine := func() string {
		s := vllmtest.NewServer(vllmtest.Config{TimeScale: 1e-6, ReplyTokens: 1, Events: &vllmtest.Events{}})
		t.Cleanup(s.Close)
		return s.URL
	}
	first, second := engine(), engine()
	text := fmt.Sprintf("# a comment\n[[providers]]\nname = \"one\"\napi_base = %q\n[[routes]]\nmodel = \"m\"\n"+
		"strategy = \"least_load\"\ntargets = [{ provider = \"one\" }]\n", first)
	a := startAdmin(t, text)

	// Nobody without the token, and nobody by a foreign name; and nothing on the clients' address.
	for _, h := range []string{"", "Bearer wrong", "Basic " + adminToken} {
		if status, reply, _ := a.do("GET", "config", "", "Authorization", h); status != 401 ||
			strings.Contains(reply, "providers") {
			t.Errorf("%q: %d %s", h, status, reply)
		}
	}
	if status, _, _ := a.do("GET", "config", "", "Host", "evil.example"); status != 403 {
		t.Error("a foreign name:", status)
	}
	resp, err := http.Get(a.url + adminPath + "config")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 404 {
		t.Error("the clients' address:", resp.Status)
	}

	status, now, h := a.do("GET", "config", "")
	if status != 200 || !strings.Contains(now, "max_waiting = 1024") || h.Get("ETag") == "" {
		t.Fatalf("%d %s", status, now)
	}
	tag := h.Get("ETag")
	toml, html := []string{"Content-Type", "application/toml"}, []string{"Content-Type", "text/html"}
	match := []string{"If-Match", tag}
	var tree struct {
		Providers []struct{ Name string }
	}
	_, reply, _ := a.do("GET", "config?defaults=false", "", "Accept", "application/json")
	if err := json.Unmarshal([]byte(reply), &tree); err != nil || len(tree.Providers) != 1 ||
		strings.Contains(reply, "max_waiting") {
		t.Errorf("as it was written: %s", reply)
	}

	type step struct {
		method, path, body string
		status             int
		says               string
		header             []string
	}
	run := func(steps ...step) {
		t.Helper()
		for _, s := range steps {
			status, reply, _ := a.do(s.method, s.path, s.body, s.header...)
			if status != s.status || !strings.Contains(reply, s.says) {
				t.Errorf("%s %s: %d, want %d with %q: %s", s.method, s.path, status, s.status, s.says, reply)
			}
		}
	}
	two := fmt.Sprintf(`{"api_base": %q}`, second)
	run(
		step{method: "PUT", path: "config", body: "{", status: 422, says: "not a JSON object"},
		step{method: "PUT", path: "config", body: "a = ", status: 422, says: `"line": 1`, header: toml},
		step{method: "PUT", path: "config", body: "{}", status: 415, says: "Content-Type", header: html},
		step{method: "PUT", path: "config", body: strings.Repeat(" ", 5<<20), status: 413},
		step{method: "POST", path: "config", body: "{}", status: 405},
		step{method: "GET", path: "else", status: 404},
		step{method: "PUT", path: "providers/two", body: `{"api_base": "http://169.254.169.254"}`, status: 422,
			says: `"key": "providers[1].api_base"`},
		step{method: "PUT", path: "providers/two", body: `{"api_bse": "http://a"}`, status: 422,
			says: "did you mean \\\"api_base\\\""},
		step{method: "PUT", path: "providers/two?route=none", body: two, status: 409, says: "no such route"},
		step{method: "DELETE", path: "providers/one", status: 409, says: "without a target"},
		step{method: "DELETE", path: "providers/none", status: 404},
		step{method: "PUT", path: "providers/one/metrics", body: "{}", status: 404, says: "kv_events and lmcache"},
		step{method: "PUT", path: "providers/two", body: two, status: 412, header: []string{"If-Match", `"other"`}},
		step{method: "PUT", path: "providers/two?dry_run=true", body: two, status: 200, says: `"applied": false`},
	)
	if _, _, h := a.do("GET", "providers", ""); h.Get("ETag") != tag {
		t.Error("what was refused, or tried, changed the configuration")
	}
	run(
		step{method: "PUT", path: "providers/two", body: two, status: 200, says: `"targets": 2`, header: match},
		step{method: "PUT", path: "providers/two/kv_events", body: `{"endpoint": "tcp://127.0.0.1:1", "max_blocks": 7}`,
			status: 200},
		step{method: "GET", path: "providers/two", status: 200, says: `"max_blocks": 7`},
		step{method: "PUT", path: "providers/two", body: fmt.Sprintf("api_base = %q", second), status: 200,
			header: toml},
		step{method: "GET", path: "providers/two", status: 200, says: `"max_blocks": 7`}, // it has its sources still
		step{method: "PUT", path: "providers/two/kv_events", body: `{"endpoint": "tcp://127.0.0.1:1"}`, status: 200},
		step{method: "GET", path: "config", status: 200, says: "max_blocks = 1000000"}, // the default again
		step{method: "DELETE", path: "providers/two/kv_events", status: 200},
		step{method: "DELETE", path: "providers/one", status: 200, says: `"targets": 1`},
	)
	if target, ok := a.served("m"); !ok || target != "two" {
		t.Errorf("served by %q, %t", target, ok)
	}
	if b, err := os.ReadFile(a.file); err != nil || string(b) != text {
		t.Errorf("the file changed without ?write: %v\n%s", err, b)
	}
	if err := os.Chmod(a.file, 0o640); err != nil {
		t.Fatal(err)
	}
	run(step{method: "PUT", path: "providers/" + url.PathEscape("http://three/x") + "?write=true", status: 200,
		body: fmt.Sprintf(`{"api_base": %q}`, first), says: `"written": true`})
	b, err := os.ReadFile(a.file)
	if err != nil || !strings.Contains(string(b), "http://three/x") || !strings.Contains(string(b), "'two'") &&
		!strings.Contains(string(b), `"two"`) {
		t.Errorf("%v\n%s", err, b)
	}
	if st, err := os.Stat(a.file); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(a.file), ".*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	// A whole configuration, and a file that cannot be written: nothing changes.
	whole := strings.ReplaceAll(text, `"m"`, `"n"`)
	run(step{method: "PUT", path: "config", body: whole, status: 200, header: toml})
	if _, ok := a.served("n"); !ok {
		t.Error("the new route is not served")
	}
	if err := os.RemoveAll(filepath.Dir(a.file)); err != nil {
		t.Fatal(err)
	}
	run(step{method: "PUT", path: "config?write=true", body: text, status: 500, says: "nothing was changed",
		header: toml})
	if _, ok := a.served("n"); !ok {
		t.Error("a change that could not be written is in place")
	}
	if strings.Contains(a.log.String(), adminToken) {
		t.Error("the token is in the log")
	}
}

// TestAdminFlags: the API is off without a token and a debug address.
func TestAdminFlags(t *testing.T) {
	t.Setenv("SHORT", "short")
	t.Setenv("ADMIN_TOKEN", adminToken)
	for _, args := range [][]string{
		{"-admin", "ADMIN_TOKEN"}, {"-admin", "SHORT", "-debug", "127.0.0.1:0"},
		{"-admin", "NONE", "-debug", "127.0.0.1:0"},
	} {
		var out logged
		err := run(t.Context(), append([]string{"-target", "http://a:1"}, args...), &out, &out)
		if exit(err, &out) != 2 || !strings.Contains(err.Error(), "-admin") {
			t.Errorf("%q: %v", args, err)
		}
	}
	debug, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, "-target", "http://127.0.0.1:1", "-debug", debug)
	resp, err := http.Get("http://" + debug + adminPath + "config")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode == 200 || resp.StatusCode == 401 {
		t.Errorf("there is an API nobody asked for: %s %s", resp.Status, p.url)
	}
}
