package keyset

import (
	"context"
	"slices"
	"sync"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/inside"
)

// MostCharges is how many charges a request may have.
const MostCharges = inside.MostCharges

// Charge is a part of a request that asks several limits as one: N permits of Key from Limiter.
type Charge struct {
	// Limiter has the limit: a [weir.Keyed] or a [weir.KeyedConcurrency] whose keys are strings. The request is refused with
	// ReasonInvalid if it is anything else. Default: nil, the one of Plan, which is required then.
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

// Step is one step over several limits in memory that is used again, for a caller that makes one decision after the other:
// charges are added, and then one question is asked, which ends the step and forgets them. The zero value is a Step without
// charges. It is not safe for concurrent use.
type Step struct{ in step }

// step is what package weir has for a Step.
type step interface {
	Add(limiter any, key string, n int64, plan any, d *weir.Decision)
	Take() (binding int)
	TryAll(leases []weir.Lease, reserve bool) (all []weir.Lease, binding int)
	WaitAll(ctx context.Context, leases []weir.Lease, reserve bool) (all []weir.Lease, binding int, err error)
	Peek() (binding int)
	Debit() (binding int)
}

func (s *Step) begun() step { //nolint:ireturn // the type is one of package weir
	if s.in == nil {
		s.in = inside.Step().(step) //nolint:errcheck,forcetypeassert // package weir has said what it is
	}
	return s.in
}

// Add adds a charge of n permits of key under a plan. The decision is written to d once the question is asked; if d is nil, it is
// in the lease alone. Key must not change before.
func (s *Step) Add(p *Plan, key []byte, n int64, d *weir.Decision) {
	s.begun().Add(nil, borrowed(key), n, p.in, d)
}

// Take is [TryAcquireAll] without leases, for limits whose permits come back with time: permits of others are refused with
// ReasonInvalid.
func (s *Step) Take() (binding int) { return s.begun().Take() }

// TryAll is [TryAcquireAll], or [TryReserveAll] to reserve.
func (s *Step) TryAll(leases []weir.Lease, reserve bool) (all []weir.Lease, binding int) {
	return s.begun().TryAll(leases, reserve)
}

// WaitAll is [AcquireAll], or [ReserveAll] to reserve.
func (s *Step) WaitAll(ctx context.Context, leases []weir.Lease, reserve bool) (all []weir.Lease, binding int, err error) {
	return s.begun().WaitAll(ctx, leases, reserve)
}

// Peek is [PeekAll].
func (s *Step) Peek() (binding int) { return s.begun().Peek() }

// Debit is [DebitAll].
func (s *Step) Debit() (binding int) { return s.begun().Debit() }

var steps = sync.Pool{New: func() any { return new(Step) }}

// stepOf returns a step with charges, which belongs into steps again. If there are decisions, they are written there.
func stepOf(charges []Charge, decisions []weir.Decision) *Step {
	s := steps.Get().(*Step)
	in := s.begun()
	for i := range charges {
		c := &charges[i]
		var plan any
		if c.Plan != nil {
			plan = c.Plan.in
		}
		var d *weir.Decision
		if decisions != nil {
			d = &decisions[i]
		}
		in.Add(c.Limiter, c.Key, c.N, plan, d)
	}
	return s
}

// room appends n decisions to all.
func room(all []weir.Decision, n int) (_, own []weir.Decision) {
	first := len(all)
	all = slices.Grow(all, n)[:first+n]
	return all, all[first:]
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
// The same key of the same limiter may stand in several charges. They are decided by their sum, under the plan of the first of
// them, and have the same decision (TestChargesOfOneKeyAreTheirSum). A request of more than MostCharges is refused with
// ReasonInvalid. Nothing is allocated if leases has room and each charge has a key of its own.
func TryAcquireAll(leases []weir.Lease, charges ...Charge) (all []weir.Lease, binding int) {
	s := stepOf(charges, nil)
	defer steps.Put(s)
	return s.TryAll(leases, false)
}

// TryReserveAll is TryAcquireAll with costs that are settled later: each lease must end in Commit or Cancel.
func TryReserveAll(leases []weir.Lease, charges ...Charge) (all []weir.Lease, binding int) {
	s := stepOf(charges, nil)
	defer steps.Put(s)
	return s.TryAll(leases, true)
}

// AcquireAll is TryAcquireAll for a caller that is ready to wait. It waits in the queues of the limits, one after the other. It
// keeps what it has already got, and gives it back if a later limit refuses. The order of the limits and their keys is the same
// for all callers, so that no two wait for what the other one has (TestAcquireAllInAnyOrder). The error is that of
// [weir.Limiter].Acquire: nil if and only if all permits were taken, and otherwise a *[weir.RefusedError] with the decision
// that decides, or that of ctx. Where a limit that refuses has no queue it matches [weir.ErrNoQueue].
func AcquireAll(ctx context.Context, leases []weir.Lease, charges ...Charge) (all []weir.Lease, binding int, err error) {
	s := stepOf(charges, nil)
	defer steps.Put(s)
	return s.WaitAll(ctx, leases, false)
}

// ReserveAll is AcquireAll with costs that are settled later, like TryReserveAll.
func ReserveAll(ctx context.Context, leases []weir.Lease, charges ...Charge) (all []weir.Lease, binding int, err error) {
	s := stepOf(charges, nil)
	defer steps.Put(s)
	return s.WaitAll(ctx, leases, true)
}

// PeekAll returns what TryAcquireAll would, and takes nothing. Remaining is what remains now.
func PeekAll(decisions []weir.Decision, charges ...Charge) (all []weir.Decision, binding int) {
	decisions, own := room(decisions, len(charges))
	s := stepOf(charges, own)
	defer steps.Put(s)
	return decisions, s.Peek()
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
// forgiven as a whole for want of room counts as Allowed in Stats.
//
// Nothing is charged, and all decisions are ReasonInvalid, if there are more than MostCharges, an N is negative, a plan is
// one of another limiter, or an N of more than 0 is of a [weir.KeyedConcurrency], whose permits would never come back. Nothing is
// allocated if decisions has room, no key is new, and no caller waits.
func DebitAll(decisions []weir.Decision, charges ...Charge) (all []weir.Decision, binding int) {
	decisions, own := room(decisions, len(charges))
	s := stepOf(charges, own)
	defer steps.Put(s)
	return decisions, s.Debit()
}
