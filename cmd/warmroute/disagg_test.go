package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/warmroute/router/vllmtest"
)

// splitRig is a gateway over two prefill replicas and one decode replica.
func splitRig(t *testing.T, settings string) (*rig, map[string]*vllmtest.Server, *vllmtest.Hub) {
	t.Helper()
	hub, at := new(vllmtest.Hub), map[string]*vllmtest.Server{}
	var file strings.Builder
	targets := ""
	for _, name := range []string{"p0", "p1", "d0"} {
		s := vllmtest.NewServer(vllmtest.Config{
			Model: "engine", TimeScale: 0.001, ReplyTokens: 16, Transfer: &vllmtest.Transfer{Hub: hub, Protocol: "nixl"},
		})
		t.Cleanup(s.Close)
		at[name] = s
		role := "prefill"
		if name == "d0" {
			role = "decode"
		}
		fmt.Fprintf(&file, "[[providers]]\nname=%q\napi_base=%q\nrole=%q\n", name, s.URL, role)
		targets += fmt.Sprintf("[[routes.targets]]\nprovider=%q\nmodel=\"engine\"\n", name)
	}
	file.WriteString("[[routes]]\nmodel=\"m\"\n[routes.failover]\nbackoff=\"-1s\"\n" + settings + targets)
	return serveFile(t, Config{}, file.String()), at, hub
}

func chatOf(name string, tokens int) string {
	return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"%s %s"}],"stream":true,"max_tokens":16}`,
		name, strings.Repeat("abc ", tokens))
}

// TestSplit: roles in the file have prompts computed by one engine and answered by another.
func TestSplit(t *testing.T) {
	g, at, hub := splitRig(t, "")
	ask := func(body string) string {
		t.Helper()
		resp := g.post(t, "/v1/chat/completions", body)
		defer resp.Body.Close()
		text := readAll(t, resp.Body)
		if resp.StatusCode != 200 || !strings.Contains(text, "[DONE]") {
			t.Fatalf("%d: %s", resp.StatusCode, text)
		}
		return text
	}
	ask(chatOf("a", 4000))
	d := at["d0"].Stats()
	if share := float64(d.ExternalTokens) / float64(d.PromptTokens); share < 0.99 || d.Finished != 1 || hub.Pinned() != 0 {
		t.Errorf("%v came by transfer: %+v", share, d)
	}
	ask(chatOf("b", 10)) // short
	for _, p := range []string{"p0", "p1"} {
		if err := at[p].SetFaults(vllmtest.Faults{Status: 500}); err != nil {
			t.Fatal(err)
		}
	}
	ask(chatOf("c", 4000))
	if n := at["d0"].Stats().Finished; n != 3 {
		t.Errorf("decode served %d", n)
	}
	page := readAll(t, mustGet(t, g, "/metrics"))
	first := 0 // each request has one time to its first token; the prefill of one has none
	count := regexp.MustCompile(`(?m)^warmroute_time_to_first_token_seconds_count\S* (\d+)$`)
	for _, m := range count.FindAllStringSubmatch(page, -1) {
		n, _ := strconv.Atoi(m[1])
		first += n
	}
	whole := `warmroute_request_duration_seconds_count{route="m",strategy="least_work"} 3`
	if first != 3 || !strings.Contains(page, "\n"+whole+"\n") {
		t.Errorf("%d times to a first token in\n%s", first, page)
	}
	for _, want := range []string{
		`warmroute_disagg_prefills_total{outcome="finished"`, `warmroute_disagg_prefills_total{outcome="failed"`,
		`warmroute_disagg_skipped_total{reason="short"`, `warmroute_disagg_skipped_total{reason="prefill_failed"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s:\n%s", want, page)
		}
	}
	g.settled(t)
}

func mustGet(t *testing.T, g *rig, path string) io.Reader {
	t.Helper()
	resp, err := g.http.Get(g.url + path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp.Body
}

// TestSplitStrict: a prompt that no prefill engine computes is not computed by a decode engine, and a prefill
// engine's own refusal is the client's.
func TestSplitStrict(t *testing.T) {
	g, at, _ := splitRig(t, "[routes.disagg]\nstrict=true\n")
	for status, want := range map[int]int{500: 502, 422: 422} {
		for _, p := range []string{"p0", "p1"} {
			if err := at[p].SetFaults(vllmtest.Faults{Status: status}); err != nil {
				t.Fatal(err)
			}
		}
		resp := g.post(t, "/v1/chat/completions", chatOf(fmt.Sprint("s", status), 10))
		text := readAll(t, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%d, not %d: %s", resp.StatusCode, want, text)
		}
	}
	if n := at["d0"].Stats().Requests; n != 0 {
		t.Errorf("decode got %d requests", n)
	}
	g.settled(t)
}

// TestSplitHostile: a client's parameters and headers reach no engine.
func TestSplitHostile(t *testing.T) {
	g, at, _ := splitRig(t, "")
	resp := g.post(t, "/v1/chat/completions",
		`{"model":"m","messages":[{"role":"user","content":"x"}],"kv_transfer_params":{"do_remote_prefill":true}}`)
	resp.Body.Close()
	if resp.StatusCode != 400 {
		t.Errorf("the answer is a %d", resp.StatusCode)
	}
	if st := at["d0"].Stats(); st.Requests != 0 || st.Restarts != 0 {
		t.Errorf("%+v", st)
	}
}

// TestSplitSidecar: with llm-d's sidecar the decode engine gets the address of the prefill engine, and not a client's.
func TestSplitSidecar(t *testing.T) {
	got := make(chan http.Header, 2)
	decode := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"choices":[{"message":{"content":"hello"},"finish_reason":"stop"}]}`)
	}))
	t.Cleanup(decode.Close)
	prefill := vllmtest.NewServer(vllmtest.Config{Model: "m"})
	t.Cleanup(prefill.Close)
	g := serveFile(t, Config{}, fmt.Sprintf(`[[providers]]
name="p"
api_base=%q
role="prefill"
[[providers]]
name="d"
api_base=%q
role="decode"
[[routes]]
model="m"
[routes.disagg]
protocol="sidecar"
[[routes.targets]]
provider="p"
[[routes.targets]]
provider="d"
`, prefill.URL, decode.URL))
	for tokens, want := range map[int]string{4000: strings.TrimPrefix(prefill.URL, "http://"), 10: ""} {
		req, err := http.NewRequest(http.MethodPost, g.url+"/v1/chat/completions", strings.NewReader(chatOf("x", tokens)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Prefiller-Host-Port", "10.0.0.1:1")
		req.Header.Set("X-Kv-Cache-Source-Host-Port", "10.0.0.1:1")
		resp, err := g.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		h := <-got
		if resp.StatusCode != 200 || h.Get("X-Prefiller-Host-Port") != want || h.Get("X-Kv-Cache-Source-Host-Port") != "" {
			t.Errorf("%d, %v, want %q", resp.StatusCode, h, want)
		}
	}
	if n := prefill.Stats().Requests; n != 0 {
		t.Errorf("the gateway sent %d requests to the prefill engine", n)
	}
	g.settled(t)
}
