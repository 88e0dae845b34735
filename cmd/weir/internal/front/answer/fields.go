package answer

import (
	"net/http"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/memo"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// Fields writes the header fields of verdicts. The zero value is ready, and safe for concurrent use.
type Fields struct {
	// Headers writes them. Default: those of the current draft.
	Headers ratelimitfields.Headers

	// told are the policies of verdicts that have come: of most configurations a handful.
	told memo.Table[[mostTold]quota, *ratelimitfields.Policies]
}

// quota is what is told of a limit.
type quota struct {
	name   string
	quota  int64
	window time.Duration
	unit   ratelimitfields.Unit
}

// mostTold is how many policies of a verdict are remembered with their text.
const mostTold = 4

// Tell sets the fields about v in h, with the ID of a refusal that has one. It returns the seconds of Retry-After, 0 if there is
// none. Without a limit nothing is told, nor if a rule denies the request, nor of a limit that was not asked because another one
// had refused. A policy that applies more than once, with several keys, is told once: as the one that binds, or else the first.
// Last is what was told last, and is used again.
func (f *Fields) Tell(h http.Header, v *policy.Verdict, last *Last) (seconds int64) {
	TellRefusal(h, v.RefusalID)
	var states [mostTold]ratelimitfields.State
	prepared, all := f.states(v, last, states[:0])
	switch {
	case prepared == nil:
		return 0
	case v.Allowed:
		f.Headers.SetAdmitted(h, prepared, all...)
		return 0
	}
	return f.Headers.SetRefused(h, prepared, v.Decision().RetryAfter, all...)
}

// Write writes the fields that Tell sets, but for the ID of a refusal.
func (f *Fields) Write(to *ratelimitfields.Written, v *policy.Verdict, last *Last) {
	var states [mostTold]ratelimitfields.State
	prepared, all := f.states(v, last, states[:0])
	switch {
	case prepared == nil:
		to.Reset()
	case v.Allowed:
		f.Headers.WriteAdmitted(to, prepared, all...)
	default:
		f.Headers.WriteRefused(to, prepared, v.Decision().RetryAfter, all...)
	}
}

// states are what is told of v, and the policies that they are of: nil if nothing is told.
func (f *Fields) states(
	v *policy.Verdict, last *Last, all []ratelimitfields.State,
) (*ratelimitfields.Policies, []ratelimitfields.State) {
	if len(v.Parts) == 0 || v.Decision().Reason == weir.ReasonDenied {
		return nil, nil
	}
	var few [mostTold]int
	order := parts(few[:0], v)
	prepared := f.prepare(order, v, last)
	if prepared == nil {
		return nil, nil
	}
	for place, i := range order {
		d := &v.Parts[i].Decision
		state := ratelimitfields.State{Policy: place, Remaining: d.Remaining, Reset: d.ResetAfter}
		if d.Reason == weir.ReasonTableFull || d.Reason == weir.ReasonClosed {
			state.Remaining = 0 // there may be some, but not for this client
		}
		all = append(all, state)
	}
	return prepared, all
}

// Last are the policies of the verdict that was told last: those of the next one are nearly always the same.
type Last struct {
	key      [mostTold]quota
	prepared *ratelimitfields.Policies
}

// parts appends to order the places of the parts that are told, that which binds first.
func parts(order []int, v *policy.Verdict) []int {
	if v.Binding >= 0 && v.Binding < len(v.Parts) {
		order = append(order, v.Binding)
	}
next:
	for i := range v.Parts {
		if v.Parts[i].Unasked && v.Parts[i].Decision.Allowed {
			continue
		}
		for _, j := range order {
			if v.Parts[j].Decision.Policy == v.Parts[i].Decision.Policy {
				continue next
			}
		}
		order = append(order, i)
	}
	return order
}

// prepare returns the policies of a verdict, nil if they cannot be told.
func (f *Fields) prepare(order []int, v *policy.Verdict, last *Last) *ratelimitfields.Policies {
	if len(order) > mostTold {
		prepared, _ := written(order, v)
		return prepared
	}
	var key [mostTold]quota
	for place, i := range order {
		p := told(&v.Parts[i])
		key[place] = quota{p.Name, p.Quota, p.Window, p.Unit}
	}
	if last.prepared != nil && last.key == key {
		return last.prepared
	}
	prepared, _ := f.told.Of(key, func([mostTold]quota) (*ratelimitfields.Policies, error) { return written(order, v) })
	last.key, last.prepared = key, prepared
	return prepared
}

func written(order []int, v *policy.Verdict) (*ratelimitfields.Policies, error) {
	all := make([]ratelimitfields.Policy, 0, len(order))
	for _, i := range order {
		all = append(all, told(&v.Parts[i]))
	}
	return ratelimitfields.NewPolicies(all...)
}

// told is a part as clients are told of it: the limit that was applied to its key.
func told(p *policy.Part) ratelimitfields.Policy {
	answer := ratelimitfields.PolicyOf(p.Decision.Policy, p.Applied())
	answer.Quota = p.Decision.Limit
	return answer
}
