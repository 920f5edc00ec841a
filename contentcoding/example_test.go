package contentcoding_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net/http"

	"github.com/warmroute/router/contentcoding"
	"github.com/warmroute/router/prompt"
)

// A host decodes a body before it reads it, and sends it on decoded.
func ExampleDecoder_Decode() {
	var coded bytes.Buffer
	w := gzip.NewWriter(&coded)
	w.Write([]byte(`{"model": "llama", "messages": [{"role": "user", "content": "hello"}]}`))
	w.Close()
	header := http.Header{"Content-Encoding": {"gzip"}}

	d, err := contentcoding.New(contentcoding.Config{MaxBytes: 1 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	body, err := d.Decode(context.Background(), header.Values("Content-Encoding"), coded.Bytes())
	if err != nil {
		fmt.Println(err) // 415, 413 or 400
		return
	}
	contentcoding.Remove(header)
	p, _ := prompt.FromRequest("/v1/chat/completions", header, body)
	fmt.Println(p.Model, header)

	var out bytes.Buffer
	err = d.DecodeTo(context.Background(), &out, []string{"br"}, body)
	fmt.Println(err)
	none := []string{"identity"}
	fmt.Println(contentcoding.Check(none), contentcoding.Encoded(none), contentcoding.Supported())
	// Output:
	// llama map[]
	// the content coding is not supported: "br"; supported are zstd, gzip, deflate, identity
	// <nil> false zstd, gzip, deflate, identity
}
