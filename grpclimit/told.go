package grpclimit

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/internal/memo"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// told makes the metadata that tells clients the state of limits.
type told struct {
	quotas map[string]quota // of Limiter or Keyed, by name
	held   holding          // Keyed, if it is one
	texts  memo.Table[[mostParts]named, *ratelimitfields.Policies]
}

type quota struct {
	permits int64
	window  time.Duration
	unit    ratelimitfields.Unit
}

// named is what the policy of a part is made from.
type named struct {
	quota

	name string
}

// part is one limit as clients are told of it.
type part struct {
	named

	remaining int64
	reset     time.Duration
}

// mostParts is how many policies of a call are remembered with their text.
const mostParts = 4

// holding is a Keyed that tells the limit of each key. A [weir.Keyed] of strings is one.
type holding interface{ LimitOf(key string) weir.Limit }

// limited is implemented by the limiters of package weir.
type limited interface{ Limit() weir.Limit }

func (t *told) init(o *ServerOptions) {
	t.quotas = map[string]quota{}
	switch {
	case o.Limiter != nil:
		t.add(o.Limiter.Peek(0).Policy, o.Limiter)
	case o.Keyed != nil:
		n := int64(0)
		if t.held, _ = o.Keyed.(holding); t.held != nil {
			n = -1 // misuse has the name too, and does not ask a function of the program for the limit of a key that no call has
		}
		t.add(o.Keyed.Peek("", n).Policy, o.Keyed)
	}
}

func (t *told) add(name string, limiter any) {
	if members, ok := limits.Members(limiter); ok {
		for _, member := range members {
			t.add(member.Peek(0).Policy, member)
		}
		return
	}
	if l, ok := limiter.(limited); ok {
		t.quotas[name] = newQuota(l.Limit())
	}
}

func newQuota(l weir.Limit) quota {
	p := ratelimitfields.PolicyOf("", l)
	return quota{p.Quota, p.Window, p.Unit}
}

// one is the decision of a Limiter, or of a Keyed about a key. It is told with the window of the limit that the key is held to
// or, of what does not tell that, with its window while its limit is that which was set up.
func (t *told) one(d *weir.Decision, key string) []part {
	q := t.quotas[d.Policy]
	switch {
	case t.held != nil:
		if permits, window := t.held.LimitOf(key).Quota(); permits == d.Limit {
			q.permits, q.window = permits, window
		} else {
			q.permits, q.window = d.Limit, 0
		}
	case q.permits != d.Limit:
		q.permits, q.window = d.Limit, 0
	}
	return []part{{named{q, d.Policy}, d.Remaining, d.ResetAfter}}
}

// parts are the limits of a verdict, the one that binds first. Of several states of one limit the lowest is told.
func (t *told) parts(v *policy.Verdict) []part {
	parts := make([]part, 0, len(v.Parts))
	add := func(p *policy.Part) {
		d := &p.Decision
		for i := range parts {
			if parts[i].name == d.Policy {
				parts[i].remaining = min(parts[i].remaining, d.Remaining)
				return
			}
		}
		parts = append(parts, part{named{quotaOf(p), d.Policy}, d.Remaining, d.ResetAfter})
	}
	if p, ok := v.BindingPart(); ok {
		add(p)
	}
	for i := range v.Parts {
		if p := &v.Parts[i]; i != v.Binding && (!p.Unasked || !p.Decision.Allowed) {
			add(p)
		}
	}
	return parts
}

// quotaOf is the quota of the limit that was applied.
func quotaOf(p *policy.Part) quota {
	q := newQuota(p.Applied())
	q.permits = p.Decision.Limit
	return q
}

// policies are the parts as ratelimitfields writes them; nil if they cannot be written.
func (t *told) policies(parts []part) *ratelimitfields.Policies {
	if len(parts) > mostParts {
		made, _ := written(parts)
		return made
	}
	var key [mostParts]named
	for i := range parts {
		key[i] = parts[i].named
	}
	made, _ := t.texts.Of(key, func([mostParts]named) (*ratelimitfields.Policies, error) { return written(parts) })
	return made
}

func written(parts []part) (*ratelimitfields.Policies, error) {
	all := make([]ratelimitfields.Policy, 0, len(parts))
	for i := range parts {
		p := &parts[i]
		all = append(all, ratelimitfields.Policy{Name: p.name, Quota: p.permits, Window: p.window, Unit: p.unit})
	}
	return ratelimitfields.NewPolicies(all...)
}

func states(parts []part) []ratelimitfields.State {
	all := make([]ratelimitfields.State, 0, len(parts))
	for i := range parts {
		all = append(all, ratelimitfields.State{Policy: i, Remaining: parts[i].remaining, Reset: parts[i].reset})
	}
	return all
}

// allowed tells the state of the limits in the header of a call.
func (t *told) allowed(ctx context.Context, o *ServerOptions, a answer, parts []part) {
	if len(parts) == 0 {
		return
	}
	policies := t.policies(parts)
	if policies == nil {
		return
	}
	fields := http.Header{}
	o.Headers.SetAdmitted(fields, policies, states(parts)...)
	if len(fields) == 0 {
		return
	}
	md := metadata.MD{}
	copyLower(md, fields)
	if err := a.SetHeader(ctx, md); err != nil {
		o.Logger.LogAttrs(ctx, slog.LevelError, "grpclimit: the header could not be set", slog.Any("error", err))
	}
}

// refused adds the state of the limits to the trailer of a refusal.
func (t *told) refused(o *ServerOptions, r *Refusal, parts []part) {
	policies := t.policies(parts)
	if len(parts) == 0 || policies == nil {
		if d := r.Decision.RetryAfter; d > 0 && d != weir.Never {
			r.Trailer[retryAfterName] = []string{strconv.FormatInt((ceilMilliseconds(d)+999)/1000, 10)}
		}
		return
	}
	fields := http.Header{}
	o.Headers.SetRefused(fields, policies, r.Decision.RetryAfter, states(parts)...)
	copyLower(r.Trailer, fields)
}

func copyLower(md metadata.MD, fields http.Header) {
	for name, values := range fields {
		md[strings.ToLower(name)] = values
	}
}
