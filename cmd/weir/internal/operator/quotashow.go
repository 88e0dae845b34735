package operator

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// quota is what the server answers.
type quota struct {
	Policy string       `json:"policy"`
	Key    string       `json:"key"`
	Limits []quotaLimit `json:"limits"`
}

type quotaLimit struct {
	Limit     string     `json:"limit"`
	Rule      string     `json:"rule"`
	Permits   int64      `json:"permits"`
	Used      int64      `json:"used"`
	Reserved  int64      `json:"reserved"`
	Remaining int64      `json:"remaining"`
	ResetsAt  *time.Time `json:"resets_at"`
}

func showCommand() *cobra.Command {
	var q question
	cmd := &cobra.Command{
		Use:   "show [flags]",
		Short: "Show what remains of a quota",
		Long: `show tells of each limit of a policy what was used, what is reserved for requests
that are not settled, what is left, and when all of it is back. It takes nothing.` + quotaExitStatus,
		Example: `  weir quota show --policy tenant-month --key acme
  weir quota show --policy tenant/month --key acme --json | jq '.limits[0].remaining'
  weir quota show --policy upstream --server https://weir.example.com --token-file token`,
		Args: flags.NoArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var a Answer[quota]
			err := q.askQuota(func(c *Client) error { return c.Get(cmd.Context(), "/v1/quota", ofKey(q.policy, q.key), &a) })
			if err != nil {
				return err
			}
			return q.print(cmd.OutOrStdout(), a.JSON, a.Value.write)
		},
	}
	q.quotaFlags(cmd)
	return cmd
}

func (q *quota) write(w io.Writer, out terminal.Output) {
	fmt.Fprintf(w, "policy  %s\nkey     %s\n\n", terminal.Printable(q.Policy), ShownKey(q.Key))
	rows := make([][]string, 1, 1+len(q.Limits))
	rows[0] = []string{"used", "reserved", "remaining", "of", "resets", limitWord}
	for i := range q.Limits {
		l := &q.Limits[i]
		resets := "-"
		if l.ResetsAt != nil {
			resets = Time(*l.ResetsAt)
		}
		rows = append(rows, []string{
			terminal.Number(l.Used), terminal.Number(l.Reserved), terminal.Number(l.Remaining),
			terminal.Number(l.Permits), resets,
			l.Limit + " (" + l.Rule + ")",
		})
	}
	const numbers = 4
	WriteTable(w, out, rows, numbers)
}
