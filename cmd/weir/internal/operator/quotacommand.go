package operator

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

// QuotaCommand returns the command "quota".
func QuotaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quota",
		Short: "Look at quotas that outlive crashes, and adjust them",
		Long: `quota asks a running weir serve about policies of durability cluster: what is
left of a quota, such as a month's tokens of a tenant. It gives permits back or
takes them, and tells who did that before, and why. Any node of a cluster can be
asked.`,
		Example: `  weir quota show --policy tenant-month --key acme
  weir quota adjust --policy tenant-month --key acme --permits 5000 --reason 'refund of order 17'
  weir quota history --policy tenant-month --key acme`,
		Args: cobra.ArbitraryArgs, // RunE says what is wrong with them
		RunE: flags.OnlySubcommands,
	}
	cmd.AddCommand(showCommand(), adjustCommand(), historyCommand())
	return cmd
}

const quotaExitStatus = `

The exit status is 0 on success, 1 if the server cannot be reached or no node owns
the limits now, and 2 if the question is wrong, such as a policy that is not there.`

// quotaFlags adds the flags of a question about a quota.
func (q *question) quotaFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.Var(flags.AnyText(&q.policy), "policy",
		"policy of durability cluster; of several limits one is policy/limit (default: none, it is required)")
	fs.Var(keyFlag(&q.key, 0), "key", `key whose quota it is (default "": that of a policy without keys)`)
	q.server.Register(fs)
	fs.BoolVar(&q.asJSON, "json", false, "print the JSON object that the server answers")
	_ = cmd.MarkFlagRequired("policy") // there is such a flag
}

// ofQuota is a question about a quota.
func ofQuota(ask asking) asking {
	return func(ctx context.Context, c *Client, w io.Writer) error {
		err := ask(ctx, c, w)
		if refused, ok := errors.AsType[*Refused](err); ok && refused.NoPage {
			return flags.Inputf("%s: it has no quotas: weir serve needs --config, with a cluster", c.Server())
		}
		return err
	}
}
