package prompt_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/warmroute/router/prompt"
)

// A conversation that grows extends its text byte for byte, whatever the client
// changes next to it.
func ExampleFromChat() {
	first, err := prompt.FromChat([]byte(`{"model":"llama","messages":[
		{"role":"system","content":"You are brief."},
		{"role":"user","content":"Why is the sky blue?"}]}`))
	if err != nil {
		panic(err)
	}
	second, err := prompt.FromChat([]byte(`{"temperature":0.5,"messages":[
		{"role":"system","content":[{"type":"text","text":"You are brief."}]},
		{"role":"user","content":"Why is the sky blue?"},
		{"role":"assistant","content":"Rayleigh."},
		{"role":"user","content":"Who?"}],"model":"llama"}`))
	if err != nil {
		panic(err)
	}
	fmt.Println(strings.HasPrefix(second.Text, first.Text))
	fmt.Printf("%q\n", strings.TrimPrefix(second.Text, first.Text))
	// Output:
	// true
	// "\xffaRayleigh.\xffuWho?"
}

// A completion's text is its prompt. One of token ids goes to Tokens.
func ExampleFromCompletion() {
	text, err := prompt.FromCompletion([]byte(`{"model":"llama","prompt":"Once upon a time"}`))
	fmt.Printf("%q %v %v\n", text.Text, text.Tokens, err)
	ids, err := prompt.FromCompletion([]byte(`{"model":"llama","prompt":[791,6380,374]}`))
	fmt.Printf("%q %v %v\n", ids.Text, ids.Tokens, err)
	// Output:
	// "Once upon a time" [] <nil>
	// "" [791 6380 374] <nil>
}

func ExampleFromEmbeddings() {
	p, err := prompt.FromEmbeddings([]byte(`{"model":"bge","input":["a first text","a second one"]}`))
	fmt.Printf("%s %q %v\n", p.Model, p.Text, err)
	// Output: bge "a first text" <nil>
}

func ExampleFromMessages() {
	p, err := prompt.FromMessages([]byte(`{"model":"claude","max_tokens":100,
		"system":[{"type":"text","text":"You are brief.","cache_control":{"type":"ephemeral"}}],
		"messages":[{"role":"user","content":"Hello"}]}`))
	fmt.Printf("%s %q %v\n", p.Model, p.Text, err)
	// Output: claude "\xffsYou are brief.\xffuHello" <nil>
}

func ExampleFromResponses() {
	p, err := prompt.FromResponses([]byte(`{"model":"llama","instructions":"You are brief.","input":"Hello"}`))
	fmt.Printf("%s %q %v\n", p.Model, p.Text, err)
	// Output: llama "\xffsYou are brief.\xffuHello" <nil>
}

func ExampleParseTokenIDs() {
	fmt.Println(prompt.ParseTokenIDs("791, 6380,374"))
	_, err := prompt.ParseTokenIDs("791,,374")
	fmt.Println(errors.Is(err, prompt.ErrBadTokenIDs), err)
	// Output:
	// [791 6380 374] <nil>
	// true prompt: bad token ids in x-warmroute-token-ids at byte 4
}

// A Parser keeps the sessions of tenants apart and knows the adapters' names.
// What it cannot read is routed all the same.
func ExampleParser() {
	parser := prompt.Parser{
		Tenant: func(h http.Header) string {
			return fmt.Sprintf("%x", sha256.Sum256([]byte(h.Get("Authorization"))))[:8]
		},
		Adapters: map[string]string{"sql-lora": "llama"},
		MaxText:  1 << 20,
		Unknown:  func(path string, err error) { fmt.Println("known:", path, errors.Is(err, prompt.ErrSyntax)) },
	}
	h := http.Header{"X-Session-Id": {"chat-7"}, "Authorization": {"Bearer of tenant a"}}
	body := []byte(`{"model":"sql-lora","messages":[{"role":"user","content":"Hello"}]}`)
	p, err := parser.FromRequest("/v1/chat/completions", h, body)
	fmt.Println(p.Model, p.Adapter, p.Session, err)

	p, err = parser.FromRequest("/v1/chat/completions", nil, []byte(`{"messages":`))
	fmt.Printf("%q %v\n", p.Text, err != nil)
	// Output:
	// llama sql-lora x-session-id:8:7e99d887:chat-7 <nil>
	// known: /v1/chat/completions true
	// "" true
}

// What a host reads of a body by itself it can name as this package does.
func ExampleAPIOf() {
	for _, path := range []string{
		"/v1/chat/completions", "/openai/v1/responses?x=1", "/generate", "/inference/v1/generate", "/metrics",
	} {
		fmt.Printf("%q\n", prompt.APIOf(path))
	}
	fmt.Println(prompt.BlockKindOf("tool_use") == prompt.BlockCall, prompt.IsUser("assistant"))
	// Output:
	// "chat_completions"
	// "responses"
	// "sglang_generate"
	// "vllm_generate"
	// ""
	// true false
}
