package router

import "github.com/warmroute/router/internal/peering"

// Peers are the other gateways of a fleet, for the Configs of fleets and strategies. A *share.Share of package share is
// one; a nil one, like a nil Peers, has nobody in it. Its method is for the packages of this module.
type Peers interface {
	Inside(peering.Inside) peering.Node
}
