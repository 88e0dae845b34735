package operator

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// quotaHistory is what the server sends.
type quotaHistory struct {
	Policy      string       `json:"policy"`
	Key         string       `json:"key"`
	Adjustments []adjustment `json:"adjustments"`
}

func historyCommand() *cobra.Command {
	var q question
	last := 20
	cmd := &cobra.Command{
		Use:   "history [flags]",
		Short: "Tell who has adjusted a quota, when and why",
		Long: `history lists the adjustments of a quota, the last one first: when it was, who did
it, how many permits were given back (or taken, with a minus), what remained
afterwards, and why.` + quotaExitStatus,
		Example: `  weir quota history --policy tenant-month --key acme
  weir quota history --policy tenant-month --key acme --last 1000 --json`,
		Args: flags.NoArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := ofKey(q.policy, q.key)
			query.Set("limit", strconv.Itoa(last))
			var h Answer[quotaHistory]
			err := q.askQuota(func(c *Client) error { return c.Get(cmd.Context(), "/v1/quota/adjustments", query, &h) })
			if err != nil {
				return err
			}
			return q.print(cmd.OutOrStdout(), h.JSON, h.Value.write)
		},
	}
	q.quotaFlags(cmd)
	cmd.Flags().Var(flags.Int(&last, 1, 1000), "last", "how many, from 1 to 1000")
	return cmd
}

func (h *quotaHistory) write(w io.Writer, out terminal.Output) {
	if len(h.Adjustments) == 0 {
		fmt.Fprintf(w, "%s of %s was never adjusted\n", terminal.Printable(h.Policy), ShownKey(h.Key))
		return
	}
	rows := [][]string{{"permits", "remaining", "when", limitWord, "by", "why"}}
	for i := range h.Adjustments {
		a := &h.Adjustments[i]
		n := terminal.Number(a.Permits)
		if a.Permits > 0 {
			n = "+" + n
		}
		rows = append(rows, []string{
			n, terminal.Number(a.Remaining), Time(a.Time), a.Limit, a.By, a.Reason,
		})
	}
	WriteTable(w, out, rows, 2)
}
