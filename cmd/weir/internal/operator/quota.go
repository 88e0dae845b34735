package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// QuotaCommand returns the command "quota".
func QuotaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quota",
		Short: "Look at quotas that outlive crashes, and adjust them",
		Long: `quota asks a running weir serve about policies that survive a crash: those with
calendar windows of a day and longer, which it keeps in a file, and those of
durability cluster. It shows what is left of a quota, such as a month's tokens
of a tenant, gives permits back or takes them, and shows who did that before,
and why. Any node of a cluster can be asked.`,
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

The exit status is 0 on success, 1 if the server cannot be reached or no node
owns the limits now, and 2 if the question is wrong, such as a policy that is
not there.`

// quotaFlags adds the flags of a question about a quota.
func (q *question) quotaFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.Var(flags.UTF8(&q.policy, 1, MostKey), "policy",
		"policy that survives a crash; of several limits one is policy/limit (default: none, it is required)")
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

// Quota is what is left of a quota.
type Quota struct {
	Policy string       `json:"policy"`
	Key    string       `json:"key"`
	Limits []QuotaLimit `json:"limits"`
}

// QuotaLimit is a limit of a quota.
type QuotaLimit struct {
	Limit string `json:"limit"` // policy/limit
	Rule  string `json:"rule"`
	// Permits is how many there are in all; Used, Reserved and Remaining add up to it.
	Permits   int64 `json:"permits"`
	Used      int64 `json:"used"`
	Reserved  int64 `json:"reserved"`
	Remaining int64 `json:"remaining"`
	// ResetAfter is in seconds, ResetsAt when that is; null if nothing has to come back.
	ResetAfter json.RawMessage `json:"reset_after"`
	ResetsAt   *time.Time      `json:"resets_at"`
}

// Adjustment is a change of a quota.
type Adjustment struct {
	Time      time.Time `json:"time"`
	Limit     string    `json:"limit"`
	Key       string    `json:"key"`
	Permits   int64     `json:"permits"`
	Remaining int64     `json:"remaining"`
	By        string    `json:"by"`
	Reason    string    `json:"reason"`
}

// QuotaHistory are the adjustments of a quota, the last first.
type QuotaHistory struct {
	Policy      string       `json:"policy"`
	Key         string       `json:"key"`
	Adjustments []Adjustment `json:"adjustments"`
}

func showCommand() *cobra.Command {
	q := &question{}
	cmd := q.command(&cobra.Command{
		Use:   "show",
		Short: "Show what remains of a quota",
		Long: `show tells of each limit of a policy what was used, what is reserved for
requests that are not settled, what is left, and when all of it is back. It
takes nothing.` + quotaExitStatus,
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

const (
	mostPermits = 1_000_000_000_000_000
	mostSign    = 256 // bytes of who adjusts a quota, and of why
)

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
		Long: `adjust gives permits of a key back, at most until all are there, or takes them
if the number is negative, whether they are there or not, up to as many as the
limit has. It is durable, with who did it and why, when the command has ended
with 0. If no answer comes in time it is not known whether it was done: see
"weir quota history".` + quotaExitStatus,
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
			if n < 0 {
				did = "taken from"
			}
			fmt.Fprintf(w, "%s %s %s of %s: %s\n", terminal.Plural(max(a.Permits, -a.Permits), "permit", "permits"), did,
				terminal.Printable(a.Limit), ShownKey(q.key), terminal.Plural(a.Remaining, "remains", "remain"))
			switch {
			case a.Permits == n:
			case n > 0:
				fmt.Fprintln(w, "no more were missing")
			default:
				fmt.Fprintln(w, "no more can be owed")
			}
		})
	}))
	q.quotaFlags(cmd)
	fs := cmd.Flags()
	fs.Var(permits(&n), "permits", "how many to give back or, with a minus, to take (default: none, it is required)")
	fs.Var(flags.Printed(&reason, 1, mostSign), "reason", "why, in at most 256 bytes (default: none, it is required)")
	fs.Var(flags.Printed(&by, 1, mostSign), "by", "who does it, in at most 256 bytes (default: the name of the user)")
	_ = cmd.MarkFlagRequired("permits") // there are such flags
	_ = cmd.MarkFlagRequired("reason")
	return cmd
}

// whoami is the name of the user, or the number.
func whoami() string {
	u, err := user.Current()
	if err != nil || u.Username == "" {
		return "unknown"
	}
	return u.Username
}

func historyCommand() *cobra.Command {
	q := &question{}
	cmd := q.command(&cobra.Command{
		Use:   "history",
		Short: "Tell who has adjusted a quota, when and why",
		Long: `history lists the adjustments of a quota, the last one first: when it was, who
did it, how many permits were given back (or taken, with a minus), what
remained afterwards, and why.` + quotaExitStatus,
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
	head:    []string{"permits", "remaining", whenHead, limitWord, "by", "why"},
	numbers: 2,
	row: func(a *Adjustment) []string {
		n := terminal.Number(a.Permits)
		if a.Permits > 0 {
			n = "+" + n
		}
		return []string{n, terminal.Number(a.Remaining), Time(a.Time), a.Limit, a.By, a.Reason}
	},
}
