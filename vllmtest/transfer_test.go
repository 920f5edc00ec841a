package vllmtest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/warmroute/router/vllmtest"
)

// complete posts a completion and returns the status and the reply.
func complete(t testing.TB, s *vllmtest.Server, body string) (int, map[string]any) {
	t.Helper()
	resp, err := s.Client().Post(s.URL+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	var m map[string]any
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil
	}
	_ = json.Unmarshal(raw, &m)
	return resp.StatusCode, m
}

func transferring(t testing.TB, hub *vllmtest.Hub, pinned time.Duration) *vllmtest.Server {
	s := vllmtest.NewServer(vllmtest.Config{
		TimeScale: 0.001, Blocks: 1024,
		Transfer: &vllmtest.Transfer{Hub: hub, Protocol: "nixl", PinnedFor: pinned},
	})
	t.Cleanup(s.Close)
	return s
}

// TestTransfer: blocks wait for one fetch; wrong parameters are a 500, and those without a host end the engine.
func TestTransfer(t *testing.T) {
	hub := new(vllmtest.Hub)
	p, d := transferring(t, hub, 0), transferring(t, hub, 0)
	text := strings.Repeat("abc ", 500)
	ask := fmt.Sprintf(`{"prompt":%q,"max_tokens":1,"kv_transfer_params":{"do_remote_decode":true}}`, text)
	status, m := complete(t, p, ask)
	params, err := json.Marshal(m["kv_transfer_params"])
	if status != 200 || err != nil || hub.Pinned() != 1 || p.Stats().BlocksUsed == 0 {
		t.Fatal(status, m, hub.Pinned(), p.Stats())
	}
	decode := fmt.Sprintf(`{"prompt":%q,"max_tokens":4,"kv_transfer_params":%s}`, text, params)
	status, m = complete(t, d, decode)
	if st := d.Stats(); status != 200 || st.ExternalTokens != st.PromptTokens-1 || hub.Pinned() != 0 {
		t.Fatal(status, m, st)
	}
	if p.Stats().BlocksUsed != 0 {
		t.Errorf("blocks are still in use: %+v", p.Stats())
	}
	first := m["choices"]
	if status, m = complete(t, d, decode); status != 200 || d.Stats().WrongBlocks != 1 ||
		reflect.DeepEqual(m["choices"], first) {
		t.Errorf("a second fetch is a %d with %v", status, m["choices"])
	}
	if status, _ = complete(t, d, `{"prompt":"x","kv_transfer_params":{"do_remote_prefill":true}}`); status != 0 {
		t.Errorf("without a host: %d", status)
	}
	for end := time.Now().Add(30 * time.Second); d.Stats().Restarts != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the engine has not died")
		}
	}
	// Blocks of an engine that died are a 500.
	_, m = complete(t, p, ask)
	params, _ = json.Marshal(m["kv_transfer_params"])
	if err := p.Restart(); err != nil {
		t.Fatal(err)
	}
	if status, _ = complete(t, d, fmt.Sprintf(`{"prompt":%q,"kv_transfer_params":%s}`, text, params)); status != 500 {
		t.Errorf("after the death of the other engine: %d", status)
	}
}

// TestTransferExpires: blocks that nobody fetches are given back, and counted.
func TestTransferExpires(t *testing.T) {
	hub := new(vllmtest.Hub)
	p := transferring(t, hub, time.Millisecond)
	complete(t, p, `{"prompt":"Hello, you there","max_tokens":1,"kv_transfer_params":{"do_remote_decode":true}}`)
	for end := time.Now().Add(30 * time.Second); p.Stats().Expired != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("they do not expire: %+v", p.Stats())
		}
	}
	resp, err := http.Get(p.MetricsURL())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(page), "vllm:nixl_num_kv_expired_reqs_total{") {
		t.Errorf("the page has no count of them: %v", err)
	}
	if st := p.Stats(); st.BlocksUsed != 0 || hub.Pinned() != 0 {
		t.Errorf("%+v", st)
	}
}

func TestTransferConfig(t *testing.T) {
	for _, x := range []*vllmtest.Transfer{
		{Protocol: "nixl"}, {Hub: new(vllmtest.Hub)}, {Hub: new(vllmtest.Hub), Protocol: "nixl", PinnedFor: -1},
	} {
		if s, err := vllmtest.New(vllmtest.Config{Transfer: x}); err == nil {
			s.Close()
			t.Errorf("%+v is taken", x)
		}
	}
}

func ExampleHub() {
	hub := new(vllmtest.Hub)
	s := vllmtest.NewServer(vllmtest.Config{Transfer: &vllmtest.Transfer{Hub: hub, Protocol: "nixl"}})
	defer s.Close()
	body := `{"prompt":"Hello, you","max_tokens":1,"kv_transfer_params":{"do_remote_decode":true}}`
	resp, err := s.Client().Post(s.URL+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	resp.Body.Close()
	fmt.Println(resp.StatusCode, hub.Pinned())
	// Output: 200 1
}
