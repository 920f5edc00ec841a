// Command caddy is Caddy with the lb_policy warmroute, and with no more of Caddy's
// own modules than a reverse proxy needs: what the tests run. Who wants the rest
// imports Caddy's modules/standard in place of the four below, or uses xcaddy.
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
