package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/warmroute/router/strategy/precisecacheaware"
	"github.com/warmroute/router/vllmtest"
)

// readmeFile returns the file of the README, as it is there.
func readmeFile(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllStringSubmatch(string(b), -1)
	if len(all) != 1 {
		t.Fatalf("%d files in the README", len(all))
	}
	return all[0][1]
}

// TestReadmeFile checks the README's file as it is written, and serves it with
// replicas in the place of its hosts.
func TestReadmeFile(t *testing.T) {
	t.Setenv("VLLM_2_KEY", "key")
	file := readmeFile(t)
	path := filepath.Join(t.TempDir(), "router.toml")
	place(t, path, file)
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), []string{"-config", path, "-check", "-strict"}, &stdout, &stderr); err != nil ||
		stderr.Len() > 0 {
		t.Fatalf("%v\n%s", err, stderr.String())
	}

	const llama = "meta-llama/Llama-3.1-8B-Instruct"
	for _, host := range []string{"vllm-1", "vllm-2"} {
		s := vllmtest.NewServer(vllmtest.Config{Model: llama, Adapters: []string{"sql-lora"}, TimeScale: 1e-6,
			ReplyTokens: 4, Events: &vllmtest.Events{}})
		t.Cleanup(s.Close)
		cache := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"is_healthy":true,"storage_manager":{"l1_manager":{"memory_usage_ratio":0.2}}}`)
		})
		file = strings.NewReplacer(
			"http://"+host+":8000", s.URL, "http://"+host+":8080", cache,
			"tcp://"+host+":5557", s.Events().Endpoint(), "tcp://"+host+":5558", s.Events().ReplayEndpoint(),
		).Replace(file)
	}
	dp := vllmtest.NewServer(vllmtest.Config{Ranks: 4, TimeScale: 1e-6, ReplyTokens: 4})
	t.Cleanup(dp.Close)
	place(t, path, strings.ReplaceAll(file, "http://vllm-dp:8000", dp.URL))
	p := start(t, "-config", path)
	for _, c := range []struct{ model, targets, reasons string }{
		{"llama", "vllm-1 vllm-2", "warm cold untrusted_text"}, {"gpt-4o", "vllm-1 vllm-2", "warm cold untrusted_text"},
		{"sql-lora", "vllm-1 vllm-2", "warm cold untrusted_text"},
		{"llama-long", "vllm-1 vllm-2", "cache_capacity least_load"},
		{"qwen-7b", "vllm-dp/0 vllm-dp/1 vllm-dp/2 vllm-dp/3", "warm cold"},
	} {
		for range 3 {
			resp, err := http.Post(p.url+"/v1/chat/completions", "application/json",
				strings.NewReader(`{"model":"`+c.model+`","messages":[{"role":"user","content":"`+strings.Repeat("hello ",
					50)+`"}]}`))
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			target, reason := resp.Header.Get(headerTarget), resp.Header.Get(headerReason)
			if resp.StatusCode != 200 || !strings.Contains(" "+c.targets+" ", " "+target+" ") ||
				!strings.Contains(" "+c.reasons+" ", " "+reason+" ") {
				t.Errorf("%s: %s from %q, %q: %.200s", c.model, resp.Status, target, reason, b)
			}
		}
	}
	resp, err := http.Get(p.url + modelsPath)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var list struct{ Data []struct{ ID string } }
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, m := range list.Data {
		ids = append(ids, m.ID)
	}
	if got := strings.Join(ids, " "); got != "llama gpt-4o sql-lora llama-long qwen-*" {
		t.Errorf("the models are %s", got)
	}
	var v page
	eventually(t, "the streams and the LMCaches are there", func() bool {
		v = p.debug(t)
		return v.Precise != nil && len(v.Precise.Targets) == 2 && v.LMCache["vllm-1"].State == "available"
	})
	if v.Tokens == nil || v.Tokens.Whole == 0 || *v.LMCache["vllm-1"].Free < 0.6 {
		t.Errorf("%+v", v)
	}
}

// TestReadmeReasons: the reasons that the README names are those that there are.
func TestReadmeReasons(t *testing.T) {
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []string{
		string(precisecacheaware.ReasonNoTokensText), string(precisecacheaware.ReasonUntrustedText),
		string(precisecacheaware.ReasonNoTokensLeastLoad), string(precisecacheaware.ReasonUntrustedLeastLoad),
	} {
		if !strings.Contains(string(b), "`"+r+"`") {
			t.Errorf("the README has no %s", r)
		}
	}
}
