package tokenmemo_test

import (
	"fmt"
	"log"

	"github.com/warmroute/router/prompt/tokenmemo"
)

// What an engine says of a prompt's ids is known when the prompt comes again.
func ExampleMemo() {
	memo, err := tokenmemo.New(tokenmemo.Config{})
	if err != nil {
		log.Fatal(err)
	}
	const path = "/v1/chat/completions"
	body := []byte(`{"model":"llama","return_token_ids":true,"messages":[{"role":"user","content":"Hello"}]}`)
	key, ok := tokenmemo.NewKey(path, body)
	if !ok {
		return // an image, another API: no ids
	}
	ids, whole := memo.Tokens(key)
	fmt.Println(ids, whole)

	var reply tokenmemo.Reply // is written to as the reply passes by
	fmt.Fprint(&reply, `{"prompt_token_ids":[1,15,3],
		"choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop","token_ids":[17,2]}]}`)
	ids, output := reply.Tokens()
	memo.Learn(key, ids, output)

	body = []byte(`{"messages":[{"role":"user","content":"Hello"}],"model":"llama","temperature":0.5}`)
	again, _ := tokenmemo.NewKey(path, body)
	ids, whole = memo.Tokens(again)
	fmt.Println(ids, whole)
	// Output:
	// [] false
	// [1 15 3] true
}

// Keys are equal where engines render the same prompt, so ids that are known for
// one are right for the other.
func ExampleNewKey() {
	key := func(body string) tokenmemo.Key {
		k, ok := tokenmemo.NewKey("/v1/chat/completions", []byte(body))
		fmt.Println("known:", ok)
		return k
	}
	a := key(`{"model":"llama","messages":[{"role":"user","content":"Hello"}],"temperature":1}`)
	b := key(`{"messages":[{"role":"user","content":"Hello"}],"model":"llama"}`)
	fmt.Println(a.Chat, a.Plain, b.ReturnsIDs)
	key(`{"messages":[{"role":"user",
		"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}]}`)
	// Output:
	// known: true
	// known: true
	// true true false
	// known: false
}
