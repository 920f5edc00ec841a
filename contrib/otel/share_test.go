package otel_test

import (
	"time"

	"github.com/warmroute/router/share"
)

// aShare is a view that is shared with another gateway.
type aShare struct{}

func (aShare) State() share.State {
	return share.State{Bus: share.BusState{Connected: true}, LagP99: 5 * time.Millisecond, Marks: 7,
		Peers: []share.Peer{{Counted: true}}, Sent: 10, BytesSent: 1000}
}
