//nolint:ireturn // texts are of several types, which callers need not know
package policy

import (
	"errors"
	"strconv"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
)

// Named is the policy and the key of a request whose caller names both itself. Rules are not asked about such a request: none
// applies another policy to it, and none exempts it. Everything else is as for any request: the Mode, the Lockout, the Candidate,
// the tiers and the Keys of the policy, overrides, and its parents, whose keys come from the other fields of the request.
//
// If the set in force has no policy of this name, the request is refused with ReasonInvalid, no request that is decided with it
// is charged, and [Verdict.Unknown] reports it. So a policy that a reload has removed never allows anything.
type Named struct {
	// Policy is the name of the policy, and Key what the request is counted under, whatever Key the policy has. They must not
	// be changed before the request has been decided on. One of more than 128 bytes is counted under its first 60 and a hash:
	// see [Engine.CountedKey].
	Policy, Key []byte
	// Cost is how many permits the request costs, whatever Cost the policy and the request have: from 0 to 10^15. 0 takes nothing
	// and is refused only if no permit is available. Another number is refused with ReasonInvalid, if the policy is enforced.
	Cost int64
	// Limit is the limit of the request, in place of that of a policy whose LimitBy is [NamedLimit]. With another policy the
	// request is refused with ReasonInvalid, if that is enforced. Default: the zero Limit, none.
	Limit weir.Limit
	// Afterwards means that Cost has been spent already, as [Rule].Afterwards does: a request that is refused is charged
	// nevertheless, and what is not there is owed.
	Afterwards bool
}

// NamedKey is the key that the caller has named: see [Named]. It is for policies that no rule applies. Of a request that names no
// key it cannot be told.
func NamedKey() Text { return namedKey{} }

type namedKey struct{}

var errNotNamed = errors.New("weir: the request names no key")

func (namedKey) AppendTo(b []byte, r *Request) ([]byte, error) {
	if r.Named == nil {
		return b, errNotNamed
	}
	return append(b, r.Named.Key...), nil
}

func (namedKey) String() string { return "key" }

// namedCost is the cost that the caller has named.
type namedCost struct{}

func (namedCost) Int(r *Request) (int64, error) { return r.Named.Cost, nil }
func (namedCost) String() string                { return "cost" }

// NamedLimit is the limit that the caller has named, none if that is the zero Limit: see [Named].
func NamedLimit() LimitSource { return namedLimit{} }

type namedLimit struct{}

func (namedLimit) Limit(r *Request) (l weir.Limit, ok bool, err error) {
	if r.Named != nil {
		l = r.Named.Limit
	}
	return l, l != weir.Limit{}, nil
}

func (namedLimit) String() string { return "limit" }

// noRule is the place of the rule of a request that names its policy.
const noRule = -1

// gatherNamed finds the policy that a request names, and its parents.
func (v *Verdict) gatherNamed(s *snapshot, r *Request) {
	w := &v.work
	at, ok := s.policies[string(r.Named.Policy)]
	if !ok {
		w.unknown |= 1 << w.request
		w.limited++
		v.own = unknownPolicy()
		return
	}
	if r.Named.Afterwards {
		w.afterwards |= 1 << w.request
	}
	w.add(s, r, noRule, &use{at, namedKey{}, namedCost{}})
}

// unknownPolicy is the answer to a request that names a policy which the set does not have.
func unknownPolicy() weir.Decision {
	return weir.Decision{Reason: weir.ReasonInvalid, RetryAfter: weir.Never}
}

// Unknown reports whether one of the requests, 0 being the first, was refused because it names a policy that the set in force
// does not have: see [Named].
func (v *Verdict) Unknown(request int) bool {
	return request >= 0 && request < keyset.MostCharges && v.work.unknown>>request&1 == 1
}

// checkNamed refuses what a caller names that cannot be, whatever the Fail of the policy.
func (it *item) checkNamed(n *Named) {
	switch {
	case n.Cost < 0 || n.Cost > mostCost: // it.failed says so
	case it.failed == nil && it.policy.LimitBy == nil && n.Limit != weir.Limit{}:
		it.failed = &weir.OptionError{
			Option: "limit that a request brings", Value: n.Limit.String(),
			Accepted: "none, as the policy " + strconv.Quote(it.policy.Name) + " has no LimitBy",
		}
	default:
		return
	}
	it.why = weir.ReasonInvalid
}
