package tokenize_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/warmroute/router/prompt"
	"github.com/warmroute/router/prompt/tokenize"
	"github.com/warmroute/router/vllmtest"
)

func ExampleClient() {
	engine := vllmtest.NewServer(vllmtest.Config{})
	defer engine.Close()
	client, err := tokenize.New(tokenize.Config{
		Targets: func() []string { return []string{engine.URL} }, // those that are ready
		Timeout: 5 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	const path = "/v1/chat/completions"
	body := []byte(`{"messages":[{"role":"user","content":"Good morning"}]}`)
	p, err := prompt.FromRequest(path, nil, body)
	if err != nil {
		log.Fatal(err)
	}
	// Without ids there is an error, and p is routed by its text.
	p.Tokens, err = client.Tokens(context.Background(), path, nil, body)
	fmt.Println(len(p.Tokens), err)
	// Output: 7 <nil>
}
