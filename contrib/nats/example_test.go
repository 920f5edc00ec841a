package nats_test

import (
	"fmt"

	"github.com/warmroute/router/contrib/nats"
	"github.com/warmroute/router/share"
)

// A gateway with a server of its own, which needs no other.
func Example() {
	server, err := nats.NewServer(nats.ServerConfig{}) // Cluster and Peers connect it to those of other gateways
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	bus, err := nats.New(nats.Config{Server: server})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer bus.Close()
	s, err := share.New(share.Config{Bus: bus, Secret: "known to the gateways alone", Name: "gateway-1"})
	fmt.Println(s != nil, err)
	// Output: true <nil>
}
