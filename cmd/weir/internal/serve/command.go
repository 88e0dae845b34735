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
	"github.com/weirhq/weir/internal/inwords"
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
API over HTTP; with --resp also for clients of Redis, with --grpc for Envoy and
all that is built on it. All share the same limits. Without any flag there is
one policy, "default": each key has a token bucket of 20 permits, and 10 of them
come back each second.

  POST /v1/check     {"policy": "default", "key": "alice", "cost": 1}
                     200 if the request is allowed, 429 if it is refused, with
                     the decision; 503 if there is none. "policy" is "default"
                     and "cost" is 1 unless they are given.
  POST /v1/decide    {"method": "POST", "path": "/login", "client": "192.0.2.1"}
                     the same for a request, by the rules of --config.
  POST /v1/reserve   for a cost that is known later, and /v1/batch for many
                     checks at once: docs/check-api.md.
  /v1/auth           for Caddy and Traefik, /v1/auth/nginx for nginx,
                     /v1/auth/envoy for Envoy: docs/front.md.
  GET /ui/           the dashboard, for browsers.
  /v1/admin/         what "weir admin", "weir why" and "weir top" ask:
                     docs/admin-api.md.
  GET /metrics       for Prometheus: docs/metrics.md.
  GET /healthz       200, or 503 while the server shuts down. /readyz is also
                     503 while durable limits cannot be decided.
  GET /openapi.json  the description of all of this for programs.

The dashboard, /v1/admin/ and /metrics respond to every client on a loopback
address; elsewhere only to clients with a token of --admin-token-file or a
certificate of --admin-client-ca.

With --resp clients of Redis send CL.THROTTLE key max_burst count period, as to
redis-cell, or WEIR.TAKE policy key: docs/resp.md. With --grpc there are the
rate limit service of Envoy, v3, and its rate limit quota service:
docs/envoy.md.

The file of --config is read again when it changes, on SIGHUP and by "weir admin
reload". No count is lost. A file with a mistake is refused, and everything
stays as it is. Without a file SIGHUP changes nothing, except that on a terminal
it ends the server.

Counts are in memory, and begin anew with the server, except these:
those of calendar windows of a day and longer are in a file in the directory of
--state (docs/restart.md), those of policies that servers share in the store
(docs/shared.md), and those of durability cluster with their owner
(docs/durable.md). The server starts also if the store or the cluster cannot be
reached. Until it can, "fail" of each policy decides. A password does not belong
on a command line: write ${REDIS_PASSWORD} in the file.

On SIGINT or SIGTERM /healthz turns to 503, requests in flight are answered, and
the server ends; a second signal ends it at once. The exit status is 0 after a
signal, 1 if the server cannot run, and 2 if the configuration has mistakes or
is not there.`

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
			"how long requests in flight may take after that before they are cut off, from 0s to "+
				inwords.Short(o.longestShutdown))
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
