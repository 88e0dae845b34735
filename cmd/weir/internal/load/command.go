// Package load is the command that measures how many requests a second a server decides, and how fast.
package load

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

const exitStatus = `

The exit status is 0 after a measurement, 1 if the server cannot be reached,
goes away or answers nothing but errors, 2 after misuse, and 130 if it was
interrupted, after the report.`

const loops = `
In a closed loop, which is the default, every connection sends its next request
when the one before was answered: that shows how much a server can do. --rate
makes it an open loop: requests are sent at their times whether or not the
server has answered those before, as users do; and a latency counts from when a
request should have been sent, so that a server which stalls has no way to
hide it.`

// Command returns the command "bench".
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how many requests a second a server answers, and how fast",
		Long: `bench sends requests to a running server, as many as it takes or at a rate that
you choose, and tells how many were answered in a second, how many were allowed,
and how long the answers took. There is a subcommand for each front of "weir
serve". That for RESP measures Redis and Valkey as well.
` + loops + exitStatus,
		Example: `  weir bench http --duration 10s
  weir bench resp --address 127.0.0.1:6380 --pipeline 16
  weir bench rls --address 127.0.0.1:8081 --rate 20000/s --json`,
		Args: cobra.ArbitraryArgs, // RunE says what is wrong with them
		RunE: flags.OnlySubcommands,
	}
	cmd.AddCommand(httpCommand(), respCommand(), rlsCommand())
	return cmd
}

func httpCommand() *cobra.Command {
	o := options{front: frontHTTP, address: "127.0.0.1:7070", policy: "default", cost: 1}
	cmd := &cobra.Command{
		Use:   "http [flags]",
		Short: "Measure the HTTP check API",
		Long: `http asks POST /v1/check of "weir serve". There is one request at a time on each
connection, all of which stay open. 200 counts as allowed, 429 as refused, and
any other status as an error.
` + loops + exitStatus,
		Example: `  weir bench http
  weir bench http --connections 100 --duration 30s --keys 1000000
  weir bench http --rate 20000/s --arrivals poisson --distribution zipf`,
		Args: flags.NoArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.inFlight = 1
			what := "POST /v1/check, policy " + flags.Quote(o.policy)
			return execute(cmd, &o, what, func() codec { return newHTTPCodec(&o) })
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	o.registerServer(fs)
	fs.Var(flags.TextOf("text", &o.policy, name.parse), "policy", "policy that is asked for")
	fs.Var(flags.Int(&o.cost, 0, mostCost), "cost",
		"permits that each request asks for, from 0, which takes nothing, to 10^15")
	o.registerLoad(fs, "")
	return cmd
}

func respCommand() *cobra.Command {
	o := options{front: frontRESP, address: "127.0.0.1:6380", cost: 1, limit: throttle{100, 1000, 1}}
	cmd := &cobra.Command{
		Use:   "resp [flags]",
		Short: "Measure the RESP front, or a Redis",
		Long: `resp sends CL.THROTTLE, or WEIR.TAKE with --policy, or any command with
--command: that is how the same load is put on Redis, for comparison. A closed
loop sends a pipeline of commands at once, and the next when all of it was
answered, as redis-benchmark does.
` + loops + exitStatus,
		Example: `  weir bench resp
  weir bench resp --pipeline 64 --limit 15/30/60
  weir bench resp --policy default --rate 50000/s
  weir bench resp --address 127.0.0.1:6379 --command 'INCR {key}' --pipeline 64`,
		Args: flags.NoArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			args, decision, err := o.respCommand(cmd)
			if err != nil {
				return err
			}
			password := ""
			if o.passwordFile != "" {
				if password, err = readPassword(o.passwordFile); err != nil {
					return err
				}
			}
			return execute(cmd, &o, commandText(args), func() codec { return newRESPCodec(args, decision, password) })
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	o.registerServer(fs)
	fs.Var(flags.File(&o.passwordFile), "password-file", "file with the password to log in with (default: none)")
	fs.Var(flags.Of("max_burst/count/period", &o.limit, throttle.String, parseThrottle), "limit",
		"limit of every key that CL.THROTTLE is given: 1 + max_burst at once, and count in period seconds")
	fs.Var(flags.TextOf("text", &o.policy, name.parse), "policy",
		"policy of WEIR.TAKE, which is sent instead (default: none)")
	fs.Var(flags.Int(&o.cost, 0, mostCost), "cost",
		"permits that each CL.THROTTLE or WEIR.TAKE asks for, from 0, which takes nothing, to 10^15")
	fs.Var(flags.Of("command", &o.command, command.String, parseCommand), "command",
		"command to send instead, such as 'INCR {key}'; what it answers is no decision (default: none)")
	o.registerLoad(fs, "pipeline")
	return cmd
}

// respCommand is the command that the flags ask for, and whether its reply is a decision.
func (o *options) respCommand(cmd *cobra.Command) (args []string, decision bool, err error) {
	if o.command.text != "" {
		return o.command.args, false, flags.Alone(cmd.Flags(), "cannot be combined with --command", "policy", "limit", "cost")
	}
	cost := strconv.FormatInt(o.cost, 10)
	if o.policy == "" {
		l := o.limit
		args = []string{"CL.THROTTLE", keyMark}
		for _, n := range []int64{l.maxBurst, l.count, l.period} {
			args = append(args, strconv.FormatInt(n, 10))
		}
		if o.cost != 1 {
			args = append(args, cost)
		}
		return args, true, nil
	}
	if cmd.Flags().Changed("limit") {
		return nil, false, flags.Errorf("--limit cannot be combined with --policy, which has limits of its own")
	}
	args = []string{"WEIR.TAKE", o.policy, keyMark}
	if o.cost != 1 {
		args = append(args, cost)
	}
	return args, true, nil
}

func rlsCommand() *cobra.Command {
	o := options{front: frontRLS, address: "127.0.0.1:8081", cost: 1, domain: "weir"}
	o.descriptors, _ = o.descriptors.with("key={key}") // it is one
	cmd := &cobra.Command{
		Use:   "rls [flags]",
		Short: "Measure Envoy's rate limit service",
		Long: `rls calls ShouldRateLimit of envoy.service.ratelimit.v3 over gRPC, as Envoy
does: of "weir serve", or of any other server of it. OK counts as allowed,
OVER_LIMIT as refused, and any other answer as an error.
` + loops + exitStatus,
		Example: `  weir bench rls
  weir bench rls --connections 1 --in-flight 256
  weir bench rls --domain edge --descriptor 'remote_address={key}' --rate 20000/s
  weir bench rls --descriptor 'tenant={key},path=/login' --descriptor 'generic_key=all'`,
		Args: flags.NoArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			what := fmt.Sprintf("ShouldRateLimit, domain %s, %s", flags.Quote(o.domain), o.descriptors.String())
			return execute(cmd, &o, what, func() codec { return newRLSCodec(&o) })
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	o.registerServer(fs)
	fs.Var(flags.TextOf("text", &o.domain, name.parse), "domain", "domain of the descriptors")
	fs.Var(o.descriptors.flag(), "descriptor",
		"entries of a descriptor, with {key} for the key; several make several descriptors")
	fs.Var(flags.Int(&o.cost, 1, mostHits), "cost", "hits_addend of each request, from 1 to 4294967295")
	o.registerLoad(fs, "in-flight")
	return cmd
}

// execute measures, and writes the report.
func execute(cmd *cobra.Command, o *options, what string, newCodec func() codec) error {
	if err := o.check(cmd.Flags()); err != nil {
		return err
	}
	dial, err := o.dialer(cmd.Context())
	if err != nil {
		return err
	}
	if o.tls.insecure {
		fmt.Fprintln(cmd.ErrOrStderr(), "weir: warning: --tls-insecure: any program can pretend to be the server")
	}
	r := newRun(o, newCodec, dial)
	connections, err := r.prepare(cmd.Context())
	if err != nil {
		return o.unreachable(err)
	}
	live := newLive(cmd.ErrOrStderr(), o, r)
	result := r.measure(cmd.Context(), connections, live.watch)
	report := newReport(o, what, r, &result)
	if err := terminal.Print(cmd.OutOrStdout(), report, o.json); err != nil {
		return fmt.Errorf("weir: writing the result: %w", err)
	}
	return o.outcome(&result)
}

// prepare asks the server once, and makes all connections.
func (r *run) prepare(ctx context.Context) ([]*connection, error) {
	if err := r.probe(ctx); err != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	connections, err := r.connect()
	if err != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	return connections, nil
}

// outcome is why a measurement that was reported is none, nil if it is one.
func (o *options) outcome(r *result) error {
	total := r.total
	switch {
	case r.interrupted:
		return fmt.Errorf("weir: %w", context.Canceled)
	case r.failure != nil:
		return o.unreachable(r.failure)
	case total.requests() > 0 && total.counts[failed] == total.requests():
		return fmt.Errorf("weir: %s has answered nothing but errors: %s", o.address, total.failures[total.kinds()[0]].text)
	case total.requests() == 0:
		return errors.New("weir: nothing was measured: --duration was too short for a request")
	default:
		return nil
	}
}
