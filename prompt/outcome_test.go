package prompt_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	router "github.com/warmroute/router"
	"github.com/warmroute/router/prompt"
)

func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UTC()
		for v, want := range map[string]time.Duration{
			"": 0, "0": 0, "7": 7 * time.Second, " 7 ": 7 * time.Second, "-1": 0, "soon": 0, "1.5": 0,
			"99999999999999999999": 0, "999999999999": prompt.MaxRetryAfter, "9223372036854775807": prompt.MaxRetryAfter,
			now.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second,
			now.Add(90 * time.Second).Format(time.RFC850):     90 * time.Second,
			now.Add(-time.Hour).Format(http.TimeFormat):       0,
			now.Add(100 * time.Hour).Format(http.TimeFormat):  prompt.MaxRetryAfter,
		} {
			if got := prompt.RetryAfter(http.Header{"Retry-After": {v}}); got != want {
				t.Errorf("%q: %v, want %v", v, got, want)
			}
		}
		if prompt.RetryAfter(nil) != 0 {
			t.Error("no header")
		}
	})
}

func TestOutcome(t *testing.T) {
	var r prompt.Reply
	fmt.Fprint(&r, `{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"}}],"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":5}}}`)
	want := router.Outcome{Status: 200, Reply: a + "hi", PromptTokens: 7, CachedTokens: 5, CachedReported: true,
		OutputTokens: 3}
	if d := cmp.Diff(want, r.Outcome(200, http.Header{})); d != "" {
		t.Error(d)
	}
	var none *prompt.Reply
	want = router.Outcome{Status: 429, RetryAfter: 2 * time.Second}
	if d := cmp.Diff(want, none.Outcome(429, http.Header{"Retry-After": {"2"}})); d != "" {
		t.Error(d)
	}
}

// TestCachedReported: an engine that names the cached tokens, if only as 0, has reported them; one that leaves them
// out, or null, has not.
func TestCachedReported(t *testing.T) {
	for reply, want := range map[string]bool{
		`{"usage":{"prompt_tokens":7,"prompt_tokens_details":{"cached_tokens":0}}}`:                                  true,
		`{"usage":{"prompt_tokens":7,"prompt_tokens_details":null}}`:                                                 false,
		`{"usage":{"prompt_tokens":7,"prompt_tokens_details":{"cached_tokens":null}}}`:                               false,
		`{"usage":{"prompt_tokens":7,"prompt_tokens_details":{"audio_tokens":0}}}`:                                   false,
		`{"usage":{"prompt_tokens":7}}`:                                                                              false,
		`{"usage":null}`:                                                                                             false,
		`{}`:                                                                                                         false,
		`{"type":"message","usage":{"input_tokens":7,"cache_read_input_tokens":0}}`:                                  true,
		`{"type":"message","usage":{"input_tokens":7,"output_tokens":1}}`:                                            false,
		`{"text":"x","meta_info":{"prompt_tokens":7,"cached_tokens":0}}`:                                             true,
		`{"content":"x","tokens_evaluated":7,"timings":{"cache_n":0,"prompt_n":7}}`:                                  true,
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":0}}}\n\n": true,
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7}}\n\n":                                                 false,
	} {
		var r prompt.Reply
		fmt.Fprint(&r, reply)
		if o := r.Outcome(200, nil); o.CachedReported != want || o.CachedTokens != 0 {
			t.Errorf("%s: reported %v, %d tokens", reply, o.CachedReported, o.CachedTokens)
		}
	}
}

// TestReplyErr has replies that are errors under status 200, and some that only look like one.
func TestReplyErr(t *testing.T) {
	chunk := `{"choices":[{"index":0,"delta":{"content":"x"}}]}`
	for _, c := range []struct {
		name, body string
		want       *prompt.ReplyError
	}{
		{"OpenAI", `{"error":{"message":"no","type":"server_error","code":503}}`, &prompt.ReplyError{Status: 503}},
		{"a code in words", `{"error":{"message":"no","code":"model_not_found"}}`, &prompt.ReplyError{Status: 404}},
		{"a string", `{"error":"no"}`, &prompt.ReplyError{}},
		{"Anthropic", `{"type":"error","error":{"type":"overloaded_error","message":"no"}}`,
			&prompt.ReplyError{Status: 529}},
		{"older vLLM", `{"object":"error","message":"no","type":"BadRequestError","code":400}`,
			&prompt.ReplyError{Status: 400}},
		{"SGLang, batch or not",
			events(`{"error":{"message":"no","type":"invalid_request_error","code":400,"retryable":false}}`, `[DONE]`),
			&prompt.ReplyError{Status: 400}},
		{"the first event", events(`{"error":{"message":"no","code":500}}`, `[DONE]`), &prompt.ReplyError{Status: 500}},
		{"Anthropic's first event", events(`{"type":"error","error":{"type":"overloaded_error"}}`), &prompt.ReplyError{Status: 529}},
		{"Responses", events(`{"type":"response.failed","response":{"output":[]}}`), &prompt.ReplyError{}},
		{"later", events(chunk, `{"error":{"code":500}}`), &prompt.ReplyError{Status: 500, Begun: true}},
		{"a later one does not count", events(`{"error":{"code":500}}`, `{"error":{"code":400}}`),
			&prompt.ReplyError{Status: 500}},
		{"no status", `{"error":{"code":7}}`, &prompt.ReplyError{}},
		{"an answer", `{"choices":[{"index":0,"message":{"role":"assistant","content":"x"}}]}`, nil},
		{"null", `{"error":null,"output":[]}`, nil},
		{"Responses' own member",
			`{"object":"response","error":null,"output":[{"type":"message","role":"assistant","content":"x"}]}`, nil},
		{"beside an answer", `{"choices":[{"index":0,"message":{"content":"x"}}],"error":{"code":1}}`, nil},
		{"beside no choices", `{"choices":[],"error":{"code":502}}`, &prompt.ReplyError{Status: 502}},
		{"beside null", `{"choices":null,"error":{"code":502}}`, &prompt.ReplyError{Status: 502}},
		{"a response that failed",
			events(`{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"x"}}}`), &prompt.ReplyError{Status: 429}},
		{"behind a beginning", events(roleChunk, `{"error":{"code":500}}`), &prompt.ReplyError{Status: 500}},
		{"said by the model", events(`{"choices":[{"index":0,"delta":{"content":"{\"error\":1}"}}]}`), nil},
		{"nothing", ``, nil},
		{"HTML", `<html>`, nil},
	} {
		for _, step := range []int{1, 1 << 20} {
			var r prompt.Reply
			for b := c.body; len(b) > 0; {
				n := min(step, len(b))
				r.Write([]byte(b[:n]))
				b = b[n:]
			}
			var got *prompt.ReplyError
			if err := r.Err(); err != nil && !errors.As(err, &got) {
				t.Errorf("%s: %T", c.name, err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("%s, by %d bytes: %s", c.name, step, d)
			}
			if got != nil && (strings.Contains(got.Error(), "no") || r.Text() != "" && !got.Begun) {
				t.Errorf("%s: %v, text %q", c.name, got, r.Text())
			}
		}
	}
	// One of any length.
	var r prompt.Reply
	fmt.Fprintf(&r, `{"detail":%q,"error":{"code":500}}`, strings.Repeat("x", 3<<20))
	if r.Err() == nil {
		t.Error("a long error is none")
	}
}

func ExampleReply_Outcome() {
	h := http.Header{"Retry-After": {"3"}}
	var r prompt.Reply // is written to as the reply passes by
	o := r.Outcome(503, h)
	fmt.Println(o.Status, o.RetryAfter)

	fmt.Fprint(&r, `data: {"error":{"message":"out of memory","code":500}}`+"\n\n")
	fmt.Println(r.Err())
	// Output:
	// 503 3s
	// prompt: the reply is an error of status 500
}

func ExampleRetryAfter() {
	fmt.Println(prompt.RetryAfter(http.Header{"Retry-After": {"120"}}))
	// Output: 2m0s
}
