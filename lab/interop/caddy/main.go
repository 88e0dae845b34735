//go:build caddy

// Caddy is the server of that name with only those of its parts that the tests need. It takes minutes to build. So it is built
// only for those tests, with its tag and without the race detector.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy/forwardauth"
)

func main() { caddycmd.Main() }
