package debugui_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/warmroute/router"
	"github.com/warmroute/router/debugui"
)

// TestHeaders looks at what each part of the page is sent with, over a socket.
func TestHeaders(t *testing.T) {
	s := start(t, debugui.Config{Title: "gateway 7"}, router.Trace{}, "a")
	mux := http.NewServeMux()
	mux.Handle("/debug/router/", s.page)
	srv := httptest.NewServer(mux)
	defer srv.Close()
	for path, kind := range map[string]string{
		"": "text/html", "app.js": "text/javascript", "tables.js": "text/javascript", "dom.js": "text/javascript",
		"style.css": "text/css",
		"icon.svg":  "image/svg+xml", "state": "application/json",
	} {
		resp, err := http.Get(srv.URL + "/debug/router/" + path)
		if err != nil {
			t.Fatal(err)
		}
		body := readAll(t, resp.Body)
		_ = resp.Body.Close()
		h := resp.Header
		csp := h.Get("Content-Security-Policy")
		if resp.StatusCode != http.StatusOK || !strings.HasPrefix(h.Get("Content-Type"), kind) ||
			h.Get("Cache-Control") != "no-store" ||
			h.Get("X-Frame-Options") != "DENY" || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Referrer-Policy") != "no-referrer" ||
			!strings.HasPrefix(csp, "default-src 'none';") || strings.Contains(csp, "unsafe") ||
			!strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("%s: %s %v", path, resp.Status, h)
		}
		if path != "icon.svg" && path != "dom.js" &&
			(strings.Contains(body, "http:") || strings.Contains(body, "https:") || strings.Contains(body, "src=\"/")) {
			t.Errorf("%s names another origin, or a path from the root", path)
		}
		if path == "" && (strings.Contains(body, "style=") || strings.Contains(body, "<style") ||
			strings.Contains(body, "onclick") || strings.Contains(body, "<script>")) {
			t.Errorf("%s has styles or scripts that its policy forbids", path)
		}
	}
}

// TestAnswers asks in ways that are not the page's own.
func TestAnswers(t *testing.T) {
	s := start(t, debugui.Config{Hosts: []string{"Gateway.example"}, MaxBody: 10_000}, router.Trace{}, "a", "b")
	s.route(t, long).Done(router.Outcome{Stage: router.Finished})
	try := `{"route":"llama","model":"llama","body":"hello"}`
	type header = map[string]string
	json := header{"Content-Type": "application/json"}
	with := func(more ...string) header {
		h := header{"Content-Type": "application/json"}
		for i := 0; i < len(more); i += 2 {
			h[more[i]] = more[i+1]
		}
		return h
	}
	for _, c := range []struct {
		name, method, path, host string
		h                        header
		body                     string
		want                     int
	}{
		{"the page", "GET", "/", "127.0.0.1:80", nil, "", 200},
		{"IPv6", "GET", "/", "[::1]:80", nil, "", 200},
		{"localhost", "GET", "/", "LOCALHOST:8080", nil, "", 200},
		{"below localhost", "GET", "/", "x.localhost", nil, "", 200},
		{"a name that is allowed", "GET", "/", "gateway.example.:80", nil, "", 200},
		{"a name that is not", "GET", "/state", "evil.example", nil, "", 403},
		{"a name that looks like it", "GET", "/state", "notlocalhost", nil, "", 403},
		{"no name", "GET", "/state", "", nil, "", 403},
		{"HEAD", "HEAD", "/x/", "localhost", nil, "", 200},
		{"writing", "POST", "/state", "localhost", nil, "", 405},
		{"another file", "GET", "/x/debugui.go", "localhost", nil, "", 404},
		{"up", "GET", "/x/../../etc/passwd", "localhost", nil, "", 404},
		{"a decision that is not", "GET", "/decision?route=llama&seq=77", "localhost", nil, "", 404},
		{"a decision of no route", "GET", "/decision?route=x&seq=1", "localhost", nil, "", 404},
		{"no number", "GET", "/decision?route=llama&seq=-1", "localhost", nil, "", 404},
		{"a try", "POST", "/explain", "localhost", json, try, 200},
		{"a try from the page", "POST", "/explain", "localhost", with("Origin", "http://localhost", "Sec-Fetch-Site",
			"same-origin"), try, 200},
		{"a try from elsewhere", "POST", "/explain", "localhost", with("Origin", "https://evil.example", "Sec-Fetch-Site",
			"cross-site"), try, 403},
		{"a try from a neighbour", "POST", "/explain", "localhost", with("Sec-Fetch-Site", "same-site"), try, 403},
		{"a try from elsewhere with an old browser", "POST", "/explain", "localhost",
			with("Origin", "https://evil.example"), try, 403},
		{"a try from nowhere", "POST", "/explain", "localhost", with("Origin", "null"), try, 403},
		{"a form", "POST", "/explain", "localhost", header{"Content-Type": "text/plain"}, try, 415},
		{"a try by GET", "GET", "/explain", "localhost", nil, "", 405},
		{"a try under another name", "POST", "/explain", "evil.example", json, try, 403},
		{"a try of no route", "POST", "/explain", "localhost", json, `{"route":"x"}`, 404},
		{"no JSON", "POST", "/explain", "localhost", json, `{`, 400},
		{"too long", "POST", "/explain", "localhost", json, `{"body":"` + strings.Repeat("x", 20_000) + `"}`, 413},
	} {
		r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
		r.Host = c.host
		for k, v := range c.h {
			r.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		s.page.ServeHTTP(w, r)
		if w.Code != c.want || w.Header().Get("Cache-Control") != "no-store" ||
			w.Header().Get("Content-Security-Policy") == "" {
			t.Errorf("%s: %d, want %d: %s", c.name, w.Code, c.want, w.Body)
		}
	}
	any, err := debugui.New(debugui.Config{Hosts: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	any.ServeHTTP(w, httptest.NewRequest("GET", "http://whatever.example/", nil))
	if w.Code != http.StatusOK {
		t.Errorf("any host: %d", w.Code)
	}
}

// The page's list of reasons is the library's own, and what the page adds.
func TestReasons(t *testing.T) {
	s := start(t, debugui.Config{}, router.Trace{}, "a")
	w := httptest.NewRecorder()
	s.page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/debug/router/reasons.js", nil))
	for _, r := range router.Reasons() {
		if line := `"` + string(r.Reason) + `": "` + r.Text + `",`; !strings.Contains(w.Body.String(), line) {
			t.Errorf("%s is missing from\n%s", line, w.Body)
		}
	}
	if !strings.Contains(w.Body.String(), `"no_target_not_ready"`) {
		t.Error("nothing is said of no target")
	}
}
