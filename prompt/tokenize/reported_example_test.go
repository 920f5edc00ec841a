package tokenize_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/warmroute/router/prompt/tokenize"
	"github.com/warmroute/router/prompt/tokenmemo"
	"github.com/warmroute/router/vllmtest"
)

// An engine that counts other tokens than it had given renders prompts in another
// way, so its ids are not used for a while.
func ExampleClient_Reported() {
	engine := vllmtest.NewServer(vllmtest.Config{})
	defer engine.Close()
	client, err := tokenize.New(tokenize.Config{
		Targets: func() []string { return []string{engine.URL} },
		Timeout: 5 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	body := []byte(`{"messages":[{"role":"user","content":"Good morning"}]}`)
	key, ok := tokenmemo.NewKey("/v1/chat/completions", body)
	if !ok {
		return
	}
	ids, err := client.TokensOf(context.Background(), key, nil, body)
	fmt.Println(len(ids), err)
	client.Reported(key, len(ids), len(ids)+20) // prompt_tokens of the reply's usage
	_, err = client.TokensOf(context.Background(), key, nil, body)
	fmt.Println(errors.Is(err, tokenize.ErrContradicted))
	s := client.Stats()
	fmt.Println(s.Asked, s.Contradicted, s.Mismatches)
	// Output:
	// 7 <nil>
	// true
	// 1 1 1
}
