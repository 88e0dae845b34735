package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// question is what all commands that ask a server have: which server is asked, about what, and how the answer is printed.
type question struct {
	server Server
	policy string
	key    string
	last   int
	asJSON bool
	args   []string
	// aKey tells that the question is about one key, and changes that it changes something.
	aKey, changes bool
}

// command makes a command that asks. Its arguments are those named.
func (q *question) command(cmd *cobra.Command, ask asking, arguments ...string) *cobra.Command {
	cmd.Use = strings.Join(append([]string{cmd.Use}, append(arguments, "[flags]")...), " ")
	if !strings.HasSuffix(cmd.Long, quotaExitStatus) {
		cmd.Long += ExitStatus
	}
	cmd.Args, cmd.ValidArgsFunction = flags.NoArguments, cobra.NoFileCompletions
	if len(arguments) > 0 {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) != len(arguments) {
				return flags.Errorf("%s needs %s, not %s", cmd.Name(), strings.Join(arguments, " and "),
					terminal.Plural(len(args), "argument", "arguments"))
			}
			return nil
		}
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q.args = args
		if q.server.Several() {
			return q.each(cmd, ask)
		}
		return q.ask(func(c *Client) error { return q.one(cmd, c, ask, cmd.OutOrStdout()) })
	}
	cmd.Flags().SortFlags = false
	return cmd
}

// look makes a command that asks for a page, with what the flags say, and prints it by text. more adds flags.
func look[T any](cmd *cobra.Command, path string, text func(io.Writer, terminal.Output, *T),
	more ...func(*question, *cobra.Command),
) *cobra.Command {
	q := &question{}
	cmd = q.command(cmd, func(ctx context.Context, c *Client, w io.Writer) error {
		return get(ctx, c, w, q, path, q.query(), text)
	})
	for _, add := range more {
		add(q, cmd)
	}
	q.serverFlags(cmd)
	return cmd
}

// query is what the flags say.
func (q *question) query() url.Values {
	query := url.Values{}
	for name, value := range map[string]string{policyWord: q.policy, keyWord: q.key} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if q.last > 0 {
		query.Set("n", strconv.Itoa(q.last))
	}
	return query
}

// ask asks the server.
func (q *question) ask(ask func(c *Client) error) error {
	client, err := q.server.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	return WrongQuestion(ask(client))
}

// changeFlags is serverFlags of a command that changes something, in one server or in several.
func (q *question) changeFlags(cmd *cobra.Command) {
	q.moreFlags(cmd, q.server.RegisterSeveral)
	q.changes = true
	cmd.Long = strings.TrimSuffix(cmd.Long, ExitStatus) + severalServers + ExitStatus
}

// serverFlags adds the flags that all commands end with.
func (q *question) serverFlags(cmd *cobra.Command) { q.moreFlags(cmd, q.server.Register) }

func (q *question) moreFlags(cmd *cobra.Command, register func(*pflag.FlagSet)) {
	register(cmd.Flags())
	cmd.Flags().BoolVar(&q.asJSON, "json", false, "print the JSON that the server answers")
	if cmd.Flags().Lookup("policy") != nil {
		q.server.CompletePolicies(cmd)
	}
}

// somePolicy adds --policy, which may be left out.
func (q *question) somePolicy(cmd *cobra.Command) {
	cmd.Flags().Var(flags.UTF8(&q.policy, 1, MostKey), "policy", "only those of this policy (default: all)")
}

// thePolicy adds --policy, which must be given.
func (q *question) thePolicy(cmd *cobra.Command) {
	cmd.Flags().Var(flags.UTF8(&q.policy, 1, MostKey), "policy", "the name of the policy (default: none, it is required)")
	_ = cmd.MarkFlagRequired("policy") // there is such a flag
}

// theKey adds --policy, which must be given, and --key.
func (q *question) theKey(cmd *cobra.Command) {
	q.thePolicy(cmd)
	q.aKey = true
	cmd.Flags().Var(keyFlag(&q.key, 0), "key", `the key (default "": that of a policy without keys)`)
}

// keyless is what is wrong with leaving out --key, nil if the policy has no keys. Whatever else is wrong is told by the answer
// to the question itself.
func (q *question) keyless(ctx context.Context, c *Client) error {
	p, err := c.Policy(ctx, q.policy)
	if err != nil || p == nil || p.Key == "" {
		return nil //nolint:nilerr // see above
	}
	return flags.Errorf("needs --key: keys of policy %s are %s, written as \"weir admin keys\" shows them",
		terminal.Printable(p.Name), terminal.Printable(p.Key))
}

// some adds --last.
func some(number, most int) func(*question, *cobra.Command) {
	return func(q *question, cmd *cobra.Command) {
		q.last = number
		cmd.Flags().Var(flags.Int(&q.last, 1, most), "last", fmt.Sprintf("how many, from 1 to %d", most))
	}
}

// get asks the server, and prints the answer.
func get[T any](ctx context.Context, c *Client, w io.Writer, q *question, path string, query url.Values,
	text func(w io.Writer, out terminal.Output, v *T),
) error {
	var a Answer[T]
	if err := c.Get(ctx, path, query, &a); err != nil {
		return err
	}
	return q.print(w, a.JSON, func(w io.Writer, out terminal.Output) { text(w, out, &a.Value) })
}

func (q *question) print(w io.Writer, answer json.RawMessage, text func(io.Writer, terminal.Output)) error {
	return printAnswer(w, q.asJSON, answer, text)
}

// severalServers is the part of the help of changes that tells of replicas.
const severalServers = `

Each server changes what it has itself. With --server once for each replica the
change is made in one after the other, and what became of it is told of each;
one that fails does not keep it from the others, and the exit status is then
not 0.`

// one asks a server.
func (q *question) one(cmd *cobra.Command, c *Client, ask asking, w io.Writer) error {
	if q.aKey && !cmd.Flags().Changed("key") {
		if err := q.keyless(cmd.Context(), c); err != nil {
			return err
		}
	}
	return ask(cmd.Context(), c, w)
}

// asking asks a server, and writes its answer.
type asking func(ctx context.Context, c *Client, w io.Writer) error

// each asks all servers, one after the other. If none of them takes the question, the error is what the first says to it.
func (q *question) each(cmd *cobra.Command, ask asking) error {
	clients, err := q.server.Clients()
	if err != nil {
		return err
	}
	var failed []string
	var first error
	for _, c := range clients {
		var b bytes.Buffer
		err := WrongQuestion(q.one(cmd, c, ask, &b))
		c.Close()
		if err != nil {
			failed = append(failed, c.Server())
			if first == nil {
				first = err
			}
		}
		if unwritten := q.tell(cmd.OutOrStdout(), c.Server(), b.Bytes(), err); unwritten != nil {
			return unwritten
		}
	}
	switch {
	case len(failed) == 0:
		return nil
	case len(failed) == len(clients) && isMisuse(first):
		return first
	}
	what := "replied"
	if q.changes {
		what = "confirmed the change"
	}
	return fmt.Errorf("weir: %d of %d servers have not %s: %s", len(failed), len(clients), what, strings.Join(failed, ", "))
}

func isMisuse(err error) bool {
	_, wrong := errors.AsType[*flags.Error](err)
	_, input := errors.AsType[*flags.InputError](err)
	return wrong || input
}

// tell tells what became of it in one of several servers: a line of text, or a JSON object in a line.
func (q *question) tell(w io.Writer, server string, answer []byte, failed error) error {
	var b bytes.Buffer
	wrong := ""
	if failed != nil {
		wrong = strings.TrimPrefix(failed.Error(), "weir: ")
	}
	switch {
	case q.asJSON:
		line, err := json.Marshal(struct {
			Server string          `json:"server"`
			Answer json.RawMessage `json:"answer,omitempty"`
			Error  string          `json:"error,omitempty"`
		}{server, bytes.TrimSpace(answer), wrong})
		if err != nil { // an answer of a server that is no JSON
			return fmt.Errorf("weir: %w", err)
		}
		b.Write(append(terminal.PrintableJSON(line), '\n'))
	case failed != nil:
		fmt.Fprintf(&b, "%s: FAILED: %s\n", server, terminal.Printable(wrong))
	default:
		for line := range strings.Lines(string(answer)) {
			fmt.Fprintf(&b, "%s: %s", server, line)
		}
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	return nil
}
