package operator

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

const mostLast = 4096

// whyOptions are the flags of the command.
type whyOptions struct {
	question

	request flags.Request
}

// WhyCommand returns the command "why".
func WhyCommand() *cobra.Command {
	o := whyOptions{question: question{last: 5}}
	cmd := &cobra.Command{
		Use:   "why [flags] [ID]",
		Short: "Tell why a request was refused",
		Long: `why asks a running weir serve why a request was refused, or would be.

With an ID, which a client that is refused finds in the field Weir-Refusal of the
answer, it tells what was refused when: each limit that held for the request, with
the rule that applied it, the key, and the numbers of that moment; then how the key
is now, and how to let it through. A server keeps the last 4096 refusals.

With --policy and --key it tells how a key is now, and its last refusals.

With --request it tells what the server would say to such a request now: which rules
match and which do not, and what each limit has left. It takes nothing.` + ExitStatus,
		Example: `  weir why 1a2b3c4d5e6f7081
  weir why --policy login --key 192.0.2.1
  weir why --request 'POST /login' --client 192.0.2.1
  weir why --request 'GET /v1/items' -H 'X-Api-Key: abc' --server https://weir.example.com --token-file token`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			ask, err := o.asked(cmd, args)
			if err != nil {
				return err
			}
			return o.ask(func(c *Client) error { return ask(cmd.Context(), c, cmd.OutOrStdout()) })
		},
	}
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return flags.Errorf("why needs one ID, not %d", len(args))
		}
		return nil
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.Var(flags.Text(&o.policy, 1, MostKey), "policy", "tell the state of a key of this policy (default: none)")
	fs.Var(keyFlag(&o.key, 0), "key", `the key, with --policy (default "": that of a policy without keys)`)
	fs.Var(flags.Int(&o.last, 1, mostLast), "last", "with --policy, how many of the last refusals, from 1 to 4096")
	o.request.Register(fs)
	o.server.Register(fs)
	fs.BoolVar(&o.asJSON, "json", false, "print one JSON object")
	o.server.CompletePolicies(cmd)
	return cmd
}

// asked is what is asked.
func (o *whyOptions) asked(cmd *cobra.Command, args []string) (asking, error) {
	ways := 0
	for _, given := range []bool{len(args) > 0, o.policy != "", o.request.Line() != ""} {
		if given {
			ways++
		}
	}
	if ways > 1 {
		return nil, flags.Errorf("an ID, --policy and --request cannot be combined")
	}
	if o.policy == "" {
		if err := flags.Alone(cmd.Flags(), "needs --policy", keyWord, "last"); err != nil {
			return nil, err
		}
	}
	if o.request.Line() == "" {
		if err := flags.Alone(cmd.Flags(), "needs --request", flags.RequestNames()...); err != nil {
			return nil, err
		}
	}
	switch {
	case len(args) > 0 && !isID(args[0]):
		return nil, flags.Errorf("id %s: must be the 16 hexadecimal digits of the field Weir-Refusal; "+
			"%s shows what is known of a client", flags.Quote(args[0]), flags.Quote(shellCommand("weir admin key %s", args[0])))
	case len(args) > 0:
		return func(ctx context.Context, c *Client, w io.Writer) error { return o.refusal(ctx, c, w, args[0]) }, nil
	case o.policy != "":
		return o.keyNow, nil
	case o.request.Line() != "":
		r, err := o.request.Describe()
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, c *Client, w io.Writer) error { return o.explain(ctx, c, w, r) }, nil
	default:
		return nil, flags.Errorf("why needs an ID, such as that of a field Weir-Refusal, or --policy, or --request")
	}
}

// isID reports whether a text is an ID of a refusal.
func isID(text string) bool {
	_, ok := answer.ParseRefusal(text)
	return ok
}

// shellCommand is a command that can be copied into a shell.
func shellCommand(format string, args ...string) string {
	quoted := make([]any, len(args))
	for i, a := range args {
		quoted[i] = shellQuote(a)
	}
	return fmt.Sprintf(format, quoted...)
}

// shellSafe are the bytes that no shell treats in any other way than as themselves.
const shellSafe = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./:,@%+="

// shellQuote is s as a word for a shell of POSIX. What does not print is replaced, so that it cannot move the cursor: then the
// command will not find the key, which does no harm.
func shellQuote(s string) string {
	s = terminal.Printable(s)
	if s != "" && strings.Trim(s, shellSafe) == "" && s[0] != '-' && s[0] != '=' {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
