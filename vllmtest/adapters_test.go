package vllmtest_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmroute/router/loadview/enginepage"
	"github.com/warmroute/router/vllmtest"
)

// postText sends one request and returns the status and the reply.
func postText(t *testing.T, url, path, body string) (int, string) {
	t.Helper()
	r, err := http.Post(url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func generate(t *testing.T, url, model string) int {
	t.Helper()
	status, _ := postText(t, url, "/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":"a prompt","max_tokens":2}`, model))
	return status
}

func adaptersOf(t *testing.T, url string) (*enginepage.Adapters, string) {
	t.Helper()
	r, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	p, err := new(enginepage.Reader).Read(bytes.NewReader(b), enginepage.NewTable(enginepage.Dialects()), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return p.Adapters(), string(b)
}

// The page lists what has requests, not what is loaded, unless ReportLoaded is set.
func TestAdapterSlots(t *testing.T) {
	var mu sync.Mutex
	var first []time.Duration
	s, err := vllmtest.New(vllmtest.Config{
		Model: "base", Adapters: []string{"a", "b", "c"}, MaxLoras: 2, LoadTime: 5 * time.Second, ReportLoaded: true,
		TimeScale: 0.001, FirstToken: func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			first = append(first, d)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, model := range []string{"a", "a", "b", "a", "c", "a", "b", "base"} {
		if status := generate(t, s.URL, model); status != 200 {
			t.Fatalf("%s: status %d", model, status)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	var loads []bool
	for _, d := range first {
		loads = append(loads, d > 4*time.Second)
	}
	// c evicts b, the least recently used one, and b then evicts c.
	if want := []bool{true, false, true, false, true, false, true, false}; !slices.Equal(loads, want) {
		t.Errorf("loads %v, want %v; first tokens after %v", loads, want, first)
	}
	got, page := adaptersOf(t, s.URL)
	slices.Sort(got.Loaded)
	if got.Slots != 2 || len(got.Running) != 0 || !slices.Equal(got.Loaded, []string{"a", "b"}) || !got.Exact {
		t.Errorf("%+v", got)
	}
	was := `vllm:lora_requests_info{max_lora="2",running_lora_adapters="b",waiting_lora_adapters=""} `
	if !strings.Contains(page, was) {
		t.Errorf("the page does not keep what was:\n%s", page)
	}
}

// Adapters are loaded and unloaded as at vLLM, in its words.
func TestDynamicAdapters(t *testing.T) {
	s, err := vllmtest.New(vllmtest.Config{Model: "base", DynamicAdapters: true, TimeScale: 0.001})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct {
		path, body string
		status     int
		says       string
	}{
		{"/v1/completions", `{"model":"sql","prompt":"x"}`, 404, "does not exist"},
		{"/v1/load_lora_adapter", `{"lora_name":"sql"}`, 400, "must be provided"},
		{"/v1/load_lora_adapter", `{"lora_name":"sql","lora_path":"/sql"}`, 200,
			"Success: LoRA adapter 'sql' added successfully."},
		{"/v1/load_lora_adapter", `{"lora_name":"sql","lora_path":"/sql"}`, 400, "already been loaded"},
		{"/v1/completions", `{"model":"sql","prompt":"x"}`, 200, ""},
		{"/v1/unload_lora_adapter", `{"lora_name":"sql"}`, 200, "removed successfully"},
		{"/v1/unload_lora_adapter", `{"lora_name":"sql"}`, 404, "cannot be found"},
		{"/v1/completions", `{"model":"sql","prompt":"x"}`, 404, "does not exist"},
	} {
		if status, said := postText(t, s.URL, c.path, c.body); status != c.status || !strings.Contains(said, c.says) {
			t.Errorf("%s %s: %d %s, want %d %s", c.path, c.body, status, said, c.status, c.says)
		}
	}
}

// Requests wait while all slots are in use, and let others pass.
func TestAdapterWaits(t *testing.T) {
	s, err := vllmtest.New(vllmtest.Config{Model: "base", Adapters: []string{"a", "b"}, MaxLoras: 1, TimeScale: 0.001})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			model := []string{"a", "b", "base"}[i%3]
			if status := generate(t, s.URL, model); status != 200 {
				t.Errorf("%s: status %d", model, status)
			}
		})
	}
	wg.Wait()
}
