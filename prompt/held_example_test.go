package prompt_test

import (
	"fmt"

	"github.com/warmroute/router/prompt"
)

// A host passes the ids on before the client gets the bytes that name them.
func ExampleKeepsState() {
	for _, path := range []string{"/v1/responses", "/v1/responses/resp_1/cancel", "/v1/files", "/v1/embeddings"} {
		fmt.Println(path, prompt.KeepsState(path))
	}
	var r prompt.Reply
	r.Write([]byte("data: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\"}}\n\n"))
	fmt.Println(r.Made()) // for Lease.Made
	// Output:
	// /v1/responses true
	// /v1/responses/resp_1/cancel true
	// /v1/files true
	// /v1/embeddings false
	// [resp_1]
}
