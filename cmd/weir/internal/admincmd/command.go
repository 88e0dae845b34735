// Package admincmd is the command that looks at a running server, and changes what holds for single keys.
package admincmd

import (
	"context"
	"encoding/json"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/admin"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/serverflags"
	"github.com/weirhq/weir/cmd/weir/internal/table"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// Command returns the command "admin".
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "admin",
		Short: "Look at a running server, and let a key through or shut it in",
		Long: `admin asks a running weir serve about its policies, keys, lockouts, refusals and
replicas, and changes what holds for a single key: it ends a lockout, makes
another limit hold for a while, or forgets what the key has used. Every change is
in the audit log of the server, with who made it and why.

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

const (
	mostKey    = 1024
	mostWord   = 8192
	mostReason = 1024
)

// question is what all commands have: which server is asked, about what, and how the answer is printed.
type question struct {
	server serverflags.Server
	policy string
	key    string
	last   int
	asJSON bool
	// aKey tells that the question is about one key, and changes that it changes something.
	aKey, changes bool
}

// command makes a command that asks.
func (q *question) command(cmd *cobra.Command, ask asking) *cobra.Command {
	cmd.Use += " [flags]"
	cmd.Long += serverflags.ExitStatus
	cmd.Args, cmd.ValidArgsFunction = flags.NoArguments, cobra.NoFileCompletions
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if q.server.Several() {
			return q.each(cmd, ask)
		}
		client, err := q.server.Client()
		if err != nil {
			return err
		}
		defer client.Close()
		return q.one(cmd, client, ask, cmd.OutOrStdout())
	}
	cmd.Flags().SortFlags = false
	return cmd
}

// changeFlags is serverFlags of a command that changes something, in one server or in several.
func (q *question) changeFlags(cmd *cobra.Command) {
	q.moreFlags(cmd, q.server.RegisterSeveral)
	q.changes = true
	cmd.Long = strings.TrimSuffix(cmd.Long, serverflags.ExitStatus) + severalServers + serverflags.ExitStatus
}

// serverFlags adds the flags that all commands end with.
func (q *question) serverFlags(cmd *cobra.Command) { q.moreFlags(cmd, q.server.Register) }

func (q *question) moreFlags(cmd *cobra.Command, register func(*pflag.FlagSet)) {
	register(cmd.Flags())
	cmd.Flags().BoolVar(&q.asJSON, "json", false, "print the JSON that the server answers")
	if cmd.Flags().Lookup("policy") != nil {
		q.server.CompletePolicies(cmd)
	}
}

// somePolicy adds --policy, which may be left out.
func (q *question) somePolicy(cmd *cobra.Command) {
	cmd.Flags().Var(flags.Text(&q.policy, 1, mostKey), "policy", "only those of this policy (default: all)")
}

// thePolicy adds --policy, which must be given.
func (q *question) thePolicy(cmd *cobra.Command) {
	cmd.Flags().Var(flags.Text(&q.policy, 1, mostKey), "policy", "the name of the policy (default: none, it is required)")
	_ = cmd.MarkFlagRequired("policy") // there is such a flag
}

// theKey adds --policy, which must be given, and --key.
func (q *question) theKey(cmd *cobra.Command) {
	q.thePolicy(cmd)
	q.aKey = true
	cmd.Flags().Var(serverflags.Key(&q.key, 0), "key", `the key (default "": that of a policy without keys)`)
}

// keyless is what is wrong with leaving out --key, nil if the policy has no keys. Whatever else is wrong is told by the answer
// to the question itself.
func (q *question) keyless(ctx context.Context, c *admin.Client) error {
	p, err := c.Policy(ctx, q.policy)
	if err != nil || p == nil || p.Key == "" {
		return nil //nolint:nilerr // see above
	}
	return flags.Errorf("needs --key: keys of policy %s are %s, written as \"weir admin keys\" shows them",
		table.Printable(p.Name), table.Printable(p.Key))
}

// some adds --last.
func (q *question) some(cmd *cobra.Command, number, most int, what string) {
	q.last = number
	cmd.Flags().Var(flags.Int(&q.last, 1, most), "last", what)
}

// get asks the server, and prints the answer.
func get[T any](ctx context.Context, c *admin.Client, w io.Writer, q *question, path string, query url.Values,
	text func(w io.Writer, out terminal.Output, v *T),
) error {
	var a admin.Answer[T]
	if err := c.Get(ctx, path, query, &a); err != nil {
		return err
	}
	return q.print(w, a.JSON, func(w io.Writer, out terminal.Output) { text(w, out, &a.Value) })
}

func (q *question) print(w io.Writer, answer json.RawMessage, text func(io.Writer, terminal.Output)) error {
	return serverflags.Print(w, q.asJSON, answer, text)
}
