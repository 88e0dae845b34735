package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

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

With an ID, which a client that is refused finds in the field Weir-Refusal of
the answer, it shows what was refused when: each limit that applied to the
request, with its rule, the key, and the numbers of that moment; then how the
key is now, and how to let it through. A server keeps the last 4096 refusals.

With --policy and --key it tells how a key is now, and its last refusals.

With --request it tells what the server would say to such a request now: which
rules match and which do not, and what each limit has left. It takes nothing.` + ExitStatus,
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
	fs.Var(flags.UTF8(&o.policy, 1, MostKey), "policy", "tell the state of a key of this policy (default: none)")
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
		d, err := o.described()
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, c *Client, w io.Writer) error { return o.explain(ctx, c, w, d) }, nil
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

// whyAnswers are what is printed as JSON.
type whyAnswers struct {
	// Refusal is that with the ID, Key the state of the key now, of the limit that has bound or that was asked for, and
	// Refusals are its last ones.
	Refusal  json.RawMessage `json:"refusal,omitempty"`
	Key      json.RawMessage `json:"key,omitempty"`
	Refusals json.RawMessage `json:"refusals,omitempty"`
}

func (o *whyOptions) printAll(w io.Writer, all *whyAnswers, text func(io.Writer, terminal.Output)) error {
	var b bytes.Buffer
	if err := terminal.PrintJSON(&b, all); err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	return o.print(w, b.Bytes(), text)
}

// refusal tells about a refusal, and how its key is now.
func (o *whyOptions) refusal(ctx context.Context, c *Client, w io.Writer, id string) error {
	var r Answer[Refusal]
	if err := c.Get(ctx, RefusalPath, url.Values{"id": {id}}, &r); err != nil {
		return err
	}
	all := whyAnswers{Refusal: r.JSON}
	var now *Key
	binding := Binding(&r.Value)
	if binding != nil {
		k, err := c.Key(ctx, binding.Policy, binding.Key)
		// The policy may have gone with a reload: then the numbers of then are all there is.
		if refused, ok := errors.AsType[*Refused](err); err != nil && (!ok || refused.Status != http.StatusNotFound) {
			return err
		}
		if err == nil {
			now, all.Key = &k.Value, k.JSON
		}
	}
	return o.printAll(w, &all, func(w io.Writer, out terminal.Output) {
		WriteRefusal(w, out, &r.Value, time.Now())
		switch {
		case now != nil:
			fmt.Fprint(w, "\nnow:\n")
			WriteKey(w, out, now)
			o.advise(w, out, now)
		case binding != nil:
			fmt.Fprint(w, "\nits policy is not in force any more\n")
		}
	})
}

// keyNow tells how a key is now, and its last refusals.
func (o *whyOptions) keyNow(ctx context.Context, c *Client, w io.Writer) error {
	k, err := c.Key(ctx, o.policy, o.key)
	if err != nil {
		return err
	}
	var refusals Answer[Refusals]
	query := ofKey(o.policy, o.key)
	query.Set("n", strconv.Itoa(o.last))
	err = c.Get(ctx, RefusalsPath, query, &refusals)
	if err != nil {
		return err
	}
	var form *Policy
	if Unseen(&k.Value) && len(refusals.Value.Refusals) == 0 {
		if form, err = c.Policy(ctx, o.policy); err != nil {
			return err
		}
	}
	return o.printAll(w, &whyAnswers{Key: k.JSON, Refusals: refusals.JSON}, func(w io.Writer, out terminal.Output) {
		WriteKey(w, out, &k.Value)
		fmt.Fprintln(w)
		if n := len(refusals.Value.Refusals); n > 0 {
			for i := range n {
				WriteRefusal(w, out, &refusals.Value.Refusals[i], time.Now())
			}
			fmt.Fprintln(w)
		}
		last := "no refusal of it is kept"
		if len(refusals.Value.Refusals) > 0 {
			last = fmt.Sprintf("%d of its refusals", len(refusals.Value.Refusals))
		}
		fmt.Fprintf(w, "%s\n", out.Dim(last+refusalsKept(&refusals.Value)))
		if form != nil {
			writeKeyForm(w, form)
		}
		o.advise(w, out, &k.Value)
	})
}

// refusalsKept says since when refusals are kept.
func refusalsKept(r *Refusals) string {
	if r.Oldest.IsZero() {
		return ": the server has refused nothing since it started"
	}
	return ", of those since " + Time(r.Oldest)
}

// advise tells how to let a key through. A lockout goes on through overrides, so it is told of that first.
func (o *whyOptions) advise(w io.Writer, out terminal.Output, k *Key) {
	change := func(action, flags string) string {
		var line strings.Builder
		line.WriteString(shellCommand("weir admin "+action+" --policy %s --key %s"+flags+" --reason ...", k.Policy, k.Key))
		for _, given := range o.server.Given() {
			line.WriteString(" " + given.Flag + " " + shellQuote(given.Value))
		}
		return line.String()
	}
	var lines []string
	if k.LockedFor != 0 {
		lines = append(lines, change("unlock", ""))
	}
	if k.Override == nil || !k.Override.Unlimited {
		lines = append(lines, change("override", " --unlimited --for 10m"))
	}
	if k.Override != nil {
		lines = append(lines, change("restore", ""))
	}
	fmt.Fprint(w, "\nto change that:\n")
	for _, line := range lines {
		fmt.Fprintf(w, "  %s\n", out.Bold(line))
	}
	if k.LockedFor != 0 {
		fmt.Fprintln(w, "only unlock ends a lockout")
	}
}

// described is the request of the flags as a server is told of it: in JSON, so it has no text that is not UTF-8.
func (o *whyOptions) described() (*Described, error) {
	r, err := o.request.Describe()
	if err != nil {
		return nil, err
	}
	d := &Described{
		Protocol: r.Protocol, Method: r.Method, Host: r.Host, Query: r.Query, Route: r.Route,
		Path:       (&url.URL{Path: r.Path, RawPath: r.RawPath}).EscapedPath(),
		Attributes: r.Attributes, Cost: r.Cost,
	}
	if h, ok := r.Header.(http.Header); ok {
		d.Headers = h
	}
	if r.Client.IsValid() {
		d.Client = r.Client.String()
	}
	for _, of := range []struct {
		flag  string
		texts []string
	}{
		{"request", []string{d.Host, d.Query}},
		{"protocol", []string{d.Protocol}},
		{"route", []string{d.Route}},
		{"header", slices.Concat(slices.Collect(maps.Values(d.Headers))...)},
		{"attribute", slices.AppendSeq(slices.Collect(maps.Keys(d.Attributes)), maps.Values(d.Attributes))},
	} {
		if i := slices.IndexFunc(of.texts, func(s string) bool { return !utf8.ValidString(s) }); i >= 0 {
			return nil, flags.BadValue(of.flag, of.texts[i], "must be UTF-8, as the server is asked in JSON")
		}
	}
	return d, nil
}

// explain tells what the server would say to a request.
func (o *whyOptions) explain(ctx context.Context, c *Client, w io.Writer, d *Described) error {
	var e Answer[ExplanationJSON]
	if err := c.Post(ctx, ExplainPath, d, &e); err != nil {
		return err
	}
	return o.print(w, e.JSON, func(w io.Writer, out terminal.Output) {
		from := ""
		if d.Client != "" {
			from = " from " + d.Client
		}
		fmt.Fprintf(w, "%s %s%s%s:\n", d.Method, terminal.Printable(d.Host), d.Path, from)
		WriteExplanation(w, out, &e.Value, "  ", true, time.Now())
	})
}
