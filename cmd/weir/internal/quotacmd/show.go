package quotacmd

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/admin"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/table"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// quota is what the server answers.
type quota struct {
	Policy string  `json:"policy"`
	Key    string  `json:"key"`
	Limits []limit `json:"limits"`
}

type limit struct {
	Limit     string     `json:"limit"`
	Rule      string     `json:"rule"`
	Permits   int64      `json:"permits"`
	Used      int64      `json:"used"`
	Reserved  int64      `json:"reserved"`
	Remaining int64      `json:"remaining"`
	ResetsAt  *time.Time `json:"resets_at"`
}

func showCommand() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "show [flags]",
		Short: "Show what remains of a quota",
		Long: `show tells of each limit of a policy what was used, what is reserved for requests
that are not settled, what is left, and when all of it is back. It takes nothing.` + exitStatus,
		Example: `  weir quota show --policy tenant-month --key acme
  weir quota show --policy tenant/month --key acme --json | jq '.limits[0].remaining'
  weir quota show --policy upstream --server https://weir.example.com --token-file token`,
		Args: flags.NoArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var q admin.Answer[quota]
			if err := t.get(cmd.Context(), "/v1/quota", t.query(), &q); err != nil {
				return err
			}
			return t.print(cmd.OutOrStdout(), q.JSON, q.Value.write)
		},
	}
	t.register(cmd)
	return cmd
}

func (q *quota) write(w io.Writer, out terminal.Output) {
	fmt.Fprintf(w, "policy  %s\nkey     %s\n\n", table.Printable(q.Policy), table.Key(q.Key))
	rows := make([][]string, 1, 1+len(q.Limits))
	rows[0] = []string{"used", "reserved", "remaining", "of", "resets", "limit"}
	for i := range q.Limits {
		l := &q.Limits[i]
		resets := "-"
		if l.ResetsAt != nil {
			resets = l.ResetsAt.UTC().Format("2006-01-02 15:04:05 UTC")
		}
		rows = append(rows, []string{
			table.Number(l.Used), table.Number(l.Reserved), table.Number(l.Remaining), table.Number(l.Permits), resets,
			l.Limit + " (" + l.Rule + ")",
		})
	}
	const numbers = 4
	table.Write(w, out, rows, numbers)
}
