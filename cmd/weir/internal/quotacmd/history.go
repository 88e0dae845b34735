package quotacmd

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/admin"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/table"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// history is what the server answers.
type history struct {
	Policy      string       `json:"policy"`
	Key         string       `json:"key"`
	Adjustments []adjustment `json:"adjustments"`
}

func historyCommand() *cobra.Command {
	var t target
	last := 20
	cmd := &cobra.Command{
		Use:   "history [flags]",
		Short: "Tell who has adjusted a quota, when and why",
		Long: `history lists the adjustments of a quota, the last one first: when it was, who did
it, how many permits were given back (or taken, with a minus), what remained
afterwards, and why.` + exitStatus,
		Example: `  weir quota history --policy tenant-month --key acme
  weir quota history --policy tenant-month --key acme --last 1000 --json`,
		Args: flags.NoArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := t.query()
			query.Set("limit", strconv.Itoa(last))
			var h admin.Answer[history]
			if err := t.get(cmd.Context(), "/v1/quota/adjustments", query, &h); err != nil {
				return err
			}
			return t.print(cmd.OutOrStdout(), h.JSON, h.Value.write)
		},
	}
	t.register(cmd)
	cmd.Flags().Var(flags.Int(&last, 1, 1000), "last", "how many, from 1 to 1000")
	return cmd
}

func (h *history) write(w io.Writer, out terminal.Output) {
	if len(h.Adjustments) == 0 {
		fmt.Fprintf(w, "%s of %s was never adjusted\n", table.Printable(h.Policy), table.Key(h.Key))
		return
	}
	rows := [][]string{{"permits", "remaining", "when", "limit", "by", "why"}}
	for i := range h.Adjustments {
		a := &h.Adjustments[i]
		n := table.Number(a.Permits)
		if a.Permits > 0 {
			n = "+" + n
		}
		rows = append(rows, []string{
			n, table.Number(a.Remaining), a.Time.UTC().Format("2006-01-02 15:04:05 UTC"), a.Limit, a.By, a.Reason,
		})
	}
	table.Write(w, out, rows, 2)
}
