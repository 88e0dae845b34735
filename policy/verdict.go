package policy

import (
	"math"
	"slices"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/overload"
)

// Verdict is the decision on a request: the decisions of its limits, and which of them counts. A call of an [Engine] fills it. It
// can be used for the next request once it was settled; its memory is used again, so keep verdicts in a [sync.Pool]. It is not
// safe for concurrent use.
type Verdict struct {
	// Allowed reports whether the request may pass. Then it has been charged to all limits that are enforced, otherwise to none.
	Allowed bool
	// Exempt is true if a rule has exempted the request from all limits or, of several, if rules have exempted each of them.
	Exempt bool
	// Binding is the index in Parts of the limit that counts: the refusal with the longest RetryAfter, or if none refuses, the
	// limit with the fewest remaining permits. It is -1 if no limit has decided: see [Verdict.BindingPart].
	Binding int
	// Parts are the limits that apply to the request and are enforced.
	Parts []Part
	// Priority is the highest priority among the policies that apply to the request.
	Priority overload.Priority
	// RefusalID is what [EngineOptions.OnRefused] has returned, 0 if the request was not refused or there is no OnRefused.
	RefusalID uint64

	own  weir.Decision // where no limit binds and the request is refused nevertheless
	work work
}

// Part is one limit that applies to a request.
type Part struct {
	// Request is the index of the request that it applies to among those of [Engine.TakeAll], 0 where there is one only.
	Request int
	// Policy is the policy, Limit the place of the limit in its Limits. They must not be changed.
	Policy *Policy
	Limit  int
	// Rule is the rule that has applied it, nil if the caller has named the policy: see [Named].
	Rule *Rule
	// Key is what the request was counted under. It is valid until the Verdict is used again.
	Key []byte
	// Cost is how many permits the request costs.
	Cost int64
	// Decision is that of the limit. Its Policy is the name of the policy and, if that has several limits, "/" and the name of
	// the limit.
	Decision weir.Decision
	// Unasked is true if the limit is kept in a store which was not asked about it, as the request was refused before. Then
	// Decision is Allowed with Remaining 0, as what remains is not known.
	Unasked bool

	shared  bool
	at      int32    // the place of its charge among those of its kind, of which it is none if the part has no charge
	applied *variant // nil if a caller has made the part
}

// Applied is the limit that the engine applied to the key: that of an override, or else the one that the request has brought,
// that of the key or its tier, or that of the policy.
func (p *Part) Applied() weir.Limit {
	switch {
	case p.applied != nil:
		return p.applied.at(p.Limit)
	case p.Policy == nil || p.Limit < 0 || p.Limit >= len(p.Policy.Limits):
		return weir.Limit{}
	}
	return p.Policy.Limits[p.Limit].Limit
}

// Decision is that of the limit at Binding. If there is none, it is that of a limit which allows everything, or of the
// [overload.Shedder] that has refused the request.
func (v *Verdict) Decision() weir.Decision {
	if p, ok := v.BindingPart(); ok {
		return p.Decision
	}
	if !v.Allowed {
		return v.own
	}
	return noLimit()
}

// BindingPart returns the part of the limit at Binding. It returns false if no limit has decided: none applies to the request, or
// it was refused before any was asked.
func (v *Verdict) BindingPart() (p *Part, ok bool) {
	if v.Binding < 0 || v.Binding >= len(v.Parts) {
		return nil, false
	}
	return &v.Parts[v.Binding], true
}

// Set is the set that has decided, which may have been replaced since: see [Engine.Load]. It is nil before the first decision,
// and must not be changed.
func (v *Verdict) Set() *Set {
	if v.work.snapshot == nil {
		return nil
	}
	return v.work.snapshot.set
}

// Over returns the names of the policies in ModeTag that would have refused one of the requests, in the order of the rules; 0 is
// the first. The request has passed nevertheless, and its service may do less for it. A policy whose key or cost cannot be
// evaluated, or whose store is unavailable, is among them unless it has FailOpen. A peek tells the same, and takes and counts
// nothing. There are none if the verdict is not Allowed, and none of [Engine.DebitAll].
func (v *Verdict) Over(request int) (names []string) {
	for _, by := range v.work.over {
		if int(by.request) == request && by.policy.Mode == ModeTag {
			names = append(names, by.policy.Name)
		}
	}
	return names
}

// OverShadow reports whether a policy in ModeShadow would have refused one of the requests; 0 is the first. Then it was charged
// nothing. It is false if the verdict is not Allowed, of a peek and of [Engine.DebitAll], and where a policy could not be asked.
func (v *Verdict) OverShadow(request int) bool {
	return slices.ContainsFunc(v.work.over, func(by over) bool {
		return int(by.request) == request && by.policy.Mode == ModeShadow
	})
}

// noLimit is the decision where there is no limit.
func noLimit() weir.Decision {
	return weir.Decision{Allowed: true, Limit: mostPermits, Remaining: mostPermits}
}

// mostPermits is the Limit and Remaining where there is no limit.
const mostPermits = 1_000_000_000_000_000

// Answer is the decision on one of the requests of [Engine.TakeAll]; 0 is the first. It is that of the limit with the least room
// among those of this request. So it may be Allowed although the verdict is not, as another request was refused. Limited is false
// if no limit applies to the request.
func (v *Verdict) Answer(request int) (d weir.Decision, limited bool) {
	w := &v.work
	switch {
	case v.Unknown(request):
		return unknownPolicy(), true
	case v.DeniedBy(request) != nil:
		return deniedByRule(), true
	case !v.Allowed && len(w.items) == 0 && w.unknown == 0 && len(w.denied) == 0:
		return v.own, true // none of them was decided
	}
	at := -1
	for i := range w.items {
		it := &w.items[i]
		switch {
		case int(it.request) != request:
			continue
		case v.own.Reason == weir.ReasonOverloaded:
			return v.own, true
		case it.barred():
			return it.refusal(), true
		}
		for j := range v.partsOf(it) {
			if j += it.first; at < 0 || binds(&v.Parts[j].Decision, &v.Parts[at].Decision) {
				at = j
			}
		}
	}
	if at < 0 {
		return noLimit(), false
	}
	return v.Parts[at].Decision, true
}

// ExemptOf reports whether a rule has exempted one of the requests from all limits.
func (v *Verdict) ExemptOf(request int) bool {
	return request >= 0 && request < keyset.MostCharges && v.work.exempted>>request&1 == 1
}

// Release ends the request: permits that are in use while it is served are given back. A request that was reserved has cost what
// was reserved. Only the first call of Release, Commit or Cancel counts. Where a store has permits of the request, each of them
// asks the store once, for as long as that allows; if it fails, they expire.
func (v *Verdict) Release() {
	if v.work.owed {
		for i := range v.work.leases {
			v.work.leases[i].Release()
		}
	}
	v.end(released)
}

// Cancel ends a request that was reserved as if it had never come.
func (v *Verdict) Cancel() {
	for i := range v.work.leases {
		v.work.leases[i].Cancel()
	}
	for i := range v.work.extra {
		v.work.extra[i].lease.Cancel()
	}
	v.end(canceled)
}

// Commit ends a request that was reserved with what it really cost. actual is called for each part; a negative number stands for
// what was reserved. See [weir.Lease.Commit].
//
// It is also called for limits of this process that refuse nothing and have reserved permits, with a part that is not in Parts:
// those of policies in ModeShadow and ModeTag, and those of candidates, which are then the Limits of its Policy. What is reserved
// of a policy in these modes that is shared is its cost, whichever way the request ends.
func (v *Verdict) Commit(actual func(p *Part) int64) {
	w := &v.work
	if len(w.leases) > 0 || w.sharing.open {
		v.costs(actual)
		for i := range w.leases {
			w.leases[i].Commit(w.actual[i])
		}
	}
	for i := range w.extra {
		w.extra[i].lease.Commit(w.cost(&w.extra[i], actual))
	}
	v.end(committed)
}

// end ends what a store holds, and what was taken that refused no request.
func (v *Verdict) end(how ending) {
	if v.work.sharing.open {
		v.work.settleStored(how)
	}
	v.settled()
	if v.work.observer != nil {
		v.tellSettled()
	}
}

// Expired reports of a request that has ended that its permits in a store had expired before the store was told. Then its shared
// limits were charged nothing, whatever Commit was given, and those of this process were.
func (v *Verdict) Expired() bool { return v.work.sharing.expired }

// Unsettled reports of a request that has ended that it is not known whether it was settled where durable limits are kept, as
// their owner could not be reached. If it was not, its permits come back when they expire, whatever Commit was given.
func (v *Verdict) Unsettled() bool { return v.work.sharing.unsettled }

// costs sums up what each charge has really cost.
func (v *Verdict) costs(actual func(p *Part) int64) {
	w := &v.work
	x := &w.sharing
	w.actual, x.actual = zeros(w.actual, len(w.leases)), zeros(x.actual, len(x.asked))
	for i := range v.Parts {
		p := &v.Parts[i]
		n := p.costs(actual)
		sum := &w.actual
		if p.shared {
			sum = &x.actual
		}
		(*sum)[p.at] += min(n, math.MaxInt64-(*sum)[p.at])
	}
}

// costs is what a part has really cost.
func (p *Part) costs(actual func(p *Part) int64) int64 {
	if n := actual(p); n >= 0 {
		return n
	}
	return p.Cost
}

// zeros are n of them in the memory of all.
func zeros(all []int64, n int) []int64 {
	all = slices.Grow(all[:0], n)[:n]
	clear(all)
	return all
}

// settled forgets the leases, which have ended, and ends those that refused nothing.
func (v *Verdict) settled() {
	v.work.leases = v.work.leases[:0]
	v.releaseExtra()
	if len(v.work.sharing.extra) > 0 {
		v.work.releaseExtraStored()
	}
}

// releaseExtra ends what policies in shadow and candidates hold in this process, if that has not ended yet.
func (v *Verdict) releaseExtra() {
	for i := range v.work.extra {
		v.work.extra[i].lease.Release()
	}
	v.work.extra = v.work.extra[:0]
}
