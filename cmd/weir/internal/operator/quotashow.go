package operator

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

func showCommand() *cobra.Command {
	q := &question{}
	cmd := q.command(&cobra.Command{
		Use:   "show",
		Short: "Show what remains of a quota",
		Long: `show tells of each limit of a policy what was used, what is reserved for requests
that are not settled, what is left, and when all of it is back. It takes nothing.` + quotaExitStatus,
		Example: `  weir quota show --policy tenant-month --key acme
  weir quota show --policy tenant/month --key acme --json | jq '.limits[0].remaining'
  weir quota show --policy upstream --server https://weir.example.com --token-file token`,
	}, ofQuota(func(ctx context.Context, c *Client, w io.Writer) error {
		return get(ctx, c, w, q, "/v1/quota", ofKey(q.policy, q.key), writeQuota)
	}))
	q.quotaFlags(cmd)
	return cmd
}

func writeQuota(w io.Writer, out terminal.Output, q *Quota) {
	fmt.Fprintf(w, "policy  %s\nkey     %s\n\n", terminal.Printable(q.Policy), ShownKey(q.Key))
	quotaLimits.write(w, out, &q.Limits)
}

// quotaLimits is a table of what remains.
var quotaLimits = list[QuotaLimit]{
	head:    []string{"used", "reserved", "remaining", "of", "resets", limitWord},
	numbers: 4,
	row: func(l *QuotaLimit) []string {
		resets := "-"
		if l.ResetsAt != nil {
			resets = Time(*l.ResetsAt)
		}
		return []string{
			terminal.Number(l.Used), terminal.Number(l.Reserved), terminal.Number(l.Remaining), terminal.Number(l.Permits),
			resets, l.Limit + " (" + l.Rule + ")",
		}
	},
}
