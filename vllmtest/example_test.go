package vllmtest_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/warmroute/router/vllmtest"
)

// A second request with the same prompt finds it cached.
func ExampleNewServer() {
	replica := vllmtest.NewServer(vllmtest.Config{TimeScale: 0.001})
	defer replica.Close()

	body := `{"messages": [
		{"role": "system", "content": "You are the clerk of a small railway. Answer in plain words and never invent a train."},
		{"role": "user", "content": "When does the first train leave?"}], "max_tokens": 3}`
	for range 2 {
		res, err := replica.Client().Post(replica.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			fmt.Println(err)
			return
		}
		var reply struct {
			Usage struct {
				Prompt  int `json:"prompt_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		err = json.NewDecoder(res.Body).Decode(&reply)
		_ = res.Body.Close()
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(reply.Usage.Prompt, "tokens,", reply.Usage.Details.Cached, "cached")
	}
	// Output:
	// 36 tokens, 0 cached
	// 36 tokens, 32 cached
}
