package whycmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/admin"
	"github.com/weirhq/weir/cmd/weir/internal/admintext"
	"github.com/weirhq/weir/cmd/weir/internal/explained"
	"github.com/weirhq/weir/cmd/weir/internal/serverflags"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/policy"
)

// answers are what is printed as JSON.
type answers struct {
	// Refusal is that with the ID, Key the state of the key now, of the limit that has bound or that was asked for, and
	// Refusals are its last ones.
	Refusal  json.RawMessage `json:"refusal,omitempty"`
	Key      json.RawMessage `json:"key,omitempty"`
	Refusals json.RawMessage `json:"refusals,omitempty"`
}

func (o *options) print(w io.Writer, all *answers, text func(io.Writer, terminal.Output)) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(all); err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	return serverflags.Print(w, o.asJSON, b.Bytes(), text)
}

// refusal tells about a refusal, and how its key is now.
func (o *options) refusal(ctx context.Context, c *admin.Client, w io.Writer, id string) error {
	var r admin.Answer[admin.Refusal]
	if err := c.Get(ctx, admin.RefusalPath, url.Values{"id": {id}}, &r); err != nil {
		return err
	}
	all := answers{Refusal: r.JSON}
	var now *admin.Key
	binding := admintext.Binding(&r.Value)
	if binding != nil {
		k, err := keyOf(ctx, c, binding.Policy, binding.Key)
		// The policy may have gone with a reload: then the numbers of then are all there is.
		if refused, ok := errors.AsType[*admin.Refused](err); err != nil && (!ok || refused.Status != http.StatusNotFound) {
			return err
		}
		if err == nil {
			now, all.Key = &k.Value, k.JSON
		}
	}
	return o.print(w, &all, func(w io.Writer, out terminal.Output) {
		admintext.Refusal(w, out, &r.Value, time.Now())
		switch {
		case now != nil:
			fmt.Fprint(w, "\nnow:\n")
			admintext.Key(w, out, now)
			o.advise(w, out, now)
		case binding != nil:
			fmt.Fprint(w, "\nits policy is not in force any more\n")
		}
	})
}

func keyOf(ctx context.Context, c *admin.Client, policyName, key string) (k admin.Answer[admin.Key], err error) {
	err = c.Get(ctx, admin.KeyPath, url.Values{"policy": {policyName}, "key": {key}}, &k)
	return k, err
}

// state tells how a key is now, and its last refusals.
func (o *options) state(ctx context.Context, c *admin.Client, w io.Writer) error {
	k, err := keyOf(ctx, c, o.policy, o.key)
	if err != nil {
		return err
	}
	var refusals admin.Answer[admin.Refusals]
	query := url.Values{"policy": {o.policy}, "key": {o.key}, "n": {strconv.Itoa(o.last)}}
	err = c.Get(ctx, admin.RefusalsPath, query, &refusals)
	if err != nil {
		return err
	}
	var form *admin.Policy
	if admintext.Unseen(&k.Value) && len(refusals.Value.Refusals) == 0 {
		if form, err = c.Policy(ctx, o.policy); err != nil {
			return err
		}
	}
	return o.print(w, &answers{Key: k.JSON, Refusals: refusals.JSON}, func(w io.Writer, out terminal.Output) {
		admintext.Key(w, out, &k.Value)
		fmt.Fprintln(w)
		if n := len(refusals.Value.Refusals); n > 0 {
			for i := range n {
				admintext.Refusal(w, out, &refusals.Value.Refusals[i], time.Now())
			}
			fmt.Fprintln(w)
		}
		last := "no refusal of it is kept"
		if len(refusals.Value.Refusals) > 0 {
			last = fmt.Sprintf("%d of its refusals", len(refusals.Value.Refusals))
		}
		fmt.Fprintf(w, "%s\n", out.Dim(last+kept(&refusals.Value)))
		if form != nil {
			admintext.KeyForm(w, form)
		}
		o.advise(w, out, &k.Value)
	})
}

// kept says since when refusals are kept.
func kept(r *admin.Refusals) string {
	if r.Oldest.IsZero() {
		return ": the server has refused nothing since it started"
	}
	return ", of those since " + r.Oldest.UTC().Format("2006-01-02 15:04:05 UTC")
}

// advise tells how to let a key through. A lockout goes on through overrides, so it is told of that first.
func (o *options) advise(w io.Writer, out terminal.Output, k *admin.Key) {
	change := func(action, flags string) string {
		var line strings.Builder
		line.WriteString(command("weir admin "+action+" --policy %s --key %s"+flags+" --reason ...", k.Policy, k.Key))
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

// explain tells what the server would say to a request.
func (o *options) explain(ctx context.Context, c *admin.Client, w io.Writer, r *policy.Request) error {
	described := admin.Described{
		Protocol: r.Protocol, Method: r.Method, Host: r.Host, Query: r.Query, Route: r.Route,
		Path:       (&url.URL{Path: r.Path, RawPath: r.RawPath}).EscapedPath(),
		Attributes: r.Attributes, Cost: r.Cost,
	}
	if h, ok := r.Header.(http.Header); ok {
		described.Headers = h
	}
	if r.Client.IsValid() {
		described.Client = r.Client.String()
	}
	var e admin.Answer[explained.JSON]
	if err := c.Post(ctx, admin.ExplainPath, &described, &e); err != nil {
		return err
	}
	return serverflags.Print(w, o.asJSON, e.JSON, func(w io.Writer, out terminal.Output) {
		from := ""
		if described.Client != "" {
			from = " from " + described.Client
		}
		fmt.Fprintf(w, "%s %s%s%s:\n", r.Method, r.Host, r.Path, from)
		explained.Write(w, out, e.Value.Explanation(), "  ", true, time.Now())
	})
}
