package vllmtest_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmroute/router/vllmtest"
)

func TestInstant(t *testing.T) {
	s := fast(t, vllmtest.Config{Instant: true, ReplyTokens: 5})
	msgs := []obj{{"role": "user", "content": `he said "stream": true and "include_usage": true`}}
	var r openAIReply
	call(t, s, "/v1/chat/completions", obj{"messages": msgs}, &r)
	text := r.Choices[0].Message.Content
	if len(text) != 16 || r.Usage.Output != 5 || r.Usage.Prompt == 0 {
		t.Errorf("%+v", r)
	}
	for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
		r = openAIReply{}
		res := post(t, s, path, obj{"messages": msgs, "prompt": "x", "stream": true,
			"stream_options": obj{"include_usage": true}})
		if res.ContentLength != -1 || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
			t.Errorf("%s: %v", path, res.Header)
		}
		if got := readStream(t, res.Body, &r); got != text || r.Usage == nil || r.Usage.Output != 5 {
			t.Errorf("%s: %q %+v", path, got, r.Usage)
		}
		res = post(t, s, path, obj{"messages": msgs, "prompt": "x", "stream": true})
		r = openAIReply{}
		if got := readStream(t, res.Body, &r); got != text || r.Usage != nil {
			t.Errorf("%s: %q %+v", path, got, r.Usage)
		}
	}
	res := post(t, s, "/v1/messages", obj{"messages": msgs, "stream": true})
	if ev := events(t, res.Body); len(ev) != 2+4+3 {
		t.Errorf("%d events: %q", len(ev), ev)
	}
	if st := s.Stats(); st.Requests != 6 || st.Finished != 6 || st.OutputTokens != 30 || st.PromptTokens == 0 {
		t.Errorf("%+v", st)
	}
	const generated = "vllm:generation_tokens_total{engine=\"0\",model_name=\"vllmtest\"} 30.0\n"
	if m := metrics(t, s); !strings.Contains(m, generated) {
		t.Error("/metrics does not count them")
	}
}

// Requests that take a fixed time do not wait for each other.
func TestInstantDelayIsNoQueue(t *testing.T) {
	s := fast(t, vllmtest.Config{Instant: true, Delay: 50 * time.Millisecond})
	start := time.Now()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, _, err := try(s, chatBody+"}"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if d := time.Since(start); d < 50*time.Millisecond || d > 25*50*time.Millisecond {
		t.Errorf("50 at once take %v", d)
	}
}

// BenchmarkInstant is a whole streamed request of 14 KB, client included; cpu-us/op is
// the process's CPU time for it, of both sides.
func BenchmarkInstant(b *testing.B) {
	for _, cfg := range []struct {
		name string
		vllmtest.Config
	}{
		{"instant", vllmtest.Config{Instant: true, ReplyTokens: 16}},
		{"simulated", vllmtest.Config{TimeScale: 1e-6, ReplyTokens: 16}},
	} {
		b.Run(cfg.name, func(b *testing.B) {
			s := fast(b, cfg.Config)
			body := []byte(`{"model":"m","stream":true,"messages":[{"role":"user","content":"` +
				strings.Repeat("fourteen KB of it ", 800) + `"}]}`)
			client := s.Client()
			b.ReportAllocs()
			before := cpuTime(b)
			for b.Loop() {
				res, err := client.Post(s.URL+"/v1/chat/completions", "application/json", bytes.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				_, err = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				if err != nil || res.StatusCode != http.StatusOK {
					b.Fatal(err, res.Status)
				}
			}
			b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
		})
	}
}
