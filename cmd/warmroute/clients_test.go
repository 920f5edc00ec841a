package main

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// echoing answers with its name and the part of a request that a test looks at.
func echoing(t *testing.T, name string) string {
	return upstream(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if r.Header.Get("Origin") == "http://page.example" {
			w.Header().Set("Access-Control-Allow-Origin", "*")
		}
		fmt.Fprintf(w, "%s %s %s %s", name, r.Method, r.URL.RequestURI(), b)
	})
}

// TestAnyRoute: with several routes, everything that an engine of any of them can answer is served, and the first route
// with an engine serves it.
func TestAnyRoute(t *testing.T) {
	leakCheck(t)
	one, two := echoing(t, "one"), echoing(t, "two")
	g, down := serveFile(t, Config{}, twoModels(one, two)), serveFile(t, Config{Log: discard},
		twoModels("http://127.0.0.1:1", two)+
			"[routes.failover]\nattempts=1\n")
	do := func(g *rig, method, path, contentType, body string) (int, string) {
		req, err := http.NewRequest(method, g.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if contentType != "" {
			req.Header.Set("Content-Type", contentType)
		}
		req.Header.Set("Origin", "http://page.example")
		req.Header.Set("Access-Control-Request-Method", "POST")
		resp, err := g.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s %s: a page may not read the answer: %v", method, path, resp.Header)
		}
		return resp.StatusCode, readAll(t, resp.Body)
	}
	const chat = "/v1/chat/completions"
	for _, c := range []struct {
		method, path, contentType, body string
		status                          int
		want                            string
	}{
		{"OPTIONS", chat, "", "", 200, "one OPTIONS " + chat},
		{"OPTIONS", "/v1/models", "", "", 200, "one OPTIONS /v1/models"},
		{"GET", "/version", "", "", 200, "one GET /version"},
		{"GET", "/v1/responses/resp_1", "", "", 200, "one GET /v1/responses/resp_1"},
		{"POST", "/v1/responses/resp_1/cancel", "", "", 200, "one POST /v1/responses/resp_1/cancel"},
		{"DELETE", "/v1/files/f", "", "", 200, "one DELETE /v1/files/f"},
		{"POST", "/v1/batches", "application/json", `{"input_file_id":"f"}`, 200, "one POST /v1/batches"},
		{"POST", chat + "?model=second", "application/json", `{"messages":[]}`, 200,
			"two POST " + chat + "?model=the%2Fsecond"},
		{"POST", "/v1/x", "application/x-www-form-urlencoded", "a=1&model=second", 200,
			"two POST /v1/x a=1&model=the%2Fsecond"},
		{"GET", "/v1/models", "", "", 200, `"id":"second"`},
		{"GET", "/v1/models/second", "", "", 200, `"id":"second"`},
		{"GET", "/v1/models/third", "", "", 404, "does not exist"},
		{"POST", chat, "application/json", `{"messages":[]}`, 400, "names no model"},
		{"POST", chat, "application/json", `{"model":"third"}`, 404, "does not exist"},
	} {
		status, got := do(g, c.method, c.path, c.contentType, c.body)
		if status != c.status || !strings.Contains(got, c.want) {
			t.Errorf("%s %s: %d %s; want %s", c.method, c.path, status, got, c.want)
		}
	}
	req, err := http.NewRequest("GET", g.url+"/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Origin", "http://other.example")
	resp, err := g.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := resp.Header.Get("Access-Control-Allow-Origin"); got != "" {
		t.Errorf("a page that the engine does not know may read the answer: %s", got)
	}
	eventually(t, "the first route has no engine, so the second one's answers", func() bool {
		status, got := do(down, "GET", "/version", "", "")
		return status == 200 && strings.HasPrefix(got, "two")
	})
}

// TestForms: the model of a form selects the route and becomes the engine's name, and the rest of the form stays.
func TestForms(t *testing.T) {
	leakCheck(t)
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		file, head, err := r.FormFile("file")
		if err != nil {
			t.Error(err)
			return
		}
		b, _ := io.ReadAll(file)
		fmt.Fprintf(w, "%q %s %q %v", r.MultipartForm.Value["model"], head.Filename, b, r.MultipartForm.Value["language"])
	})
	g := serveFile(t, Config{}, twoModels("http://127.0.0.1:1", up))
	form := func(models ...string) (string, []byte) {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		f, _ := w.CreateFormFile("file", "model.wav")
		f.Write([]byte("\r\n--not the boundary\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nx"))
		for _, m := range models {
			w.WriteField("model", m)
		}
		w.WriteField("language", "en")
		w.Close()
		return w.FormDataContentType(), b.Bytes()
	}
	for _, models := range [][]string{{"second"}, {"first", "second"}} {
		contentType, body := form(models...)
		resp, err := g.http.Post(g.url+"/v1/audio/transcriptions", contentType, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		got := readAll(t, resp.Body)
		resp.Body.Close()
		want := fmt.Sprintf("%q model.wav", slices.Repeat([]string{"the/second"}, len(models)))
		if resp.StatusCode != 200 || !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "[en]") {
			t.Errorf("%v: %s %s", models, resp.Status, got)
		}
	}
	contentType, body := form("third")
	resp, err := g.http.Post(g.url+"/v1/audio/transcriptions", contentType, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 404 {
		t.Error(resp.Status)
	}
}

// TestSecrets: a provider with a key of its own sees no secret of the client, and one without sees them all.
func TestSecrets(t *testing.T) {
	leakCheck(t)
	t.Setenv("GATEWAY_TEST_KEY", "own")
	var seen atomic.Pointer[http.Request]
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) { seen.Store(r) })
	secrets := []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Cookie", "X-Auth-Token",
		"X-Amz-Security-Token",
		"Ocp-Apim-Subscription-Key", "Private-Token", "X-Custom-Api_key", "X-Client-Secret", "X-Forwarded-Access-Token",
		"Openai-Organization"}
	others := []string{"X-Session-Id", "Idempotency-Key", "Traceparent", "Anthropic-Version", "X-Rolter-Vllm-Token-Ids",
		"X-Request-Id"}
	provider := "[[providers]]\nname='p'\napi_base='" + up + "'\n"
	routes := "[[routes]]\nmodel='*'\ntargets=[{provider='p'}]\n"
	for settings, own := range map[string]string{
		"": "", "headers_env={ 'X-Team'='GATEWAY_TEST_KEY' }\n": "",
		"api_key_env='GATEWAY_TEST_KEY'\n":                      "Authorization",
		"headers_env={ 'X-Api-Key'='GATEWAY_TEST_KEY' }\n":      "X-Api-Key",
		"headers_env={ 'X-Goog-Api-Key'='GATEWAY_TEST_KEY' }\n": "X-Goog-Api-Key",
	} {
		g := serveFile(t, Config{}, provider+settings+routes)
		req, _ := http.NewRequest("POST", g.url+"/v1/chat/completions?key=theirs&a=1&api_key=theirs&access_token=theirs",
			strings.NewReader(chatBody))
		for _, k := range append(secrets, others...) {
			req.Header.Set(k, "theirs")
		}
		resp, err := g.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		r := seen.Load()
		for _, k := range secrets {
			want := "theirs"
			if own != "" {
				want = ""
			}
			if k == own {
				want = "own"
			}
			if got := r.Header.Get(k); !strings.HasSuffix(got, want) || want == "" && got != "" {
				t.Errorf("%s: %s is %q", settings, k, got)
			}
		}
		for _, k := range others {
			if r.Header.Get(k) != "theirs" {
				t.Errorf("%s: %s is %q", settings, k, r.Header.Get(k))
			}
		}
		if q := r.URL.RawQuery; (q == "a=1") != (own != "") {
			t.Errorf("%s: the query is %s", settings, q)
		}
	}
}

// TestPaths: clients reach the paths of APIs and those that are opened, in no spelling another one, and the
// gateway's own
// metrics.
func TestPaths(t *testing.T) {
	leakCheck(t)
	up := echoing(t, "engine")
	provider := "[[providers]]\nname='p'\napi_base='" + up + "'\n[[routes]]\nmodel='*'\ntargets=[{provider='p'}]\n"
	plain := serveFile(t, Config{}, provider)
	opened := serveFile(t, Config{OpenPaths: []string{"/slots"}}, "[requests]\nopen_paths=['/admin/*']\n"+provider)
	every := serveFile(t, Config{OpenPaths: []string{"*"}}, provider)
	closed := []string{
		"/sleep", "/wake_up", "/reset_prefix_cache", "/flush_cache", "/collective_rpc", "/update_weights_from_disk",
		"/load_lora_adapter",
		"/v1/load_lora_adapter", "/v1/load_lora_adapter/", "//v1//unload_lora_adapter", "/v1/%6Coad_lora_adapter", "/docs",
		"/openapi.json",
		"/server_info", "/get_server_info", "/start_profile", "/abort_request", "/slots", "/admin/x", "/lora-adapters",
		"/v1", "/v2/x", "/api/pull",
		"/v1x/models", "/kv_cache_events", "/metrics/x", "/pause", "/scale_elastic_ep",
	}
	for _, path := range closed {
		if got := plain.status(t, path); got != 404 {
			t.Errorf("%s: %d", path, got)
		}
		want := 404
		if path == "/slots" || path == "/admin/x" {
			want = 200
		}
		if got := opened.status(t, path); got != want {
			t.Errorf("%s, with two more: %d", path, got)
		}
		if got := every.status(t, path); got != 200 {
			t.Errorf("%s, all open: %d", path, got)
		}
	}
	for _, path := range []string{
		"/v1/models", "/v1/anything", "/v1/audio/speech", "/generate", "/inference/v1/generate", "/rerank", "/v2/rerank",
		"/tokenize",
		"/completion", "/team/v1/chat/completions", "/version", "/healthz", "/health",
	} {
		if got := plain.status(t, path); got != 200 {
			t.Errorf("%s: %d", path, got)
		}
	}
	for _, path := range []string{"/v1/../sleep", "/v1/%2e%2e/sleep", "/v1/x/..%2f..%2fsleep"} {
		if got := plain.status(t, path); got != 400 {
			t.Errorf("%s: %d", path, got)
		}
	}
}

// status returns the status of a GET of a path as it is spelled.
func (g *rig) status(t *testing.T, path string) int {
	t.Helper()
	u, err := url.Parse(g.url)
	if err != nil {
		t.Fatal(err)
	}
	u.Opaque = "//" + u.Host + path
	resp, err := g.http.Do(&http.Request{Method: "GET", URL: u, Host: u.Host})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestMetrics: the page is the gateway's own, and its numbers are those of the requests.
func TestMetrics(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == metricsPath {
			t.Error("the engine's page was asked for")
		}
		io.WriteString(w, `{"object":"list","data":[]}`)
	})
	g := newRig(t, rigConfig{strategy: "least_work"}, up)
	for range 3 {
		readAll(t, g.post(t, "/v1/embeddings", `{"model":"m","input":"x"}`).Body)
	}
	g.settled(t)
	resp, err := g.http.Get(g.url + metricsPath)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page := readAll(t, resp.Body)
	for _, line := range []string{
		`warmroute_attempts_total{code="2xx",outcome="finished",route="*",strategy="least_work"} 3`,
		`warmroute_target_ready{fleet="default",target="` + up + `"} 1`,
		`warmroute_target_in_flight{fleet="default",target="` + up + `"} 0`,
		`warmroute_targets{fleet="default",state="ready"} 1`, "# TYPE warmroute_picks_total counter",
		"warmroute_gateway_requests 0", `warmroute_fleet_panics{fleet="default"} 0`,
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("no %s in\n%s", line, page)
		}
	}
	if got := g.post(t, metricsPath, "{}").StatusCode; got != 405 {
		t.Error(got)
	}
	if got := newRig(t, rigConfig{Config: Config{Silent: true}}, up).status(t, metricsPath); got != 404 {
		t.Error("silent:", got)
	}
}

// TestTextIsCharged: the text of a prompt, a copy of most of its body, takes memory of all bodies while the request is
// under way.
func TestTextIsCharged(t *testing.T) {
	entered, leave := make(chan bool), make(chan bool)
	g := newRig(t, rigConfig{Config: Config{MaxBodies: 150 << 10}}, upstream(t, func(w http.ResponseWriter,
		r *http.Request) {
		entered <- true
		<-leave
		io.WriteString(w, `{"choices":[{"message":{"content":"hi"}}]}`)
	}))
	body := strings.Replace(chatBody, "hello", strings.Repeat("x", 60<<10), 1)
	done := make(chan int)
	go func() { done <- g.post(t, "/v1/chat/completions", body).StatusCode }()
	<-entered
	if got := g.h.bodies.Used(); got < 120<<10 {
		t.Errorf("%d bytes are charged", got)
	}
	if got := g.post(t, "/v1/chat/completions", body).StatusCode; got != 503 {
		t.Error(got)
	}
	leave <- true
	if got := <-done; got != 200 {
		t.Error(got)
	}
	eventually(t, "all is given back", func() bool { return g.h.bodies.Used() == 0 })
}
