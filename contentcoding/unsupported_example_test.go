package contentcoding_test

import (
	"errors"
	"fmt"

	"github.com/warmroute/router/contentcoding"
)

func ExampleUnsupportedError() {
	err := contentcoding.Check([]string{"br"})
	var bad *contentcoding.UnsupportedError
	if errors.As(err, &bad) {
		fmt.Println(bad.Coding, "is none of", bad.AcceptEncoding())
	}
	// Output: br is none of zstd, gzip, deflate, identity
}
