package prompt_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	router "github.com/warmroute/router"
	"github.com/warmroute/router/prompt"
)

const (
	roleChunk  = `{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`
	tokenChunk = `{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}`
	stopChunk  = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	usageChunk = `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":0}}`
)

// write writes body to r in steps of this many bytes.
func write(r *prompt.Reply, body string, step int) {
	for b := []byte(body); len(b) > 0; {
		n := min(step, len(b))
		r.Write(b[:n])
		b = b[n:]
	}
}

// TestOutcomeWrong has replies under status 200 that are failures before the first token.
func TestOutcomeWrong(t *testing.T) {
	for name, body := range map[string]string{
		"nothing":                   "",
		"white space":               " \r\n\r\n",
		"a page of a login":         "<!DOCTYPE html>\n<html><body><form>Sign in</form></body></html>",
		"a long page":               "\n<html>" + strings.Repeat("x", 1<<20),
		"an empty list":             "[]",
		"a list of choices without": `{"id":"x","choices":[],"usage":{"prompt_tokens":9}}`,
		"choices that are null":     `{"id":"x","choices":null}`,
		"a message of a proxy":      `{"code":500,"msg":"no healthy upstream","data":null}`,
		"a detail":                  `{"detail":"Internal Server Error"}`,
		"an error":                  `{"error":{"message":"CUDA out of memory","type":"server_error","code":500}}`,
		"an error in words":         `{"error":"no"}`,
		"an error without choices":  `{"choices":[],"error":{"message":"no"}}`,
		"an error as a stream":      events(`{"error":{"message":"no","code":500}}`, `[DONE]`),
		"only comments":             ": hi\n\n: hi\n\n",
		"only the end":              events(`[DONE]`),
		"only the role":             events(roleChunk, `[DONE]`),
		"the role and the usage":    events(roleChunk, usageChunk, `[DONE]`),
		"the role, an error":        events(roleChunk, `{"error":{"message":"no","code":500}}`),
		"a message that fails": events(`{"type":"message_start","message":{"content":[]}}`, `{"type":"ping"}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			`{"type":"error","error":{"type":"api_error","message":"no"}}`),
		"a response that fails": events(`{"type":"response.created","response":{"output":[]}}`,
			`{"type":"response.in_progress","response":{"output":[]}}`,
			`{"type":"response.failed","response":{"output":[],"error":{"code":"server_error"}}}`),
	} {
		for _, step := range []int{1, 1 << 20} {
			var r prompt.Reply
			write(&r, body, step)
			o := r.Outcome(200, http.Header{})
			if o.Err == nil || o.Stage != router.Failed || o.Status != 200 || !o.Retryable() || !o.Blames() {
				t.Errorf("%s: %+v", name, o)
			}
			if r.Begun() {
				t.Errorf("%s: it has begun", name)
			}
			opaque := prompt.Reply{Opaque: true}
			write(&opaque, body, step)
			if o := opaque.Outcome(200, nil); (o.Err != nil) != (opaque.Err() != nil) || o.Lacking {
				t.Errorf("%s, opaque: %+v", name, o)
			}
		}
	}
}

// TestOutcomeGood has answers that say little.
func TestOutcomeGood(t *testing.T) {
	for name, body := range map[string]string{
		"an empty content":         `{"choices":[{"index":0,"message":{"content":""},"finish_reason":"stop"}]}`,
		"no tokens were wanted":    `{"choices":[{"index":0,"text":"","finish_reason":"length"}],"usage":{"prompt_tokens":9}}`,
		"calls alone":              `{"choices":[{"index":0,"message":{"tool_calls":[{"function":{"name":"f"}}]}}]}`,
		"reasoning alone":          `{"choices":[{"index":0,"message":{"content":null,"reasoning_content":"hm"}}]}`,
		"several choices":          `{"choices":[{"index":0,"message":{"content":""}},{"index":1,"message":{"content":""}}]}`,
		"an empty message":         `{"type":"message","content":[],"stop_reason":"end_turn"}`,
		"a response in the back":   `{"object":"response","status":"queued","error":null,"output":[]}`,
		"embeddings":               `{"object":"list","data":[{"embedding":[0.1]}],"usage":{"prompt_tokens":1}}`,
		"embeddings, bare":         `[[0.1,0.2]]`,
		"a reranker's":             `{"results":[]}`,
		"llama.cpp's":              `{"content":"","stop":true,"tokens_predicted":0}`,
		"SGLang's":                 `{"text":"","meta_info":{"prompt_tokens":1}}`,
		"SGLang's ids":             `{"output_ids":[],"meta_info":{"prompt_tokens":1}}`,
		"vLLM's ids":               `{"request_id":"x","choices":[{"index":0,"token_ids":[],"finish_reason":"stop"}]}`,
		"TGI's":                    `{"generated_text":""}`,
		"Ollama's":                 `{"model":"m","response":"","done":true}`,
		"counted tokens":           `{"input_tokens":7}`,
		"of the model about error": `{"choices":[{"index":0,"message":{"content":"{\"error\":{\"code\":500}}"}}]}`,
		"of one's own engine":      `{}`,
		"a text of its own":        "Hello",
		"an event of its own":      "data: Hello\n\n",
		"cut by the bound":         `{"choices":[{"index":0,"message":{"content":"` + strings.Repeat("x", 2<<20) + `"}}]}`,
		"stream: stop at once":     events(roleChunk, stopChunk, usageChunk, `[DONE]`),
		"stream: calls": events(roleChunk,
			`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":""}}]}}]}`, `[DONE]`),
		"stream: thinking":        events(roleChunk, `{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}`, `[DONE]`),
		"stream: the second only": events(roleChunk, `{"choices":[{"index":1,"delta":{"content":"x"}}]}`, `[DONE]`),
		"stream: completion":      events(`{"choices":[{"index":0,"text":"","finish_reason":"length"}]}`, `[DONE]`),
		"stream: ids":             events(`{"choices":[{"index":0,"text":"","token_ids":[7],"finish_reason":null}]}`, `[DONE]`),
		"stream: of an escape":    events(`{"choices":[{"index":0,"delta":{"content":"\n"}}]}`, `[DONE]`),
		"stream: an empty message": events(`{"type":"message_start","message":{}}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`, `{"type":"message_stop"}`),
		"stream: a tool": events(`{"type":"message_start","message":{}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"1","name":"f","input":{}}}`),
		"stream: response": events(`{"type":"response.created","response":{}}`,
			`{"type":"response.completed","response":{"output":[]}}`),
		"stream: response's call": events(`{"type":"response.created","response":{}}`,
			`{"type":"response.output_item.added","item":{"type":"function_call","name":"f"}}`),
		"stream: llama.cpp's":  events(`{"index":0,"content":"","stop":true}`),
		"stream: SGLang's":     events(`{"text":"","meta_info":{}}`, `[DONE]`),
		"stream: a last event": strings.TrimSuffix(events(tokenChunk), "\n"),
		"stream: a huge event": "data: {\"x\":\"" + strings.Repeat("x", 2<<20) + "\"}\n\n",
	} {
		for _, step := range []int{1 << 10, 1 << 22} {
			var r prompt.Reply
			write(&r, body, step)
			if o := r.Outcome(200, nil); o.Err != nil || o.Stage != 0 || o.Settled().Stage != router.Finished {
				t.Errorf("%s: %+v", name, o)
			}
		}
	}
	var none *prompt.Reply // a GET, of which nothing was collected
	if o := none.Outcome(200, nil); o.Err != nil {
		t.Errorf("nothing was collected: %v", o.Err)
	}
	for typ, want := range map[string]error{
		"": nil, "text/plain; charset=utf-8": nil, "text/html; charset=utf-8": prompt.ErrNoAnswer,
		"application/xhtml+xml": prompt.ErrNoAnswer, "image/png": prompt.ErrNoAnswer,
		"text/event-stream": prompt.ErrEmptyReply,
	} {
		var r prompt.Reply
		write(&r, "Sign in\n", 1)
		if o := r.Outcome(200, http.Header{"Content-Type": {typ}}); !errors.Is(o.Err, want) {
			t.Errorf("a text as %q: %v", typ, o.Err)
		}
	}
	var r prompt.Reply
	write(&r, "\x1f\x8b\x08", 1)
	if o := r.Outcome(200, http.Header{"Content-Encoding": {"gzip"}}); o.Err != nil {
		t.Errorf("compressed: %v", o.Err)
	}
}

// TestOutcomeBrokenOff: an error behind a token is the target's failure, and is not sent again.
func TestOutcomeBrokenOff(t *testing.T) {
	for _, first := range []string{tokenChunk, `{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}`} {
		var r prompt.Reply
		write(&r, events(roleChunk, first, `{"error":{"message":"no","code":500}}`), 7)
		o := r.Outcome(200, nil)
		var e *prompt.ReplyError
		if !errors.As(o.Err, &e) || !e.Begun || !o.SawToken() || o.Retryable() || !o.Blames() ||
			o.Settled().Stage != router.Failed {
			t.Errorf("%+v", o)
		}
	}
}

// TestOutcomeStatus: the error's own status decides who is to blame; so does the reply's.
func TestOutcomeStatus(t *testing.T) {
	for _, c := range []struct {
		body                       string
		status, want               int
		retryable, blames, lacking bool
	}{
		{`{"error":{"code":400}}`, 200, 400, false, false, false},
		{events(`{"error":{"type":"BadRequestError","message":"too long"}}`), 200, 400, false, false, false},
		{`{"type":"error","error":{"type":"invalid_request_error"}}`, 200, 400, false, false, false},
		{`{"type":"error","error":{"type":"overloaded_error"}}`, 200, 529, true, true, false},
		{`{"error":{"code":"rate_limit_exceeded"}}`, 200, 429, true, true, false},
		{`{"error":{"code":503}}`, 200, 503, true, true, false},
		{`{"error":{"code":500}}`, 200, 200, true, true, false},
		{`{"error":{"code":"model_not_found"}}`, 200, 404, true, false, true},
		{`{"error":{"code":404}}`, 404, 404, true, false, true},
		{`{"error":{"message":"no such key"}}`, 401, 401, true, false, true},
		{``, 403, 403, true, false, true},
		{`{"error":{"code":404}}`, 400, 400, false, false, false},
		{`<html>`, 502, 502, true, true, false},
		{``, 302, 302, true, false, true},
		{``, 304, 304, false, false, false},
	} {
		var r prompt.Reply
		write(&r, c.body, 3)
		o := r.Outcome(c.status, nil)
		if o.Status != c.want || o.Retryable() != c.retryable || o.Blames() != c.blames || o.Lacking != c.lacking {
			t.Errorf("%d %s: %+v, retryable %v, blames %v", c.status, c.body, o, o.Retryable(), o.Blames())
		}
	}
}

// TestHold: a reply is held back until a part of the answer, an error or its end has come.
func TestHold(t *testing.T) {
	broke := errors.New("reset")
	for _, c := range []struct {
		name, held, rest string
		end              error // of the body
		failed           bool
	}{
		{"a token", events(roleChunk, tokenChunk), events(stopChunk), io.EOF, false},
		{"an error", events(roleChunk, `{"error":{"code":500}}`), "x", io.EOF, true},
		{"nothing", "", "", io.EOF, true},
		{"a role, then nothing", events(roleChunk), "", io.EOF, true},
		{"a reset", events(roleChunk), "", broke, true},
		{"a reply in one piece", `{"choices":[{"index":0,"message":{"content":"x"}}]}`, "", io.EOF, false},
		{"an error in one piece", `{"error":{"code":500}}`, "", io.EOF, true},
		{"a page", "<", "html></html>", io.EOF, true},
		{"a comment", ":", " hi\n\n", io.EOF, false},
		{"a text", "H", "ello", io.EOF, false},
	} {
		body := io.MultiReader(strings.NewReader(c.held+c.rest), iotest.ErrReader(c.end))
		resp := &http.Response{StatusCode: 200, Body: io.NopCloser(iotest.OneByteReader(body))}
		var r prompt.Reply
		o := r.Hold(resp)
		if o.Retryable() != c.failed || !c.failed && (o.Err != nil || o.Status != 200) {
			t.Errorf("%s: %+v", c.name, o)
		}
		if left, _ := io.ReadAll(body); len(left) != len(c.rest) {
			t.Errorf("%s: %q was not read", c.name, left)
		}
		if got, err := io.ReadAll(resp.Body); string(got) != c.held ||
			(err == nil) != (c.end == io.EOF || c.rest != "") {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
	var r prompt.Reply
	resp := &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(strings.Repeat(" ", 1<<20)))}
	if o := r.Hold(resp); o.Err != nil || !r.Begun() {
		t.Errorf("a long beginning: %+v", o)
	}
	if got, err := io.ReadAll(resp.Body); len(got) != 1<<20 || err != nil {
		t.Errorf("a long beginning: %d bytes, %v", len(got), err)
	}

	// The error of a later Read is in the outcome.
	r = prompt.Reply{}
	resp = &http.Response{StatusCode: 200, Body: io.NopCloser(iotest.OneByteReader(io.MultiReader(
		strings.NewReader(events(tokenChunk, tokenChunk)), iotest.ErrReader(io.ErrUnexpectedEOF))))}
	r.Hold(resp)
	io.Copy(io.Discard, resp.Body)
	if o := r.Outcome(200, nil); !errors.Is(o.Err, io.ErrUnexpectedEOF) || o.Retryable() || !o.Blames() ||
		o.Reply != a+"xx" {
		t.Errorf("broken off: %+v", o)
	}
	r = prompt.Reply{}
	resp = &http.Response{StatusCode: 200, Header: http.Header{"Content-Encoding": {"br"}},
		Body: io.NopCloser(strings.NewReader("<x>"))}
	if o := r.Hold(resp); o.Err != nil || o.Status != 200 {
		t.Errorf("compressed: %+v", o)
	}
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		go func() {
			for range 10 {
				io.WriteString(w, events(`{"type":"ping"}`))
				time.Sleep(15 * time.Second)
			}
			w.Close()
		}()
		var reply prompt.Reply
		start := time.Now()
		o := reply.Hold(&http.Response{StatusCode: 200, Body: r})
		if took := time.Since(start); o.Err != nil || o.Status != 200 || took != 15*time.Second {
			t.Errorf("what keeps a connection alive is held back for %v: %+v", took, o)
		}
		io.Copy(io.Discard, r)
	})
}

// A host holds a reply back until its first token, and sends the request elsewhere if an error comes in its place.
func ExampleReplyTo() {
	body := `{"messages":[{"role":"user","content":"Hi"}]}`
	p, _ := prompt.FromChat([]byte(body))
	resp := &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(
		`data: {"error":{"message":"out of memory","code":500}}` + "\n\n"))}
	r := prompt.ReplyTo("/v1/chat/completions", p)
	o := r.Hold(resp)
	fmt.Println(o.Stage, o.Status, o.Err)
	fmt.Println(o.Retryable(), o.Blames())
	// Output:
	// failed 200 prompt: the reply is an error of status 500
	// true true
}

// TestEnded: a reply has ended with its last byte, or its last event, and not before.
func TestEnded(t *testing.T) {
	for body, end := range map[string]int{
		`{"choices":[{"message":{"content":"}"}}]}`:                                                                      0,
		"data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n":                                      2,
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n":                                                     2,
		"data: {\"type\":\"response.output_text.delta\",\"delta\":\"x\"}\n\ndata: {\"type\":\"response.completed\"}\n\n": 2,
	} {
		for cut := range len(body) + 1 {
			var r prompt.Reply
			write(&r, body[:cut], 3)
			if whole := len(body) - cut; r.Ended() != (whole == 0) && (whole > end || whole == 0) {
				t.Errorf("%q: ended %v", body[:cut], r.Ended())
			}
		}
	}
}
