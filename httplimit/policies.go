package httplimit

import (
	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/ratelimitfields"
)

func optionError(option, value, accepted string) error {
	return &weir.OptionError{Option: "httplimit." + option, Value: value, Accepted: accepted}
}

// limited is implemented by the limiters of package weir.
type limited interface{ Limit() weir.Limit }

// policiesOf derives the policies of a limiter: its quota, or else the Limit of its decisions. Those of a chain are the
// policies of its members.
func policiesOf(limiter weir.Acquirer) []ratelimitfields.Policy {
	if members, ok := limits.Members(limiter); ok {
		all := make([]ratelimitfields.Policy, 0, len(members))
		for _, member := range members {
			all = append(all, policiesOf(member)...)
		}
		return all
	}
	return []ratelimitfields.Policy{quoting(limiter.Peek(0), limiter)}
}

// policyOfKeyed is the policy of a limiter with keys. The limit of a key that no request has may be chosen by a function of the
// program, so it is not asked for: a call that is misuse has the name too.
func policyOfKeyed(k Keyed) ratelimitfields.Policy {
	l, ok := k.(limited)
	if _, held := k.(holding); !ok || !held {
		return quoting(k.Peek("", 0), k)
	}
	return ratelimitfields.PolicyOf(k.Peek("", -1).Policy, l.Limit())
}

// quoting is the policy of a limiter that decides as d.
func quoting(d weir.Decision, limiter any) ratelimitfields.Policy {
	l, ok := limiter.(limited)
	if !ok {
		return ratelimitfields.Policy{Name: d.Policy, Quota: d.Limit}
	}
	p := ratelimitfields.PolicyOf(d.Policy, l.Limit())
	if _, lasting := limiter.(*weir.Limiter); !lasting {
		p.Limit = weir.Limit{} // it may be changed, and a key may have its own
	}
	return p
}

// withQuota is policies with another quota of one of them, which is that of a limit. If that is zero, no window is known.
func withQuota(policies *ratelimitfields.Policies, index int, quota int64, limit weir.Limit) *ratelimitfields.Policies {
	all := make([]ratelimitfields.Policy, policies.Len())
	for i := range all {
		all[i] = *policies.At(i)
	}
	of := &all[index]
	of.Quota, of.Window, of.Limit = quota, 0, limit
	if limit != (weir.Limit{}) {
		_, of.Window = limit.Quota()
	}
	changed, err := ratelimitfields.NewPolicies(all...)
	if err != nil { // they were accepted before
		return policies
	}
	return changed
}
