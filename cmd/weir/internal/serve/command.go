// Package serve has the commands that serve limits to other programs: serve, and proxy, which stands in front of an HTTP service.
package serve

import (
	"net"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/cmd/weir/internal/metrics"
)

// options are the flags of a command that serves.
type options struct {
	program

	fronts          frontFlags
	http            httpFlags
	config          configFlags
	rates           ratelimitFlags
	limit           flags.Limit
	admin           adminFlags
	otlp            metrics.OTLP
	log             flags.Log
	shutdownDelay   time.Duration
	shutdownTimeout time.Duration

	running *serving // once it runs
	// serves is called when the server serves, with its addresses. Default: nil.
	serves func(first net.Addr)
}

// program is what differs between the commands that serve.
type program struct {
	does, doing string // "serves" and "serving", for people and for the log
	// keyed reports whether requests have the key that --by says where there is no configuration. Otherwise they name it.
	keyed bool
	first []string // the flags that help lists first
	// The default of --shutdown-timeout, and how long it may be.
	shutdown, longestShutdown time.Duration
}

const long = `serve decides whether requests are within their limits: for callers of its JSON
API over HTTP; with --resp for clients of Redis; with --grpc for Envoy and all
that is built on it. All share the same limits. Without any flag there is one
policy, "default": a token bucket for each key, of 20 permits, 10 of which come
back each second.

  POST /v1/check  {"policy": "default", "key": "alice", "cost": 1}
                  200 if the request is within its limit, 429 if not, and the
                  decision; 503 if there is none. "policy" is "default" and
                  "cost" is 1 unless they are given; a cost of 0 takes nothing.
                  "key" is "" for all requests of a policy without one.
                  "wait" is for how many seconds the client is ready to wait in
                  the queue of the policy, if it has one. "retry_after" and
                  "reset_after" are in seconds; "retry_after" is null if no
                  wait helps. The header fields RateLimit, RateLimit-Policy and
                  Retry-After say the same.
  POST /v1/batch  many checks at once, each by itself or all or nothing.
  POST /v1/reserve, /v1/commit, /v1/cancel
                  for a cost that is known later: docs/check-api.md has these.
  GET /v1/status  policies, rules and counts; the last reload, and what was
                  wrong with it.
  GET /ui/        the dashboard, for browsers.
  /v1/admin/      the admin API: live state, who is refused and why, keys under
                  pressure, lockouts, overrides: docs/admin-api.md.
  GET /metrics    for Prometheus: docs/metrics.md.
  GET /healthz    200, or 503 while the server shuts down.
  GET /readyz     the same, for readiness probes; with a cluster in the file
                  also 503 while the server does not take part in it.
  GET /openapi.json  the description of all of this for programs.
  GET /           what this is, with an example.

With --config the limits are those of a file, which is what these are for:

  POST /v1/decide    {"method": "POST", "path": "/login", "client": "192.0.2.1"}
                     the same for a request, by the rules of the file: with
                     "host", "query", "headers", "attributes", "route",
                     "protocol", "cost" and "wait", as far as they are known. A
                     cost of 0 takes nothing. "policy", "limit" and
                     "remaining" are null if no limit applies to the request.
  /v1/auth           for Caddy and Traefik, /v1/auth/nginx for nginx and
                     /v1/auth/envoy for Envoy, who ask whether a request may
                     pass: docs/front.md has their configurations.
  POST /v1/explain   why a request would be answered as it is, taking nothing.
  POST /v1/reload    reads the file again.
  /v1/quota          what is left of a durable quota, and its adjustments:
                     "weir quota" asks it, and docs/durable.md explains it.

Pages that show or change the state of the server are for every client on a
loopback address; elsewhere only for clients with a token of --admin-token-file
or a certificate of --admin-client-ca. With --admin they have a listener of
their own. What is changed goes to --audit-log. A client that is refused gets
the field Weir-Refusal, whose ID "weir why" explains.

With --resp clients of Redis, in any language, need no other library: they send
CL.THROTTLE key max_burst count period, as to redis-cell, or WEIR.TAKE policy
key. docs/resp.md has all commands.

With --grpc Envoy, Istio and others ask the rate limit service, v3, or have
quotas assigned in advance by the rate limit quota service. Their descriptors
are matched by the rules of the file, or by the configuration of
envoyproxy/ratelimit as it is: --ratelimit-config. docs/envoy.md explains both.

The file is read again when it changes, on SIGHUP and by /v1/reload, and takes
the place of the old one at once, without losing a count. One with a mistake is
refused, and everything stays as it is. Both are logged.

On SIGINT or SIGTERM /healthz turns to 503, requests in flight are answered, and
the server ends; a second signal ends it at once. State is kept in memory and
is lost when the server ends, except for that of shared and durable policies,
and of calendar windows of a day and longer. These are kept in a file in the
directory of --state, and never above their limit, even after a crash. A server
whose file is damaged, or in use by another one, does not start: docs/restart.md
has the rest.

Policies of a consistency other than local are shared by all servers that have
the same store, which is that of the file or of --store. A password does not
belong on a command line: write ${REDIS_PASSWORD} in the file. If the store
cannot be reached the server starts all the same, tries again, and answers
meanwhile as "fail" of each policy says: 503 if it is closed. When the server
ends it gives back what it had taken and not used. docs/shared.md has the rest.

Policies of durability cluster have one owner among all servers of the section
"cluster" of the file, and outlive every crash. If the cluster cannot be joined
the server starts all the same, and answers likewise. When it ends another one
takes over at once, and those who wait are told 503. docs/durable.md has the
rest.

The exit status is 0 after a signal, 1 if the server cannot run, and 2 if the
configuration has mistakes or is not there.`

// Command returns the command "serve".
func Command() *cobra.Command { return new(options).command(kinds()) }

// command returns the command with its flags, which serves fronts of those kinds besides HTTP.
func (o *options) command(kinds []*front.Kind) *cobra.Command {
	o.program = program{
		does: "serves", doing: "serving", first: []string{"config", "http", "limit", "burst", "resp", "grpc"},
		shutdown: 10 * time.Second, longestShutdown: time.Hour,
	}
	return o.begin(&cobra.Command{
		Use:   "serve [flags]",
		Short: "Answer programs that ask whether a request is within its limit",
		Long:  long,
		Example: `  weir serve
  weir serve --limit 100/min --burst 30
  weir serve --config weir.yaml
  weir serve --config weir.yaml --store redis://127.0.0.1:6379 --http :7071
  weir serve --config weir.yaml --http :7070 --trust-proxy 10.0.0.0/8
  weir serve --resp 127.0.0.1:6380
  weir serve --grpc :8081 --ratelimit-config config/
  weir serve --http :7070 --admin-token-file token --log-format json
  weir serve --http :7070 --admin 127.0.0.1:7071 --audit-log audit.log
  weir serve --http :8443 --tls-cert cert.pem --tls-key key.pem
  curl -i -d '{"key":"alice"}' http://127.0.0.1:7070/v1/check
  redis-cli -p 6380 CL.THROTTLE alice 15 30 60`,
	}, append([]*front.Kind{o.httpKind(defaultHTTP), o.adminKind()}, kinds...))
}

// begin makes a command one that serves fronts of those kinds.
func (o *options) begin(cmd *cobra.Command, kinds []*front.Kind) *cobra.Command {
	cmd.Args, cmd.ValidArgsFunction = flags.NoArguments, cobra.NoFileCompletions
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.check(cmd.Flags()); err != nil {
			return err
		}
		return run(cmd, o)
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	for _, k := range kinds {
		o.fronts.offers = append(o.fronts.offers, &front.Offer{Kind: k})
	}
	o.register(fs)
	return cmd
}

// register adds all flags: those that matter for most first, and the others by what they are for.
func (o *options) register(fs *pflag.FlagSet) {
	flags.Group(fs, "addresses, names and TLS", o.fronts.register)
	flags.Group(fs, "limits, with --config and without", func(fs *pflag.FlagSet) {
		if o.keyed {
			o.limit.Register(fs)
		} else {
			o.limit.RegisterRate(fs)
		}
		o.config.register(fs)
	})
	for _, offer := range o.fronts.offers {
		flags.Group(fs, "--"+offer.Name, offer.RegisterRest)
	}
	flags.Group(fs, "--ratelimit-config", o.rates.register)
	flags.Group(fs, "operators: admin pages, audit log, refusals", o.admin.register)
	flags.Group(fs, "metrics and traces by OTLP", o.otlp.Register)
	flags.Group(fs, "the log", o.log.Register)
	flags.Group(fs, "the shutdown", func(fs *pflag.FlagSet) {
		fs.Var(flags.Duration(&o.shutdownDelay, 0, time.Hour), "shutdown-delay",
			"how long /healthz answers 503 while new connections are still taken, for load balancers to notice, "+
				"from 0s to 1h; longer if requests are in flight")
		o.shutdownTimeout = o.shutdown
		fs.Var(flags.Duration(&o.shutdownTimeout, 0, o.longestShutdown), "shutdown-timeout",
			"how long requests in flight may take after that before they are cut off, from 0s to "+flags.Short(o.longestShutdown))
	})
	flags.First(fs, o.first...)
}

// check finds flags that do not go together.
func (o *options) check(fs *pflag.FlagSet) error {
	if err := o.fronts.check(fs); err != nil {
		return err
	}
	if err := o.apart(); err != nil {
		return err
	}
	if err := o.admin.check(fs, o.fronts.tls.Certificate != "", o.address(frontHTTP)+o.address(frontAdmin) != ""); err != nil {
		return err
	}
	if err := o.otlp.Check(fs); err != nil {
		return err
	}
	if err := o.rates.check(fs, o.address("grpc")); err != nil {
		return err
	}
	return o.config.check(fs, o.rates.path != "")
}
