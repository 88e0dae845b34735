package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/user"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

const mostPermits = 1_000_000_000_000_000

// permits returns a flag value that is how many permits are given or taken, 0 if it is not given.
func permits(p *int64) *flags.Value {
	return flags.Of("n", p, flags.Unset, func(s string) (int64, error) {
		n, err := strconv.ParseInt(strings.ReplaceAll(strings.TrimPrefix(s, "+"), "_", ""), 10, 64)
		if err != nil || n == 0 || n > mostPermits || n < -mostPermits {
			return 0, errors.New("must be a whole number other than 0, from -10^15 to 10^15")
		}
		return n, nil
	})
}

func adjustCommand() *cobra.Command {
	var (
		q          = &question{}
		n          int64
		by, reason string
	)
	cmd := q.command(&cobra.Command{
		Use:   "adjust",
		Short: "Give permits of a quota back, or take them",
		Long: `adjust gives permits of a key back, at most until all are there, or takes them if
the number is negative, whether they are there or not, up to as many as the limit
has. It is durable, with who did it and why, when the command has ended with 0. If
no answer comes in time it is not known whether it was done: see "weir quota
history".` + quotaExitStatus,
		Example: `  weir quota adjust --policy tenant-month --key acme --permits 5000 --reason 'refund of order 17'
  weir quota adjust --policy tenant/month --key acme --permits -200 --by billing --reason 'charged late'`,
	}, ofQuota(func(ctx context.Context, c *Client, w io.Writer) error {
		if by == "" {
			by = whoami()
		}
		var answer Answer[Adjustment]
		err := c.Post(ctx, "/v1/quota/adjust", map[string]any{
			policyWord: q.policy, keyWord: q.key, "permits": n, "by": by, "reason": reason,
		}, &answer)
		if err != nil {
			return err
		}
		return q.print(w, answer.JSON, func(w io.Writer, _ terminal.Output) {
			a := &answer.Value
			did := "given back to"
			if a.Permits < 0 {
				did = "taken from"
			}
			fmt.Fprintf(w, "%s permits %s %s of %s: %s remain\n", terminal.Number(max(a.Permits, -a.Permits)), did,
				terminal.Printable(a.Limit), ShownKey(q.key), terminal.Number(a.Remaining))
		})
	}))
	q.quotaFlags(cmd)
	fs := cmd.Flags()
	fs.Var(permits(&n), "permits", "how many to give back or, with a minus, to take (default: none, it is required)")
	fs.Var(flags.AnyText(&reason), "reason", "why, in at most 256 bytes (default: none, it is required)")
	fs.Var(flags.AnyText(&by), "by", "who does it, in at most 256 bytes (default: the name of the user)")
	_ = cmd.MarkFlagRequired("permits") // there are such flags
	_ = cmd.MarkFlagRequired("reason")
	return cmd
}

// whoami is the name of the user, or his number.
func whoami() string {
	u, err := user.Current()
	if err != nil || u.Username == "" {
		return "unknown"
	}
	return u.Username
}
