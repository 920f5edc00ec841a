// Package redis is a share.Bus on the pub/sub of Redis or Valkey: one server, a server that sentinels watch, or a
// cluster. It stores nothing there.
//
// A Bus connects again for ever, and drops frames while it is not connected: gateways say again all that they share.
package redis
