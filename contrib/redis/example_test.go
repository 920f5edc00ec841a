package redis_test

import (
	"fmt"

	"github.com/warmroute/router/contrib/redis"
	"github.com/warmroute/router/share"
)

// A gateway on a server that runs already.
func Example() {
	bus, err := redis.New(redis.Config{Addrs: []string{"127.0.0.1:6379"}}) // it need not be there yet
	if err != nil {
		fmt.Println(err)
		return
	}
	defer bus.Close()
	s, err := share.New(share.Config{Bus: bus, Secret: "known to the gateways alone", Name: "gateway-1"})
	fmt.Println(s != nil, err)
	// Output: true <nil>
}
