package operator

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

func historyCommand() *cobra.Command {
	q := &question{}
	cmd := q.command(&cobra.Command{
		Use:   "history",
		Short: "Tell who has adjusted a quota, when and why",
		Long: `history lists the adjustments of a quota, the last one first: when it was, who did
it, how many permits were given back (or taken, with a minus), what remained
afterwards, and why.` + quotaExitStatus,
		Example: `  weir quota history --policy tenant-month --key acme
  weir quota history --policy tenant-month --key acme --last 1000 --json`,
	}, ofQuota(func(ctx context.Context, c *Client, w io.Writer) error {
		query := ofKey(q.policy, q.key)
		query.Set("limit", strconv.Itoa(q.last))
		return get(ctx, c, w, q, "/v1/quota/adjustments", query, writeHistory)
	}))
	q.quotaFlags(cmd)
	some(20, 1000)(q, cmd)
	return cmd
}

func writeHistory(w io.Writer, out terminal.Output, h *QuotaHistory) {
	if len(h.Adjustments) == 0 {
		fmt.Fprintf(w, "%s of %s was never adjusted\n", terminal.Printable(h.Policy), ShownKey(h.Key))
		return
	}
	adjustments.write(w, out, &h.Adjustments)
}

// adjustments is a table of changes of a quota.
var adjustments = list[Adjustment]{
	head:    []string{"permits", "remaining", "when", limitWord, "by", "why"},
	numbers: 2,
	row: func(a *Adjustment) []string {
		n := terminal.Number(a.Permits)
		if a.Permits > 0 {
			n = "+" + n
		}
		return []string{n, terminal.Number(a.Remaining), Time(a.Time), a.Limit, a.By, a.Reason}
	},
}
