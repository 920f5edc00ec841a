// Command caddy is Caddy with the lb_policy warmroute, and with only those of
// Caddy's own modules that a reverse proxy needs. The tests run it. For the rest,
// import Caddy's modules/standard instead of the four below, or use xcaddy.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	_ "github.com/warmroute/router/examples/caddy"
)

func main() { caddycmd.Main() }
