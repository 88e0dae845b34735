package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

// outcome is how a key is after a change. Who makes one wants to let somebody in, and is told what is in the way still.
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
