package answer

import (
	"net/http"
	"strconv"
	"sync"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// Fields writes the header fields of verdicts. The zero value is ready, and safe for concurrent use.
type Fields struct {
	// Headers writes them. Default: those of the current draft.
	Headers ratelimitfields.Headers

	mu sync.RWMutex
	// told are the policies of verdicts that have come, by what they say: of most configurations a handful.
	told map[string]*ratelimitfields.Policies
}

// mostTold is how many combinations of policies are kept prepared. Tiers and limits of single keys make new ones.
const mostTold = 1024

// Tell sets the fields about v in h, with the ID of a refusal that has one. It returns the seconds of Retry-After, 0 if there is
// none. Without a limit nothing is told, nor if a rule denies the request, nor of a limit that was not asked because another one
// had refused. A policy that applies more than once, with several keys, is told once: as the one that binds, or else the first.
func (f *Fields) Tell(h http.Header, v *policy.Verdict) (seconds int64) {
	tellRefusal(h, v.RefusalID)
	if len(v.Parts) == 0 || v.Decision().Reason == weir.ReasonDenied {
		return 0
	}
	var (
		few    [4]int
		space  [256]byte
		states [4]ratelimitfields.State
	)
	order := parts(few[:0], v)
	prepared := f.prepare(space[:0], order, v)
	if prepared == nil {
		return 0
	}
	all := states[:0]
	for place, i := range order {
		d := &v.Parts[i].Decision
		state := ratelimitfields.State{Policy: place, Remaining: d.Remaining, Reset: d.ResetAfter}
		if d.Reason == weir.ReasonTableFull || d.Reason == weir.ReasonClosed {
			state.Remaining = 0 // there may be some, but not for this client
		}
		all = append(all, state)
	}
	if v.Allowed {
		f.Headers.SetAdmitted(h, prepared, all...)
		return 0
	}
	return f.Headers.SetRefused(h, prepared, v.Decision().RetryAfter, all...)
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
func (f *Fields) prepare(key []byte, order []int, v *policy.Verdict) *ratelimitfields.Policies {
	var few [4]ratelimitfields.Policy
	all := few[:0]
	for _, i := range order {
		p := told(&v.Parts[i])
		all = append(all, p)
		key = append(key, p.Name...)
		key = append(key, 0) // is in no name
		key = strconv.AppendInt(key, p.Quota, 36)
		key = append(key, ' ')
		key = strconv.AppendInt(key, int64(p.Window), 36)
		key = append(append(key, p.Unit...), 0)
	}
	f.mu.RLock()
	prepared := f.told[string(key)]
	f.mu.RUnlock()
	if prepared != nil {
		return prepared
	}
	prepared, err := ratelimitfields.NewPolicies(all...)
	if err != nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.told) >= mostTold || f.told == nil {
		f.told = make(map[string]*ratelimitfields.Policies)
	}
	f.told[string(key)] = prepared
	return prepared
}

// told is a part as clients are told of it: the limit that was applied to its key.
func told(p *policy.Part) ratelimitfields.Policy {
	answer := ratelimitfields.PolicyOf(p.Decision.Policy, p.Applied())
	answer.Quota = p.Decision.Limit
	return answer
}
