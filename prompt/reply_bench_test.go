package prompt_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/warmroute/router/prompt"
)

// BenchmarkReply writes a reply of 100 tokens, as a stream of one event each and as one JSON object.
func BenchmarkReply(b *testing.B) {
	var stream strings.Builder
	for i := range 100 {
		fmt.Fprintf(&stream,
			`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":" word%d"},"logprobs":null,"finish_reason":null}]}`+"\n\n", i)
	}
	stream.WriteString(`data: {"id":"chatcmpl-1","choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":100,"prompt_tokens_details":{"cached_tokens":960}}}` + "\n\ndata: [DONE]\n\n")
	whole := `{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		strings.Repeat("word and ", 1000) +
		`"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,"completion_tokens":100,"prompt_tokens_details":{"cached_tokens":960}}}`
	for name, body := range map[string]string{"stream": stream.String(), "whole": whole} {
		b.Run(name, func(b *testing.B) {
			in := []byte(body)
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				var r prompt.Reply
				for at := 0; at < len(in); at += 180 {
					r.Write(in[at:min(at+180, len(in))])
				}
				if u := r.Usage(); r.Text() == "" || u.Cached != 960 {
					b.Fatal(u)
				}
			}
		})
	}
}
