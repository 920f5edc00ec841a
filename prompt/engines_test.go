package prompt_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	router "github.com/warmroute/router"
	"github.com/warmroute/router/prompt"
)

const m, tk = "\xffi", "\xffT" // a digest of media, ids

// TestNative has bodies of the engines' own APIs, and of rerank.
func TestNative(t *testing.T) {
	for _, c := range []struct {
		name, path, body string
		want             router.Prompt
	}{
		// SGLang 0.5.23.
		{"text", "/generate", `{"text":"Once","sampling_params":{"max_new_tokens":3},"stream":true}`,
			router.Prompt{Text: "Once"}},
		{"texts", "/generate", `{"text":["Once","upon"],"lora_path":["a",null],"sampling_params":[{},{}]}`,
			router.Prompt{Text: "Once", Adapter: "a"}},
		{"ids", "/generate", `{"input_ids":[1,2,3],"lora_path":"a"}`, router.Prompt{Tokens: []uint32{1, 2, 3}, Adapter: "a"}},
		{"batch of ids", "/generate", `{"input_ids":[[1,2],[3]]}`, router.Prompt{Tokens: []uint32{1, 2}}},
		{"both", "/generate", `{"input_ids":[1,2],"text":"Once"}`, router.Prompt{Text: "Once", Tokens: []uint32{1, 2}}},
		{"ids, and no text", "/generate", `{"text":null,"input_ids":[1,2],"input_embeds":null,"image_data":null}`,
			router.Prompt{Tokens: []uint32{1, 2}}},
		{"salt", "/generate", `{"text":"Once","cache_salt":"s"}`, router.Prompt{Text: "Once", Salt: "s"}},
		{"salts of a batch", "/generate", `{"text":["Once","x"],"cache_salt":["s","t"]}`,
			router.Prompt{Text: "Once", Salt: "s"}},
		{"extra key", "/generate", `{"text":"Once","cache_salt":"s","extra_key":"k"}`,
			router.Prompt{Text: "Once", Salt: "\x001:sk"}},
		// vLLM 0.33.0.
		{"token in", "/inference/v1/generate",
			`{"model":"m","token_ids":[1,2,3],"sampling_params":{"max_tokens":5},"cache_salt":"s","stream":true}`,
			router.Prompt{Model: "m", Salt: "s", Tokens: []uint32{1, 2, 3}}},
		{"no features", "/inference/v1/generate", `{"token_ids":[1],"features":null,"content_parts":null}`,
			router.Prompt{Tokens: []uint32{1}}},
		// llama.cpp at 00dc8057.
		{"text", "/completion", `{"prompt":"Once","n_predict":3,"cache_prompt":true}`, router.Prompt{Text: "Once"}},
		{"the other path", "/completions", `{"prompt":"Once"}`, router.Prompt{Text: "Once"}},
		{"ids", "/completion", `{"prompt":[1,2,3]}`, router.Prompt{Tokens: []uint32{1, 2, 3}}},
		{"mixed", "/completion", `{"prompt":[12,34,"Once",56,78]}`,
			router.Prompt{Text: tk + "12,34,\xffxOnce" + tk + "56,78,"}},
		{"mixed, a text first", "/completion", `{"prompt":["Once",56,"upon","a"]}`,
			router.Prompt{Text: "Once" + tk + "56,\xffxupon\xffxa"}},
		{"texts are prompts", "/completion", `{"prompt":["Once","upon"]}`, router.Prompt{Text: "Once"}},
		{"prompts of ids", "/completion", `{"prompt":[[1,2],[3]]}`, router.Prompt{Tokens: []uint32{1, 2}}},
		{"prompts, the first is mixed", "/completion", `{"prompt":[[1,"a"],[3],"x"]}`, router.Prompt{Text: tk + "1,\xffxa"}},
		{"object", "/completion", `{"prompt":{"prompt_string":"Once"}}`, router.Prompt{Text: "Once"}},
		{"adapters", "/completion", `{"prompt":"Once","lora":[ {"id": 0, "scale": 0.5} ]}`,
			router.Prompt{Text: "Once", Adapter: `[{"id":0,"scale":0.5}]`}},
		{"no adapters", "/completion", `{"prompt":"Once","lora":[]}`, router.Prompt{Text: "Once"}},
		// Rerank.
		{"documents", "/v1/rerank",
			`{"query":"q","documents":["a",{"text":"b"},{"content":[{"type":"text","text":"c"}]}],"top_n":1}`,
			router.Prompt{Text: "q\xffxa\xffxb\xffxc"}},
		{"documents first", "/rerank", `{"documents":["a"],"query":"q"}`, router.Prompt{Text: "q\xffxa"}},
		{"one document", "/v2/rerank", `{"query":"q","documents":"a"}`, router.Prompt{Text: "q\xffxa"}},
		{"texts", "/reranking", `{"query":"q","texts":["a"]}`, router.Prompt{Text: "q\xffxa"}},
	} {
		got, err := prompt.FromRequest(c.path, nil, []byte(c.body))
		if d := cmp.Diff(c.want, got); d != "" || err != nil {
			t.Errorf("%s, %s: %v\n%s", c.path, c.name, err, d)
		}
	}
	for path, bodies := range map[string][]string{
		"/generate": {`{"text":7}`, `{"text":[7]}`, `{"input_ids":"x"}`, `{"input_ids":[1,-1]}`,
			`{"image_data":[`},
		"/inference/v1/generate": {`{"token_ids":"x"}`, `{"token_ids":[-1]}`, `{"token_ids":[[1]]}`, `{"features":7}`, `[]`},
		"/completion": {`{"prompt":7}`, `{"prompt":[null]}`, `{"prompt":[1,2.5]}`, `{"prompt":["a",-1]}`,
			`{"lora":7}`},
		"/rerank": {`{"query":7}`, `{"documents":7}`, `{"documents":[7]}`, `{"query":"x"`},
	} {
		for _, body := range bodies {
			if p, err := prompt.FromRequest(path, nil, []byte(body)); err == nil || p.Tokens != nil {
				t.Errorf("%s, %s: %+v", path, body, p)
			}
		}
	}
}

// TestNativeMedia: other media are other prompts, the same are the same wherever they stand in the body.
func TestNativeMedia(t *testing.T) {
	for _, c := range []struct{ path, form, one, two string }{
		{"/generate", `{"text":"<image> x","image_data":%s}`, `"data:one"`, `"data:two"`},
		{"/generate", `{"image_data":[%s],"text":"<image> x"}`, `"data:one"`, `"data:two"`},
		{"/inference/v1/generate",
			`{"token_ids":[1,9,9],"features":{"mm_hashes":{"image":[%s]},"kwargs_data":{"image":[null]}}}`, `"one"`, `"two"`},
		{"/inference/v1/generate", `{"token_ids":[1,9,9],"content_parts":[{"type":"image_url","image_url":{"url":%s}}]}`,
			`"one"`, `"two"`},
		{"/completion", `{"prompt":{"multimodal_data":[%s],"prompt_string":"x"}}`, `"one"`, `"two"`},
		{"/completion", `{"prompt":[{"prompt_string":"x","multimodal_data":[%s]}]}`, `"one"`, `"two"`},
	} {
		text := func(form, media string) string {
			p, err := prompt.FromRequest(c.path, nil, []byte(fmt.Sprintf(form, media)))
			if err != nil || p.Tokens != nil {
				t.Errorf("%s: %+v, %v", form, p, err)
			}
			return p.Text
		}
		one, two := text(c.form, c.one), text(c.form, c.two)
		if one == two || !strings.HasPrefix(one, m) || len(one) != len(two) {
			t.Errorf("%s: %q and %q", c.form, one, two)
		}
	}
	small, _ := prompt.FromRequest("/inference/v1/generate", nil,
		[]byte(`{"token_ids":[1],"features":{"mm_hashes":{"image":["h"]},"kwargs_data":{"image":["tensor"]}}}`))
	cached, _ := prompt.FromRequest("/inference/v1/generate", nil,
		[]byte(`{"token_ids":[1],"features":{"mm_hashes":{"image":["h"]},"kwargs_data":{"image":[null]}}}`))
	if small.Text != cached.Text {
		t.Errorf("%q, without the tensor %q", small.Text, cached.Text)
	}
}

// TestNativeGrows: what is appended to a prompt extends its text.
func TestNativeGrows(t *testing.T) {
	text := ""
	for _, body := range []string{
		`{"prompt":["Once",1]}`, `{"prompt":["Once",1,2]}`, `{"prompt":["Once",1,2,"x"]}`, `{"prompt":["Once",1,2,"x",12]}`,
		`{"prompt":["Once",1,2,"x",12,"y","z"]}`,
	} {
		p, err := prompt.FromRequest("/completion", http.Header{}, []byte(body))
		if err != nil || !strings.HasPrefix(p.Text, text) || p.Text == text {
			t.Errorf("%s: %q does not extend %q: %v", body, p.Text, text, err)
		}
		text = p.Text
	}
}

// TestNativeReply has replies of the engines' own APIs: text and counts.
func TestNativeReply(t *testing.T) {
	meta := func(prompt, cached, output int) string {
		return fmt.Sprintf(`{"id":"1","finish_reason":null,"prompt_tokens":%d,"weight_version":"default","completion_tokens":%d,"cached_tokens":%d,"cached_tokens_details":{"device":1}}`, prompt, output, cached)
	}
	for _, c := range []struct {
		name, body, text string
		usage            prompt.Usage
	}{
		{"SGLang", `{"text":" upon a time","output_ids":[5,6,7],"meta_info":` + meta(4, 2, 3) + `}`, " upon a time",
			prompt.Usage{Prompt: 4, Cached: 2, Output: 3}},
		{"SGLang, stream", events(
			`{"text":" upon","output_ids":[5],"meta_info":`+meta(4, 2, 1)+`}`,
			`{"text":null,"output_ids":[5,6],"meta_info":`+meta(4, 2, 2)+`}`,
			`{"text":" upon a time","output_ids":[5,6,7],"meta_info":`+meta(4, 2, 3)+`}`, `[DONE]`), " upon a time",
			prompt.Usage{Prompt: 4, Cached: 2, Output: 3}},
		{"SGLang, incremental stream", events(
			`{"text":" a","output_ids":[5],"meta_info":`+meta(4, 0, 1)+`}`,
			`{"text":" a","output_ids":[5],"meta_info":`+meta(4, 0, 2)+`}`,
			`{"text":" ab","output_ids":[6,7],"meta_info":`+meta(4, 0, 4)+`}`, `[DONE]`), " a a ab",
			prompt.Usage{Prompt: 4, Output: 4}},
		{"older SGLang, without ids", events(
			`{"text":" upon","meta_info":`+meta(4, 2, 1)+`}`,
			`{"text":" upon a time","meta_info":`+meta(4, 2, 3)+`}`, `[DONE]`), " upon a time",
			prompt.Usage{Prompt: 4, Cached: 2, Output: 3}},
		{"older SGLang, incremental", events(
			`{"text":" upon","meta_info":`+meta(4, 2, 1)+`}`,
			`{"text":" a time","meta_info":`+meta(4, 2, 3)+`}`, `[DONE]`), " upon a time",
			prompt.Usage{Prompt: 4, Cached: 2, Output: 3}},
		{"SGLang, batch", `[{"text":"a","meta_info":` + meta(4, 2, 3) + `},{"text":"b","meta_info":` + meta(5, 1, 1) + `}]`,
			"", prompt.Usage{Prompt: 9, Cached: 3, Output: 4}},
		{"SGLang, batch, stream", events(
			`{"text":"a","output_ids":[1],"meta_info":`+meta(4, 2, 1)+`,"index":0}`,
			`{"text":"b","output_ids":[2],"meta_info":`+meta(5, 1, 1)+`,"index":1}`), "", prompt.Usage{}},
		{"SGLang, ids alone", `{"output_ids":[5,6,7],"meta_info":` + meta(4, 2, 3) + `}`, "",
			prompt.Usage{Prompt: 4, Cached: 2, Output: 3}},
		{"SGLang, batch cut", `[{"text":"a","meta_info":` + meta(4, 2, 3) + `},{"te`, "", prompt.Usage{}},

		{"vLLM, tokens", `{"request_id":"r","output_mode":"tokens","model":null,"choices":[{"index":0,"logprobs":null,"finish_reason":"stop","token_ids":[5,6]}],"usage":{"prompt_tokens":4,"total_tokens":6,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3}}}`, "", prompt.Usage{Prompt: 4, Cached: 3, Output: 2}},
		{"vLLM, text", `{"request_id":"r","output_mode":"text","choices":[{"index":0,"text":" upon","token_ids":[5],"finish_reason":"stop"}],"usage":{"prompt_tokens":4,"completion_tokens":1}}`, " upon", prompt.Usage{Prompt: 4, Output: 1}},
		{"vLLM, message", `{"request_id":"r","output_mode":"derender","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"token_ids":[5]}]}`, a + "hi", prompt.Usage{}},
		{"vLLM, stream", events(
			`{"request_id":"r","output_mode":"text","choices":[{"index":0,"finish_reason":null,"token_ids":[5],"text":" upon"}]}`,
			`{"request_id":"r","output_mode":"text","choices":[{"index":0,"finish_reason":"stop","token_ids":[6],"text":" a"}]}`,
			`{"request_id":"r","output_mode":"text","choices":[],"usage":{"prompt_tokens":4,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3}}}`, `[DONE]`), " upon a", prompt.Usage{Prompt: 4, Cached: 3, Output: 2}},

		{"llama.cpp", `{"index":0,"content":" upon a","tokens":[],"id_slot":0,"stop":true,"model":"m","tokens_predicted":2,"tokens_evaluated":40,"generation_settings":{"n_predict":2},"prompt":"Once","truncated":false,"stop_type":"limit","tokens_cached":41,"timings":{"cache_n":32,"prompt_n":8,"prompt_ms":1.5,"predicted_n":2}}`, " upon a", prompt.Usage{Prompt: 40, Cached: 32, Output: 2}},
		{"older llama.cpp", `{"content":" upon","id_slot":0,"stop":true,"tokens_predicted":1,"tokens_evaluated":5,"tokens_cached":55,"timings":{"prompt_n":1}}`, " upon", prompt.Usage{Prompt: 5, Cached: 4, Output: 1}},
		{"llama.cpp, nothing cached",
			`{"content":" upon","id_slot":0,"stop":true,"tokens_predicted":1,"tokens_evaluated":5,"tokens_cached":5,"timings":{"cache_n":0,"prompt_n":5}}`, " upon", prompt.Usage{Prompt: 5, Output: 1}},
		{"llama.cpp, stream", events(
			`{"index":0,"content":" upon","tokens":[5],"stop":false,"id_slot":0,"tokens_predicted":1,"tokens_evaluated":5}`,
			`{"index":0,"content":" a","tokens":[6],"stop":false,"id_slot":0,"tokens_predicted":2,"tokens_evaluated":5}`,
			`{"index":0,"content":"","tokens":[],"id_slot":0,"stop":true,"tokens_predicted":2,"tokens_evaluated":5,"tokens_cached":6,"timings":{"cache_n":4,"prompt_n":1}}`), " upon a", prompt.Usage{Prompt: 5, Cached: 4, Output: 2}},
		{"llama.cpp, two prompts",
			`[{"index":0,"content":"a","stop":true,"tokens_predicted":1,"tokens_evaluated":5},{"index":1,"content":"b","stop":true,"tokens_predicted":2,"tokens_evaluated":6}]`, "", prompt.Usage{Prompt: 11, Output: 3}},

		{"rerank", `{"id":"r","model":"m","usage":{"prompt_tokens":9,"total_tokens":9},"results":[{"index":0,"relevance_score":0.5}]}`, "", prompt.Usage{Prompt: 9}},
		{"embeddings", `{"object":"list","data":[{"embedding":[0.1,0.2]}],"usage":{"prompt_tokens":9,"total_tokens":9}}`, "",
			prompt.Usage{Prompt: 9}},
	} {
		for _, step := range []int{1, 7, 1 << 20} {
			var r prompt.Reply
			for b := c.body; len(b) > 0; {
				n := min(step, len(b))
				r.Write([]byte(b[:n]))
				b = b[n:]
				if got := r.Text(); c.text != "" && !strings.HasPrefix(c.text, got) {
					t.Fatalf("%s, by %d bytes: %q is no beginning of %q", c.name, step, got, c.text)
				}
			}
			if got := r.Text(); got != c.text {
				t.Errorf("%s, by %d bytes: %q, want %q", c.name, step, got, c.text)
			}
			if d := cmp.Diff(c.usage, r.Usage()); d != "" {
				t.Errorf("%s, by %d bytes: %s", c.name, step, d)
			}
		}
	}
}

// TestLongReplies: the counts of a reply, or an event, that is longer than is held are read all the same.
func TestLongReplies(t *testing.T) {
	long := strings.Repeat(`0.25,{"a":["}\"",[]]},`, 100_000)
	want := prompt.Usage{Prompt: 7, Cached: 5, Output: 3}
	usage := `"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":5}}`
	for name, body := range map[string]string{
		"whole":         `{"data":[` + long + `0],` + usage + `}`,
		"usage first":   `{` + usage + `,"data":[` + long + `0]}`,
		"a long string": `{"x":"` + strings.Repeat(`\"u`, 1<<20) + `",` + usage + `}`,
		"event":         events(`{"type":"response.completed","response":{"output":[` + long + `0],` + usage + `}}`),
		"event, between": events(`{"choices":[{"index":0,"delta":{"content":"x"}}]}`, `{"x":[`+long+`0],`+usage+
			`}`, `[DONE]`),
		"cut": `{"data":[` + long + `0],` + usage,
	} {
		for _, step := range []int{1 << 12, 1 << 30} {
			var r prompt.Reply
			for b := body; len(b) > 0; {
				n := min(step, len(b))
				r.Write([]byte(b[:n]))
				b = b[n:]
			}
			if d := cmp.Diff(want, r.Usage()); d != "" {
				t.Errorf("%s, by %d bytes: %s", name, step, d)
			}
		}
	}
}
