package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/internal/inwords"
)

// reasonFlag adds --reason.
func reasonFlag(cmd *cobra.Command, reason *string, required bool) {
	usage := "why, for the audit log, in at most 1024 bytes (default: none, it is required)"
	if !required {
		usage = "why, for the audit log, in at most 1024 bytes (default: none)"
	}
	cmd.Flags().Var(flags.Printed(reason, 1, MostReason), "reason", usage)
	if required {
		_ = cmd.MarkFlagRequired("reason") // there is such a flag
	}
}

// keyChange makes a command that changes something of a key.
func keyChange(cmd *cobra.Command, path, done, nothing string) *cobra.Command {
	q := &question{}
	reason := ""
	cmd = q.command(cmd, func(ctx context.Context, c *Client, w io.Writer) error {
		a, k, err := q.change(ctx, c, path, Change{Policy: q.policy, Key: q.key, Reason: reason})
		if err != nil {
			return err
		}
		return q.print(w, a.JSON, func(w io.Writer, _ terminal.Output) {
			form := nothing
			if a.Value.Changed {
				form = done
			}
			fmt.Fprintf(w, form+"\n", ShownKey(q.key), terminal.Printable(q.policy))
			k.write(w, path)
		})
	})
	q.theKey(cmd)
	reasonFlag(cmd, &reason, true)
	q.changeFlags(cmd)
	return cmd
}

func unlockCommand() *cobra.Command {
	return keyChange(&cobra.Command{
		Use:   "unlock",
		Short: "Let in a key that is locked out",
		Long: `unlock ends the lockout of a key, and forgets the refusals that led to it. What
the key has used of its limits stays used: "weir admin reset" forgets that.`,
		Example: `  weir admin unlock --policy login --key 192.0.2.1 --reason 'mistyped a password'
  weir admin unlock --policy login --key bob --reason call --server http://a:7070 --server http://b:7070
  weir admin lockouts --json | jq -r '.[].key'`,
	}, UnlockPath, "%s of %s is let in again", "%s of %s was not locked out")
}

func resetCommand() *cobra.Command {
	return keyChange(&cobra.Command{
		Use:   "reset",
		Short: "Forget what a key has used",
		Long: `reset forgets what a key has used of the limits of a policy, so that all of it
is available again. A lockout goes on: "weir admin unlock" ends it.`,
		Example: `  weir admin reset --policy per-client --key 192.0.2.1 --reason 'a test of ours'
  weir admin reset --policy tenant --key acme --reason 'ticket 1207' --json`,
	}, ResetPath, "%s of %s has all of its limits again", "%s of %s had used nothing")
}

func restoreCommand() *cobra.Command {
	return keyChange(&cobra.Command{
		Use:   "restore",
		Short: "Give a key the limits of the policy again",
		Long: `restore ends what "weir admin override" has begun: the limits of the policy
apply to the key again.`,
		Example: `  weir admin restore --policy api --key acme --reason 'launch is over'
  weir admin overrides`,
	}, RestorePath, "%s of %s has the limits of the policy again", "%s of %s was not overridden")
}

func reloadCommand() *cobra.Command {
	q := &question{}
	reason := ""
	cmd := q.command(&cobra.Command{
		Use:   "reload",
		Short: "Make the server read its configuration again",
		Long: `reload makes the server read its configuration again, as SIGHUP does. If it has
mistakes they are told, and the one before stays in force.`,
		Example: `  weir admin reload
  weir admin reload --reason 'new limits for acme' --json`,
	}, func(ctx context.Context, c *Client, w io.Writer) error {
		var a Answer[Changed]
		if err := c.Post(ctx, ReloadPath, Change{Reason: reason}, &a); err != nil {
			return err
		}
		return q.print(w, a.JSON, func(w io.Writer, _ terminal.Output) {
			if a.Value.Changed || a.Value.Changes > 0 {
				fmt.Fprintf(w, "version %d is in force, with %s\n", a.Value.Version,
					terminal.Plural(a.Value.Changes, "change", "changes"))
				return
			}
			fmt.Fprintf(w, "version %d is in force, nothing has changed\n", a.Value.Version)
		})
	})
	reasonFlag(cmd, &reason, false)
	q.changeFlags(cmd)
	return cmd
}

// limitFlags returns a flag value that may be repeated: limits by their names.
func limitFlags(limits map[string]string) *flags.Value {
	show := func(all map[string]string) string { return OverrideText(&Override{Limits: all}) }
	return flags.Of("'limit'", &limits, show, func(s string) (map[string]string, error) {
		name, limit, named := strings.Cut(s, "=")
		if !named {
			name, limit = "", s
		}
		name, limit = strings.TrimSpace(name), strings.TrimSpace(limit)
		if limit == "" {
			return nil, flags.Errorf("must be a limit such as '100/s, burst 200', or NAME=100/s")
		}
		if _, twice := limits[name]; twice && name == "" {
			return nil, errors.New("the limit is given twice: must be given once, or as NAME=100/s for each")
		} else if twice {
			return nil, flags.Errorf("limit %s is given twice: must be given once", flags.Quote(name))
		}
		if err := limitMistake(limit); err != nil {
			return nil, err
		}
		limits[name] = limit
		return limits, nil
	})
}

// limitMistake is what is wrong with a limit whatever it takes the place of, nil if some limit can be overridden by it.
func limitMistake(text string) error {
	algorithms := []weir.Algorithm{weir.AlgorithmFixedWindow, weir.AlgorithmSlidingWindow, weir.AlgorithmSlidingCounter}
	_, err := weir.ParseLimit(text)
	for _, a := range algorithms {
		if err == nil {
			return nil
		}
		if _, failed := weir.ParseLimit(a.String() + " " + text); failed == nil {
			return nil
		}
	}
	if text == Unlimited {
		return flags.Errorf("must be a limit; did you mean \"--unlimited\"?")
	}
	if n, number := strconv.ParseInt(text, 10, 64); number == nil {
		err = weir.AtOnce(n).Check()
		if err == nil {
			return nil
		}
	}
	rate, _, _ := strings.Cut(text, ",")
	for _, a := range algorithms {
		rate = strings.TrimPrefix(rate, a.String()+" ")
	}
	if strings.Contains(rate, "/") || config.RateMeant(rate) != "" {
		if wrong := flags.RateMistake(strings.TrimSpace(rate)); wrong != nil {
			return wrong
		}
	}
	if wrong, ok := errors.AsType[*weir.OptionError](err); ok {
		return flags.Errorf("must be %s", wrong.Accepted)
	}
	return flags.Errorf("must be a limit such as '100/s, burst 200', 100/min, or a number of permits such as 100")
}

func overrideCommand() *cobra.Command {
	q := &question{}
	o := Override{Limits: map[string]string{}}
	during := time.Hour
	cmd := q.command(&cobra.Command{
		Use:   "override",
		Short: "Give a key another limit for a while",
		Long: `override gives one key other limits for a while, instead of those of the policy:
higher ones for a customer, or lower ones for a client that does harm. What the
key has used stays used. It takes the place of an override that there is, and
ends by itself. It applies in the servers that are asked, also where the policy
is shared: others go on as before.

A limit is a rate, or a rate and a burst; one that has no rate is a number.
Where a policy has several limits they are told apart by their names, and those
that are not given stay as they are, but of a policy with tiers all must be
given, unless the key has limits of its own. A lockout goes on:
"weir admin unlock" ends it.`,
		Example: `  weir admin override --policy api --key acme --limit '100/s, burst 200' --for 1d --reason 'launch day'
  weir admin override --policy api --key acme --unlimited --for 10m --reason 'incident 17'
  weir admin override --policy login --key 192.0.2.1 --limit 1m=1/min --limit 1h=9/h --reason 'guesses'`,
	}, func(ctx context.Context, c *Client, w io.Writer) error {
		if o.Unlimited == (len(o.Limits) > 0) {
			return flags.Errorf("override needs --limit or --unlimited, and not both")
		}
		o.Policy, o.Key, o.For = q.policy, q.key, during.Seconds()
		a, k, err := q.change(ctx, c, OverridePath, &o)
		if err != nil {
			return unnamed(ctx, c, &o, err)
		}
		return q.print(w, a.JSON, func(w io.Writer, _ terminal.Output) {
			where := ""
			if a.Value.Replicas == ThisReplica && !q.server.Several() {
				where = ", in this server only"
			}
			fmt.Fprintf(w, "%s of %s: %s for %s%s\n", ShownKey(o.Key), terminal.Printable(o.Policy), OverrideText(&o),
				inwords.Short(during), where)
			k.write(w, OverridePath)
		})
	})
	q.theKey(cmd)
	cmd.Flags().Var(limitFlags(o.Limits), "limit",
		"the limit instead, such as '100/s, burst 200'; NAME=100/s where there are several (default: none)")
	cmd.Flags().BoolVar(&o.Unlimited, "unlimited", false, "let the key pass whatever it asks for")
	cmd.Flags().Var(flags.Duration(&during, ShortestOverride, LongestOverride), "for",
		"for how long, such as 2h or 1d, from 1s to 3660d")
	reasonFlag(cmd, &o.Reason, true)
	q.changeFlags(cmd)
	return cmd
}

// outcome is how a key is after a change. An operator makes one to let a client in, and sees here what still refuses it.
type outcome struct {
	key *Key    // nil if it is not known
	of  *Policy // if nothing was kept of the key before
}

// change changes something of a key.
func (q *question) change(ctx context.Context, c *Client, path string, body any) (
	a Answer[Changed], out outcome, failed error,
) {
	before := q.state(ctx, c) // what is wrong with the question is told by the change
	if err := c.Post(ctx, path, body, &a); err != nil {
		return a, out, err
	}
	if before != nil && Unseen(before) {
		out.of, _ = c.Policy(ctx, q.policy) // the change is made, whatever becomes of the advice
	}
	out.key = q.state(ctx, c)
	return a, out, nil
}

// state is how the key is, nil if that is not told, or not asked for.
func (q *question) state(ctx context.Context, c *Client) *Key {
	if q.asJSON {
		return nil
	}
	k, err := c.Key(ctx, q.policy, q.key)
	if err != nil {
		return nil
	}
	return &k.Value
}

func (o *outcome) write(w io.Writer, path string) {
	if o.key != nil {
		still := StillShut(o.key)
		if still != "" {
			fmt.Fprintf(w, "%s: \"weir admin unlock\" ends that\n", still)
		} else if still = StillRefused(o.key); still != "" && path != RestorePath {
			fmt.Fprintf(w, "%s: \"weir admin reset\" gives back what it has used\n", still)
		} else if path == ResetPath && slices.ContainsFunc(o.key.Limits, allTaken) {
			fmt.Fprintln(w, "one more would be refused now: what requests have taken comes back when they end")
		}
	}
	if o.of != nil {
		fmt.Fprintln(w, "nothing was kept of this key: is it the one that was refused?")
		writeKeyForm(w, o.of)
	}
}

// unnamed says what to write, where a limit was given without the name that it needs.
func unnamed(ctx context.Context, c *Client, o *Override, err error) error {
	limit, ok := o.Limits[""]
	if refused, is := errors.AsType[*Refused](err); !ok || !is || refused.Field != "limits" {
		return err
	}
	p, failed := c.Policy(ctx, o.Policy)
	if failed != nil || p == nil || len(p.Limits) < 2 {
		return err
	}
	names := make([]string, len(p.Limits))
	for i := range p.Limits {
		names[i] = p.Limits[i].Name
	}
	example := flags.Quote(names[0] + "=" + limit)
	slices.Sort(names)
	return flags.BadValue("limit", limit, fmt.Sprintf("needs the name of the limit, as policy %s has several: %s; "+
		"such as --limit %s", flags.Quote(p.Name), strings.Join(names, ", "), example))
}
