package quotacmd

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/misuse"
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
		Short: "Tell what is left of a quota",
		Long: `show tells of each limit of a policy what was used, what is reserved for requests
that are not settled, what is left, and when all of it is back. It takes nothing.` + exitStatus,
		Example: `  weir quota show --policy tenant-month --key acme
  weir quota show --policy tenant/month --key acme --json | jq '.limits[0].remaining'
  weir quota show --policy upstream --server https://weir.example.com --token-file token`,
		Args: misuse.NoArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var q quota
			answer, err := t.ask(cmd.Context(), http.MethodGet, "/v1/quota?"+t.query().Encode(), nil, &q)
			if err != nil {
				return err
			}
			return t.print(cmd.OutOrStdout(), answer, func(w io.Writer) { q.print(w) })
		},
	}
	t.register(cmd)
	return cmd
}

// print prints what the server has answered.
func (t *target) print(w io.Writer, answer []byte, table func(io.Writer)) error {
	out := &sticky{w: w}
	if t.asJSON {
		_, _ = out.Write(answer)
	} else {
		table(out)
	}
	if out.err != nil {
		return fmt.Errorf("weir: %w", out.err)
	}
	return nil
}

// sticky remembers that something could not be written.
type sticky struct {
	w   io.Writer
	err error
}

// Write implements [io.Writer].
func (s *sticky) Write(p []byte) (int, error) {
	if s.err == nil {
		_, s.err = s.w.Write(p)
	}
	return len(p), nil
}

func (q *quota) print(w io.Writer) {
	fmt.Fprintf(w, "policy  %s\nkey     %s\n\n", printable(q.Policy), keyText(q.Key))
	rows := make([][]string, 1, 1+len(q.Limits))
	rows[0] = []string{"used", "reserved", "remaining", "of", "resets", "limit"}
	for i := range q.Limits {
		l := &q.Limits[i]
		resets := "-"
		if l.ResetsAt != nil {
			resets = l.ResetsAt.UTC().Format("2006-01-02 15:04:05 UTC")
		}
		rows = append(rows, []string{
			number(l.Used), number(l.Reserved), number(l.Remaining), number(l.Permits), resets, l.Limit + " (" + l.Rule + ")",
		})
	}
	const numbers = 4
	table(w, rows, numbers)
}
