package operator

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// AdminCommand returns the command "admin".
func AdminCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "admin",
		Short: "Look at a running server, and let a key through or slow it down",
		Long: `admin asks a running weir serve about its policies, keys, lockouts, refusals and
replicas, and changes what applies to a single key: it ends a lockout, gives the
key another limit for a while, or forgets what it has used. Every change is in
the audit log of the server, with who made it and why.

"weir why" shows why a request was refused, and "weir top" shows all of it live.`,
		Example: `  weir admin status
  weir admin keys --policy per-client
  weir admin unlock --policy login --key 192.0.2.1 --reason 'mistyped a password'
  weir admin override --policy api --key acme --limit '100/s, burst 200' --for 2h --reason 'launch day'`,
		Args: cobra.ArbitraryArgs, // RunE says what is wrong with them
		RunE: flags.OnlySubcommands,
	}
	cmd.AddCommand(
		statusCommand(), policiesCommand(), keysCommand(), keyCommand(), lockoutsCommand(), refusalsCommand(), reportCommand(),
		overridesCommand(), overrideCommand(), restoreCommand(), unlockCommand(), resetCommand(), reloadCommand(),
		configCommand(), replicasCommand(), auditCommand(),
	)
	return cmd
}

// Bounds of what is asked of the admin API, in bytes and as times.
const (
	MostKey          = 1024
	MostReason       = 1024
	ShortestOverride = time.Second
	LongestOverride  = 3660 * 24 * time.Hour

	mostWord = 8192
)

func statusCommand() *cobra.Command {
	return look(&cobra.Command{
		Use:   "status",
		Short: "Tell how a server is",
		Long: `status tells the version of a server, since when it runs, which configuration
is in force and whether the last reload was refused, how many requests it has
decided on and how many of them it has refused, how long decisions take, and
what it uses.`,
		Example: `  weir admin status
  weir admin status --json | jq .latency.p99`,
	}, OverviewPath, writeOverview)
}

func policiesCommand() *cobra.Command {
	return look(&cobra.Command{
		Use:   "policies",
		Short: "List the policies with their counts",
		Long: `policies lists the policies in force: how many requests each has allowed and
refused since the server started, how many permits are waited for, how many keys
it tracks, how many of them are locked out or overridden, and its limits.`,
		Example: `  weir admin policies
  weir admin policies --json | jq -r '.[] | select(.refused > 0) | .name'`,
	}, PoliciesPath, policies.write)
}

func keysCommand() *cobra.Command {
	q := &question{}
	cmd := q.command(&cobra.Command{
		Use:   "keys",
		Short: "List the keys of a policy under the most pressure",
		Long: `keys lists keys of a policy: first those that are locked out, then those that
are waited for, then those that have used the most of their limit. Of each
there is the limit that it is nearest to. A table keeps hashes of keys, and the
names of those that are refused most: others are shown as # and a number. A key
that is not UTF-8 is shown with \xe9 for the byte e9, and \\ for a backslash;
--key takes it so.`,
		Example: `  weir admin keys --policy per-client
  weir admin keys --policy per-client --last 1000 --json`,
	}, func(ctx context.Context, c *Client, w io.Writer) error {
		return get(ctx, c, w, q, KeysPath, q.query(), func(w io.Writer, out terminal.Output, all *[]Key) {
			keys.write(w, out, all)
			if p, err := c.Policy(ctx, q.policy); err == nil && p != nil {
				writeKeysKept(w, p)
			}
		})
	})
	q.thePolicy(cmd)
	some(20, 10_000)(q, cmd)
	q.serverFlags(cmd)
	return cmd
}

func keyCommand() *cobra.Command {
	q := &question{}
	word := ""
	cmd := q.command(&cobra.Command{
		Use:   "key [WORD]",
		Short: "Tell the state of a key, or all that is known of a client",
		Long: `key tells of each limit of a policy what a key has left, whether one more
request would be allowed now, how many wait for it, whether it is locked out,
and whether another limit applies to it for a while. It takes nothing.

With a WORD instead of --policy and --key it searches all policies: for the
address of a client, a network, or a value of requests such as a user or a key
of an API. It finds the keys that each policy makes of it, those that have it
as a part, and the last refusals that name it, and says which policies cannot
be searched, and why. With --server once for each replica all of them
are asked.`,
		Example: `  weir admin key 198.51.100.52
  weir admin key --policy per-client --key 192.0.2.1
  weir admin key acme --server http://10.0.0.1:7070 --server http://10.0.0.2:7070
  weir admin key --policy tenant-month --key acme --json | jq '.limits[0].remaining'`,
	}, func(ctx context.Context, c *Client, w io.Writer) error {
		if word != "" {
			query := url.Values{"word": {word}}
			return get(ctx, c, w, q, SearchPath, query, func(w io.Writer, out terminal.Output, s *Search) {
				writeSearch(w, out, s, time.Now())
			})
		}
		return get(ctx, c, w, q, KeyPath, ofKey(q.policy, q.key), func(w io.Writer, out terminal.Output, k *Key) {
			WriteKey(w, out, k)
			if !Unseen(k) {
				return
			}
			if p, err := c.Policy(ctx, q.policy); err == nil && p != nil {
				writeKeyForm(w, p)
			}
		})
	})
	q.theKey(cmd)
	cmd.Flags().Lookup("policy").Annotations = nil
	cmd.Flags().Lookup("policy").Usage = "the name of the policy (default: none, it is required without a WORD)"
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch given := cmd.Flags().Changed("policy") || cmd.Flags().Changed("key"); {
		case len(args) > 1:
			return flags.Errorf("key needs one WORD, not %d", len(args))
		case len(args) == 1 && given:
			return flags.Errorf("a WORD and --policy or --key cannot be combined")
		case len(args) == 1 && (strings.TrimSpace(args[0]) == "" || len(args[0]) > mostWord):
			return flags.Errorf("WORD must have from 1 to %d bytes", mostWord)
		case len(args) == 1:
			word, q.aKey = args[0], false
		case !cmd.Flags().Changed("policy"):
			return flags.Errorf("key needs a WORD, such as the address of a client, or --policy and --key")
		}
		return nil
	}
	q.moreFlags(cmd, q.server.RegisterSeveral)
	return cmd
}

func lockoutsCommand() *cobra.Command {
	return look(&cobra.Command{
		Use:   "lockouts",
		Short: "List the keys that are locked out",
		Long: `lockouts lists the keys that are locked out as they went on after refusals,
those for the longest time first. "weir admin unlock" lets one in again.`,
		Example: `  weir admin lockouts
  weir admin lockouts --policy login --json`,
	}, LockoutsPath, lockouts.write, (*question).somePolicy, some(100, 4096))
}

func refusalsCommand() *cobra.Command {
	q := &question{}
	cmd := q.command(&cobra.Command{
		Use:   "refusals",
		Short: "List the last refusals",
		Long: `refusals lists requests that were refused, the last one first, with the limit
that has refused each. A server keeps the last 4096. "weir why ID" tells all
about one: the ID is what its client was told in the field Weir-Refusal.`,
		Example: `  weir admin refusals
  weir admin refusals --policy per-client --key 192.0.2.1 --last 5`,
	}, func(ctx context.Context, c *Client, w io.Writer) error {
		return get(ctx, c, w, q, RefusalsPath, q.query(), func(w io.Writer, out terminal.Output, all *Refusals) {
			writeRefusals(w, out, all)
			if len(all.Refusals) > 0 || q.policy == "" {
				return
			}
			// Those of a policy that has gone are kept, so it is no mistake to ask for them.
			if p, err := c.Policy(ctx, q.policy); err == nil && p == nil {
				fmt.Fprintf(w, "no policy %s is in force: \"weir admin policies\" lists those that are\n",
					terminal.Printable(q.policy))
			}
		})
	})
	q.somePolicy(cmd)
	cmd.Flags().Var(keyFlag(&q.key, 1), "key", "only those of this key (default: all)")
	some(20, 4096)(q, cmd)
	q.serverFlags(cmd)
	return cmd
}

func reportCommand() *cobra.Command {
	return look(&cobra.Command{
		Use:   "report",
		Short: "Print the report of a policy",
		Long: `report prints the state of a policy: its limits and counts, and the 20 keys
under the most pressure, those that are locked out first.`,
		Example: `  weir admin report --policy per-client
  weir admin report --policy per-client --json | jq .top`,
	}, ReportPath, WriteReport, (*question).thePolicy)
}

func overridesCommand() *cobra.Command {
	return look(&cobra.Command{
		Use:   "overrides",
		Short: "List the keys with another limit",
		Long: `overrides lists the keys that have another limit for a while, with who gave it
to them, when, and why. "weir admin restore" ends one.`,
		Example: `  weir admin overrides
  weir admin overrides --json | jq length`,
	}, OverridesPath, overrides.write)
}

func configCommand() *cobra.Command {
	q := &question{}
	text := false
	cmd := q.command(&cobra.Command{
		Use:   "config",
		Short: "Tell which configuration is in force",
		Long: `config tells which configuration is in force and since when, what each rule has
matched, and what became of the last reloads: what has changed, or why it was
refused. With --text it prints the file in force, without what came from the
environment.`,
		Example: `  weir admin config
  weir admin config --text | diff - weir.yaml`,
	}, func(ctx context.Context, c *Client, w io.Writer) error {
		return get(ctx, c, w, q, ConfigurationPath, nil, func(w io.Writer, out terminal.Output, v *Configuration) {
			if text {
				shown := v.Text
				if out.Interactive { // it is the file itself for diff
					shown = terminal.PrintableLines(shown)
				}
				_, _ = io.WriteString(w, shown) // a buffer
				return
			}
			WriteConfiguration(w, out, v)
		})
	})
	cmd.Flags().BoolVar(&text, "text", false, "print the file in force")
	q.serverFlags(cmd)
	cmd.MarkFlagsMutuallyExclusive("text", "json")
	return cmd
}

func replicasCommand() *cobra.Command {
	return look(&cobra.Command{
		Use:   "replicas",
		Short: "Tell how the store and the other servers are",
		Long: `replicas tells how the store is that limits are shared in, and the cluster that
owns durable ones: whether it can be reached, and how far behind it is.`,
		Example: `  weir admin replicas
  weir admin replicas --json | jq .cluster`,
	}, ReplicasPath, writeReplicas)
}

func auditCommand() *cobra.Command {
	return look(&cobra.Command{
		Use:   "audit",
		Short: "List the last changes, and who made them",
		Long: `audit lists changes, the last one first: when it was, who made it from where,
what it was and why, and whether it was done. Failed logins are in it as well. A
server keeps the last 1000; all of them are in the file of its --audit-log.`,
		Example: `  weir admin audit
  weir admin audit --last 1000 --json | jq '.[] | select(.action == "override")'`,
	}, AuditPath, audit.write, some(20, 1000))
}
