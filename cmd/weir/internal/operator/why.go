package operator

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

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/policy"
)

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

// explain tells what the server would say to a request.
func (o *whyOptions) explain(ctx context.Context, c *Client, w io.Writer, r *policy.Request) error {
	described := Described{
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
	var e Answer[ExplanationJSON]
	if err := c.Post(ctx, ExplainPath, &described, &e); err != nil {
		return err
	}
	return o.print(w, e.JSON, func(w io.Writer, out terminal.Output) {
		from := ""
		if described.Client != "" {
			from = " from " + described.Client
		}
		fmt.Fprintf(w, "%s %s%s%s:\n", r.Method, r.Host, r.Path, from)
		WriteExplanation(w, out, &e.Value, "  ", true, time.Now())
	})
}
