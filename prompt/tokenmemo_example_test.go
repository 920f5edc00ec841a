package prompt_test

import (
	"fmt"
	"log"

	"github.com/warmroute/router/prompt"
)

// What an engine says of a prompt's ids is known when the prompt comes again.
func ExampleTokenMemo() {
	memo, err := prompt.NewTokenMemo(prompt.TokenMemoConfig{})
	if err != nil {
		log.Fatal(err)
	}
	const path = "/v1/chat/completions"
	body := []byte(`{"model":"llama","return_token_ids":true,"messages":[{"role":"user","content":"Hello"}]}`)
	key, ok := prompt.NewTokenKey(path, body)
	if !ok {
		return // an image, another API: no ids
	}
	ids, whole := memo.Tokens(key)
	fmt.Println(ids, whole)

	var reply prompt.TokenReply // is written to as the reply passes by
	fmt.Fprint(&reply, `{"choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop","token_ids":[17,2]}],"prompt_token_ids":[1,15,3]}`)
	ids, output := reply.Tokens()
	memo.Learn(key, ids, output)

	again, _ := prompt.NewTokenKey(path, []byte(`{"messages":[{"role":"user","content":"Hello"}],"model":"llama","temperature":0.5}`))
	ids, whole = memo.Tokens(again)
	fmt.Println(ids, whole)
	// Output:
	// [] false
	// [1 15 3] true
}
