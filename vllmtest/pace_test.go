package vllmtest_test

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"github.com/warmroute/router/vllmtest"
)

// Over real sockets a miss takes several times as long to its first token as a
// hit, and a small TimeScale is kept though timers fire late.
func TestPaceOverHTTP(t *testing.T) {
	s := fast(t, vllmtest.Config{TimeScale: 0.1})
	text := strings.Repeat("some document, word for word ", 1000) // 7,250 tokens: 0.37 s, here 37 ms
	ttft := func() time.Duration {
		start := time.Now()
		res := post(t, s, "/v1/completions", obj{"prompt": text, "max_tokens": 2, "stream": true})
		if _, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		return time.Since(start)
	}
	miss, hit := ttft(), ttft()
	for range 4 { // the machine may have hiccups
		hit = min(hit, ttft())
	}
	if miss < 36*time.Millisecond || miss < 3*hit {
		t.Errorf("a miss takes %v, a hit %v", miss, hit)
	}

	s = fast(t, vllmtest.Config{TimeScale: 0.01})
	took := time.Hour
	for range 5 {
		start := time.Now()
		var r openAIReply
		call(t, s, "/v1/completions", obj{"prompt": "x", "max_tokens": 500, "ignore_eos": true}, &r)
		took = min(took, time.Since(start))
	}
	t.Logf("a miss %v, a hit %v; 500 steps of 0.14 ms: %v", miss, hit, took)
	if took < 70*time.Millisecond || took > 210*time.Millisecond {
		t.Errorf("500 steps of 0.14 ms take %v", took)
	}
}
