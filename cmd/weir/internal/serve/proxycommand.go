package serve

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/cmd/weir/internal/proxy"
)

// proxyLong is the help of weir proxy.
const proxyLong = `proxy passes requests on to an HTTP service and refuses those beyond the limit
with 429, a Retry-After header and a body of type application/problem+json.
Those never reach the service. All other answers get RateLimit headers that say
how much is left. Those that the service itself sends stay and come first; if
they are of a form that cannot be added to (limit=10, remaining=9), they
stay alone.

Clients send their requests to --listen. --http is another address, at which
nothing is passed on: there other programs ask whether a request is allowed.

Without --config there is one limit, by --limit, --burst and --by. With it the
limits and rules are those of a file, as of "weir serve": for paths, methods
and clients, shared by a store or a cluster, in queues in which requests wait.
It is read again when it changes. --admin has the admin API, the dashboard,
metrics and /healthz; --http, --resp and --grpc answer other programs by the
same limits. "weir serve --help" explains these.

Bodies are streamed both ways and not changed. WebSockets and other upgrades
pass, and count as one request; an upgrade to HTTP/2 (h2c) is not passed on, as
requests within it would not be limited. If the client goes away, so does its
request to the service. No path is taken: /healthz is that of the service.

TRACE is refused with 405 and CONNECT with 501. Trailers of requests are
dropped; those of answers pass, as gRPC needs them. A connection of HTTP/1.1
ends with the answer to a request whose body came in chunks, and one of HTTP/1.0
with each answer, so that nothing hidden behind a body is served.

A client is the address of its connection, and with --by client each /64 of
IPv6 is one. The proxy sets X-Forwarded-For, -Host and -Proto, and drops what
the client says in them and in all other fields by which proxies tell about the
client and the original request: X-Forwarded-*, X-Original-*, X-Rewrite-*,
X-Envoy-*, X-Azure-*, X-Real-IP, X-Client-IP, True-Client-IP, CF-Connecting-IP,
X-Host and their like, also with underscores. Behind other proxies, name those
by --trusted-proxies: then these fields are kept, and the client is the last
address in X-Forwarded-For that is not one of theirs. Forwarded and Proxy
never pass.

With --concurrency the service gets only so many requests at a time. Others wait
in their order if there is a --queue, and are refused with 503 if it is full.
They have used up their permit of the limit.

SIGINT or SIGTERM stops the proxy: after --shutdown-delay it takes no more
requests, finishes those it has, closes upgraded connections, and logs how many
requests it has seen. A second signal ends it at once.`

// ProxyCommand returns the command "proxy".
func ProxyCommand() *cobra.Command {
	o := &options{program: program{
		does: "proxies", doing: "proxying", keyed: true, first: []string{"upstream", "config", "limit", "burst", "by", "listen"},
		shutdown: 30 * time.Second, longestShutdown: 24 * time.Hour,
	}}
	return o.begin(&cobra.Command{
		Use:   "proxy --upstream URL [flags]",
		Short: "Stand in front of an HTTP service and limit its requests",
		Long:  proxyLong,
		Example: `  weir proxy --upstream http://127.0.0.1:3000 --limit 10/s --burst 20
  weir proxy --upstream http://127.0.0.1:3000 --config weir.yaml --admin 127.0.0.1:7071
  weir proxy --upstream unix:///run/app.sock --listen :8443 --tls-cert c.pem --tls-key k.pem
  weir proxy --upstream https://api.example.com/v2 --upstream-host api.example.com --by header:X-Api-Key
  weir proxy --upstream http://app:3000 --listen :8080 --trusted-proxies 10.0.0.0/8 --by client,path
  weir proxy --upstream http://127.0.0.1:3000 --concurrency 8 --queue 100 --upstream-timeout 10s`,
	}, append([]*front.Kind{proxy.Kind(), o.httpKind(""), o.adminKind()}, kinds()...))
}
