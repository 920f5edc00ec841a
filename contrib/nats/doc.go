// Package nats is a share.Bus on NATS: a client of a server or a cluster that runs already, or a server within the
// process, which forms a cluster with those of the other gateways, so that a fleet of gateways needs no other server.
//
// A Bus connects again for ever, and drops frames while it is not connected: gateways say again all that they share.
package nats
