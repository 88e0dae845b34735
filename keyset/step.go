package keyset

import (
	"context"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/inside"
)

// MostCharges is how many charges a request may have.
const MostCharges = inside.MostCharges

// Charge is a part of a request that asks several limits as one: N permits of Key from Limiter.
type Charge struct {
	// Limiter has the limit: a [weir.Keyed] or a [weir.KeyedConcurrency] whose keys are strings. Required: the request is
	// refused with ReasonInvalid if it is nil or anything else.
	Limiter Limiter
	// Key is whose permits they are.
	Key string
	// N is how many permits are asked for: see [weir.Limiter] for 0, and for more than the limit. A negative N refuses the
	// request with ReasonInvalid.
	N int64
	// Plan is the limit that the key is under, one of Limiter. Default: nil, the one that Limiter has for the key.
	Plan *Plan
}

// Limiter is a limiter that can be charged together with others: a [weir.Keyed] or a [weir.KeyedConcurrency] whose keys are
// strings.
type Limiter interface {
	Limit() weir.Limit
	LimitOf(key string) weir.Limit
	Peek(key string, n int64) weir.Decision
}

// step is what package weir has for one request: charges are added, and then one question is asked, which ends the work.
type step interface {
	Add(limiter any, key string, n int64, plan any)
	TryAll(leases []weir.Lease, reserve bool) (all []weir.Lease, binding int)
	WaitAll(ctx context.Context, leases []weir.Lease, reserve bool) (all []weir.Lease, binding int, err error)
	PeekAll(decisions []weir.Decision) (all []weir.Decision, binding int)
	DebitAll(decisions []weir.Decision) (all []weir.Decision, binding int)
}

func stepOf(charges []Charge) step { //nolint:ireturn // the type is one of package weir
	s := inside.Step().(step) //nolint:errcheck,forcetypeassert // package weir has said what it is
	for i := range charges {
		c := &charges[i]
		var plan any
		if c.Plan != nil {
			plan = c.Plan.in
		}
		s.Add(c.Limiter, c.Key, c.N, plan)
	}
	return s
}

// TryAcquireAll takes the permits of all charges or of none, and never waits. It appends a lease for each of them to leases,
// and returns the place among them of the one that decides: if the request is refused, among the limits that refuse the one with
// the longest RetryAfter; if it is allowed, the one with the fewest remaining permits; -1 if there are no charges. The request is
// allowed if leases[binding] is, counted from where the first was appended.
//
// It is one atomic step over all limits: no other request sees a limit charged that another limit then refuses
// (TestChargesAreOneStep), also where a caller waits for a key, or its limit is overridden (TestChargesWithGatesAreOneStep). If
// the request is refused, no lease holds anything. Each decision is then what its limit alone would have decided, and Remaining
// is what remains now.
//
// The same key of the same limiter may stand in several charges. A request of more than MostCharges is refused with
// ReasonInvalid. Nothing is allocated if leases has room.
func TryAcquireAll(leases []weir.Lease, charges ...Charge) (all []weir.Lease, binding int) {
	return stepOf(charges).TryAll(leases, false)
}

// TryReserveAll is TryAcquireAll with costs that are settled later: each lease must end in Commit or Cancel.
func TryReserveAll(leases []weir.Lease, charges ...Charge) (all []weir.Lease, binding int) {
	return stepOf(charges).TryAll(leases, true)
}

// AcquireAll is TryAcquireAll for a caller that is ready to wait. It waits in the queues of the limits, one after the other. It
// keeps what it has already got, and gives it back if a later limit refuses. The order of the limits and their keys is the same
// for all callers, so that no two wait for what the other one has (TestAcquireAllInAnyOrder). The error is that of
// [weir.Limiter].Acquire: nil if and only if all permits were taken, and otherwise a *[weir.RefusedError] with the decision
// that decides, or that of ctx. Where a limit that refuses has no queue it matches [weir.ErrNoQueue].
func AcquireAll(ctx context.Context, leases []weir.Lease, charges ...Charge) (all []weir.Lease, binding int, err error) {
	return stepOf(charges).WaitAll(ctx, leases, false)
}

// ReserveAll is AcquireAll with costs that are settled later, like TryReserveAll.
func ReserveAll(ctx context.Context, leases []weir.Lease, charges ...Charge) (all []weir.Lease, binding int, err error) {
	return stepOf(charges).WaitAll(ctx, leases, true)
}

// PeekAll returns what TryAcquireAll would, and takes nothing. Remaining is what remains now.
func PeekAll(decisions []weir.Decision, charges ...Charge) (all []weir.Decision, binding int) {
	return stepOf(charges).PeekAll(decisions)
}

// DebitAll charges what was spent already: each limit gives its N permits whatever is available, as by a [weir.Lease.Commit] that
// costs more than was reserved. It goes into debt up to its MaxDebt, and refuses until that is regained. What exceeds it is
// forgiven, and counted in Stats.Forgiven. Nothing is refused, no caller waits, and N may be more than the limit. It appends a
// decision for each charge to decisions: that of a probe (n = 0) right afterwards, with Remaining as what remains, and RetryAfter
// as how long to wait for the first permit. Binding is that of TryAcquireAll, of these decisions; -1 if there are no charges.
//
// It is one atomic step where TryAcquireAll is one: no other request sees a limit charged and another one not yet
// (TestDebitsAreOneStep). One limit is charged after the other in two cases: where one key that a caller waits for, or whose
// limit is overridden, stands in several charges; and where such keys come and go all the time. Callers that wait for a key that
// is debited wait longer.
//
// The same key of the same limiter may stand in several charges, each of which counts; if their plans differ, it is under
// the last one afterwards. A key that finds no room in a full table is not tracked, and its cost forgiven: the decision is
// that of AdmitWhenFull. A limit of a key that cannot be used, because keys have 65,534 others, leaves the key the one that it
// has. A limiter that is closed is charged, too, and returns ReasonClosed. Each charge of more than 0 permits that was not
// forgiven as a whole for want of room counts as Granted in Stats.
//
// Nothing is charged, and all decisions are ReasonInvalid, if there are more than MostCharges, an N is negative, a plan is
// one of another limiter, or an N of more than 0 is of a [weir.KeyedConcurrency], whose permits would never come back. Nothing is
// allocated if decisions has room, no key is new, and no caller waits.
func DebitAll(decisions []weir.Decision, charges ...Charge) (all []weir.Decision, binding int) {
	return stepOf(charges).DebitAll(decisions)
}
