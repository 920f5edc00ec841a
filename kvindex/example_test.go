package kvindex_test

import (
	"encoding/hex"
	"fmt"

	router "github.com/warmroute/router"
	"github.com/warmroute/router/kvindex"
)

func Example() {
	x, err := kvindex.New(kvindex.Config{})
	if err != nil {
		panic(err)
	}
	// The third frame of a message: vLLM stored two blocks of four tokens.
	payload, _ := hex.DecodeString("93cb41da3054981000009197ab426c6f636b53746f726564" +
		"92cfdeadbeef12345678cfffffffffffffffffc098010203040506070804c0a347505500")
	batch, err := kvindex.Decode(payload)
	if err != nil {
		x.Reset("replica-1") // its cache is not known any more
		return
	}
	if err := x.Apply("replica-1", 0, batch); err != nil {
		fmt.Println(err)
	}
	p := router.Prompt{Tokens: []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}
	fmt.Println(x.Match(p, []string{"replica-1", "replica-2"}, nil))
	p.Tokens = p.Tokens[:8] // the last token is always computed, and blocks are whole
	fmt.Println(x.Match(p, []string{"replica-1"}, nil))
	// Output:
	// [8 -1]
	// [4]
}
