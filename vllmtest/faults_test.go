package vllmtest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/warmroute/router/vllmtest"
)

const chatBody = `{"messages":[{"role":"user","content":"Tell me a long story about a fox"}],"max_tokens":40`

func try(s *vllmtest.Server, body string) (*http.Response, string, error) {
	return tryCtx(context.Background(), s, body)
}

func tryCtx(ctx context.Context, s *vllmtest.Server, body string) (*http.Response, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	res, err := s.Client().Do(req)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res, string(b), err
}

// both runs a test against a simulating replica and an instant one.
func both(t *testing.T, f func(t *testing.T, s *vllmtest.Server)) {
	t.Run("simulated", func(t *testing.T) { f(t, fast(t, vllmtest.Config{})) })
	t.Run("instant", func(t *testing.T) { f(t, fast(t, vllmtest.Config{Instant: true})) })
}

func setFaults(t *testing.T, s *vllmtest.Server, f vllmtest.Faults) {
	t.Helper()
	if err := s.SetFaults(f); err != nil {
		t.Fatal(err)
	}
}

func healthy(t *testing.T, s *vllmtest.Server) {
	t.Helper()
	for _, end := range []string{"}", `,"stream":true}`} {
		res, body, err := try(s, chatBody+end)
		if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(body, "finish_reason") {
			t.Fatalf("the replica is not healthy: %v %v %q", err, res, body)
		}
	}
}

// eventually waits for another goroutine.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestRefuse(t *testing.T) {
	both(t, func(t *testing.T, s *vllmtest.Server) {
		healthy(t, s)
		setFaults(t, s, vllmtest.Faults{Refuse: true})
		// One of these may not have been idle yet; what the client sees then is an EOF.
		s.Client().CloseIdleConnections()
		for range 2 {
			if _, _, err := try(s, chatBody+"}"); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%v", err)
			}
		}
		setFaults(t, s, vllmtest.Faults{})
		healthy(t, s)
		setFaults(t, s, vllmtest.Faults{Refuse: true, Next: 2})
		for range 2 {
			if _, _, err := try(s, chatBody+"}"); err == nil {
				t.Error("a request was answered")
			}
		}
		healthy(t, s)
		if st := s.Stats(); st.Faulted != 2 {
			t.Errorf("%+v", st)
		}
	})
}

func TestStatusAndRetryAfter(t *testing.T) {
	both(t, func(t *testing.T, s *vllmtest.Server) {
		setFaults(t, s, vllmtest.Faults{Status: 429, RetryAfter: 1500 * time.Millisecond, Next: 1})
		res, body, err := try(s, chatBody+"}")
		if err != nil || res.StatusCode != 429 || res.Header.Get("Retry-After") != "2" || !strings.Contains(body,
			"RateLimitError") {
			t.Errorf("%v %v %s", err, res, body)
		}
		healthy(t, s)
		setFaults(t, s, vllmtest.Faults{Status: 503})
		for range 3 {
			if res, _, err := try(s, chatBody+"}"); err != nil || res.StatusCode != 503 {
				t.Errorf("%v %v", err, res)
			}
		}
		get := func(path string) int {
			res, err := s.Client().Get(s.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			return res.StatusCode
		}
		if c := get("/health"); c != 200 {
			t.Errorf("/health: %d", c)
		}
		setFaults(t, s, vllmtest.Faults{Status: 500, Probes: true})
		for _, p := range []string{"/health", "/metrics", "/v1/models"} {
			if c := get(p); c != 500 {
				t.Errorf("%s: %d", p, c)
			}
		}
	})
}

func TestHang(t *testing.T) {
	both(t, func(t *testing.T, s *vllmtest.Server) {
		setFaults(t, s, vllmtest.Faults{Hang: true})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			_, _, err := tryCtx(ctx, s, chatBody+"}")
			done <- err
		}()
		eventually(t, "the request arrives", func() bool { return s.Stats().Faulted == 1 })
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		eventually(t, "the client's leaving is seen", func() bool { return s.Stats().Aborted == 1 })
		go func() {
			_, _, err := try(s, chatBody+"}")
			done <- err
		}()
		eventually(t, "the request arrives", func() bool { return s.Stats().Faulted == 2 })
		s.Close()
		if err := <-done; err == nil {
			t.Error("a request was answered")
		}
	})
}

func TestCut(t *testing.T) {
	both(t, func(t *testing.T, s *vllmtest.Server) {
		setFaults(t, s, vllmtest.Faults{CutAfter: 3, Next: 2})
		_, body, err := try(s, chatBody+`,"stream":true}`)
		if n := strings.Count(body, `"content":"`) - 1; !errors.Is(err, io.ErrUnexpectedEOF) || n != 3 ||
			strings.Contains(body, "[DONE]") {
			t.Errorf("%d pieces, %v: %s", n, err, body)
		}
		if _, body, err = try(s, chatBody+`}`); !errors.Is(err, io.ErrUnexpectedEOF) || body == "" {
			t.Errorf("%v: %s", err, body)
		}
		healthy(t, s)
		if st := s.Stats(); st.Aborted != 2 || st.Finished != 2 || st.BlocksUsed != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestDelay(t *testing.T) {
	both(t, func(t *testing.T, s *vllmtest.Server) {
		setFaults(t, s, vllmtest.Faults{Delay: 30 * time.Millisecond, Next: 1})
		start := time.Now()
		if _, _, err := try(s, chatBody+"}"); err != nil || time.Since(start) < 30*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
	s := fast(t, vllmtest.Config{Instant: true, Delay: 20 * time.Millisecond})
	setFaults(t, s, vllmtest.Faults{Slow: 2, Next: 1})
	for _, want := range []time.Duration{40 * time.Millisecond, 20 * time.Millisecond} {
		start := time.Now()
		if _, _, err := try(s, chatBody+`,"stream":true}`); err != nil || time.Since(start) < want {
			t.Errorf("%v after %v, want %v", err, time.Since(start), want)
		}
	}
}

func TestBadConfigAndFaultsNameTheField(t *testing.T) {
	for field, cfg := range map[string]vllmtest.Config{
		"Config.Blocks":              {Blocks: -1},
		"Config.BlockSize":           {BlockSize: 1 << 20},
		"Config.MaxModelLen":         {Blocks: 10, MaxModelLen: 161},
		"Config.MaxSeqs":             {MaxSeqs: 100, MaxStepTokens: 10},
		"Config.TimeScale":           {TimeScale: -1},
		"Config.Delay":               {Delay: time.Second},
		"Config.Adapters":            {Model: "a", Adapters: []string{"a"}},
		"Config.Timing.PrefillToken": {Timing: vllmtest.Timing{PrefillToken: -1}},
		"Config.ReplyTokens":         {ReplyTokens: -1},
		"listen":                     {Addr: "nowhere:nothing"},
	} {
		if s, err := vllmtest.New(cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
			s.Close()
		}
	}
	s := fast(t, vllmtest.Config{})
	for field, f := range map[string]vllmtest.Faults{
		"Next": {Next: -1}, "Status": {Status: 199}, "Body": {Body: "x"}, "Poison": {Poison: "x"},
		"RetryAfter": {RetryAfter: 1}, "Slow": {Slow: -1},
		"CutAfter": {CutAfter: -1}, "Delay": {Delay: -1},
	} {
		if err := s.SetFaults(f); err == nil || !strings.Contains(err.Error(), "Faults."+field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	s.Close()
	if s.SetFaults(vllmtest.Faults{}) == nil || s.Restart() == nil {
		t.Error("a closed server takes faults or restarts")
	}
}

// A client that goes away ends its request in the scheduler.
func TestClientLeaves(t *testing.T) {
	for _, end := range []string{`,"stream":true,"ignore_eos":true}`, `,"ignore_eos":true}`} {
		s := fast(t, vllmtest.Config{TimeScale: 1, MaxRequests: 2})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		long := strings.Replace(chatBody, `"max_tokens":40`, `"max_tokens":100000`, 1) + end
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if _, _, err := tryCtx(ctx, s, long); !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
			})
		}
		eventually(t, "both run", func() bool { return s.Stats().Running == 2 && s.Stats().BlocksUsed > 0 })
		if m := metrics(t, s); !strings.Contains(m, "vllm:num_requests_running{engine=\"0\",model_name=\"vllmtest\"} 2.0\n") {
			t.Errorf("/metrics does not show them")
		}
		if res, body, err := try(s, chatBody+"}"); err != nil || res.StatusCode != 503 {
			t.Errorf("a third one: %v %v %s", err, res, body)
		}
		cancel()
		wg.Wait()
		eventually(t, "both are aborted", func() bool {
			st := s.Stats()
			return st.Running == 0 && st.Waiting == 0 && st.BlocksUsed == 0 && st.Aborted == 2 && st.Rejected == 1
		})
		m := metrics(t, s)
		for _, l := range []string{
			`vllm:num_requests_running{engine="0",model_name="vllmtest"} 0.0`,
			`vllm:request_success_total{engine="0",finished_reason="abort",model_name="vllmtest"} 2.0`,
			`vllm:admission_rejections_total{model_name="vllmtest",reason="max_num_queued_reqs"} 1.0`,
		} {
			if !strings.Contains(m, l+"\n") {
				t.Errorf("/metrics has no %s", l)
			}
		}
	}
}

func metrics(t testing.TB, s *vllmtest.Server) string {
	t.Helper()
	res, err := s.Client().Get(s.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestRestartIsCold(t *testing.T) {
	s := fast(t, vllmtest.Config{})
	body := obj{"max_tokens": 4, "messages": []obj{{"role": "user", "content": strings.Repeat("the same again ", 30)}}}
	url := s.URL
	for i, want := range []bool{false, true, false, true} {
		if i == 2 {
			if err := s.Restart(); err != nil {
				t.Fatal(err)
			}
			if m := metrics(t, s); !strings.Contains(m, "vllm:prompt_tokens_total{engine=\"0\",model_name=\"vllmtest\"} 0.0\n") {
				t.Error("/metrics goes on counting")
			}
		}
		var r openAIReply
		call(t, s, "/v1/chat/completions", body, &r)
		if (r.Usage.Details.Cached > 0) != want {
			t.Errorf("request %d: %d cached", i, r.Usage.Details.Cached)
		}
	}
	if st := s.Stats(); st.Restarts != 1 || st.Requests != 4 || st.Finished != 4 || st.OutputTokens != 16 ||
		st.CachedTokens == 0 || s.URL != url {
		t.Errorf("%+v", st)
	}
}

// Restarts, faults and Close under load leave nothing behind.
func TestNothingStaysBehind(t *testing.T) {
	for _, cfg := range []vllmtest.Config{{TimeScale: 0.01, Blocks: 64}, {Instant: true, Delay: time.Millisecond}} {
		s, err := vllmtest.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 24 {
			wg.Go(func() {
				end := "}"
				if i%2 == 0 {
					end = `,"stream":true}`
				}
				for {
					select {
					case <-stop:
						return
					default:
					}
					_, _, _ = try(s, chatBody+end) // it may fail: the replica restarts and closes
				}
			})
		}
		for i, f := range []vllmtest.Faults{{}, {Refuse: true}, {Hang: true, Next: 3}, {CutAfter: 2, Next: 5},
			{Status: 500, Next: 5}, {Slow: 3}, {}} {
			if err := s.SetFaults(f); err != nil {
				t.Fatal(err)
			}
			before := s.Stats().Requests
			if !f.Refuse {
				eventually(t, "requests arrive", func() bool { return s.Stats().Requests > before+30 })
			}
			if i%2 == 1 {
				if err := s.Restart(); err != nil {
					t.Fatal(err)
				}
			}
			metrics := s.Stats()
			if metrics.Finished+metrics.Aborted+metrics.Rejected+metrics.Failed > metrics.Requests {
				t.Errorf("%+v", metrics)
			}
		}
		s.Close()
		s.Close()
		close(stop)
		wg.Wait()
		st := s.Stats()
		if st.Finished == 0 || st.Finished+st.Aborted+st.Rejected+st.Failed != st.Requests {
			t.Errorf("requests are unaccounted for: %+v", st)
		}
		eventually(t, "all goroutines end", func() bool { return !strings.Contains(stacks(), "vllmtest.(*") })
	}
}

func stacks() string {
	b := make([]byte, 4<<20)
	return string(b[:runtime.Stack(b, true)])
}

// TestAsleep: a replica that sleeps says so on its page, has no cache left, and answers when it wakes.
func TestAsleep(t *testing.T) {
	s := fast(t, vllmtest.Config{})
	long := `{"messages":[{"role":"user","content":"` + strings.Repeat("Tell me of foxes. ", 40) + `"}],"max_tokens":4}`
	cached := func() bool {
		_, body, err := try(s, long)
		if err != nil {
			t.Fatal(err)
		}
		return !strings.Contains(body, `"cached_tokens":0`)
	}
	if cached() || !cached() {
		t.Fatal("the second request of two alike is not cached, or the first is")
	}
	setFaults(t, s, vllmtest.Faults{Asleep: true})
	page := func() string {
		res, err := s.Client().Get(s.URL + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	const sleeps = `sleep_state="weights_offloaded"} 1`
	if !strings.Contains(page(), sleeps) {
		t.Error("the page does not say that it sleeps")
	}
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, _, err := tryCtx(ctx, s, long)
		left <- err
	}()
	for s.Stats().Requests < 3 {
		runtime.Gosched()
	}
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("a request to a replica that sleeps: %v", err)
	}
	waits := make(chan bool)
	go func() { waits <- cached() }()
	for s.Stats().Requests < 4 {
		runtime.Gosched()
	}
	setFaults(t, s, vllmtest.Faults{})
	if <-waits {
		t.Error("the cache outlived the sleep")
	}
	if strings.Contains(page(), sleeps) {
		t.Error("the page says that it sleeps")
	}
	healthy(t, s)
}

// TestWrongReplies: Body replaces a reply, and Poison chooses the requests.
func TestWrongReplies(t *testing.T) {
	both(t, func(t *testing.T, s *vllmtest.Server) {
		for body, kind := range map[string]string{
			"data: {}\n\n": "text/event-stream", "<html>": "text/html; charset=utf-8", `{"error":{}}`: "application/json",
		} {
			setFaults(t, s, vllmtest.Faults{Status: 200, Body: body})
			res, got, err := try(s, chatBody+"}")
			if err != nil || res.StatusCode != 200 || got != body || res.Header.Get("Content-Type") != kind {
				t.Errorf("%q: %v %v %q", body, err, res, got)
			}
		}
		setFaults(t, s, vllmtest.Faults{Status: 500, Poison: "fox"})
		if res, _, err := try(s, chatBody+"}"); err != nil || res.StatusCode != 500 {
			t.Errorf("poison: %v %v", err, res)
		}
		if res, _, err := try(s, strings.Replace(chatBody, "fox", "hen", 1)+"}"); err != nil || res.StatusCode != 200 {
			t.Errorf("another prompt: %v %v", err, res)
		}
		setFaults(t, s, vllmtest.Faults{})
		healthy(t, s)
	})
}
