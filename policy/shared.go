package policy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/keytext"
	"github.com/weirhq/weir/store"
)

// retryUnavailable is when to come back to a store that cannot tell when.
const retryUnavailable = time.Second

// partOfLocal is the place in Parts of a charge of this process.
func (v *Verdict) partOfLocal(charge int) int {
	for i := range v.Parts {
		if p := &v.Parts[i]; int(p.at) == charge && !p.shared {
			return i
		}
	}
	return -1
}

// takeStored asks the store, if the limits of this process, of which the part at Binding has decided, allow the request. It waits
// for the owner of the cluster for so long at most.
func (e *Engine) takeStored(ctx context.Context, v *Verdict, reserve bool, wait time.Duration) error {
	w := &v.work
	x := &w.sharing
	if w.charged > 0 && !v.Parts[v.Binding].Decision.Allowed {
		v.skipStored()
		v.bind()
		x.skipped, v.Allowed, w.leases = true, false, w.leases[:0]
		return nil
	}
	x.decisions = room(x.decisions, len(x.asked))
	x.engine, x.reserved = e, reserve
	ctx = e.asking(ctx)
	a := store.Ask{Wait: wait}
	if reserve || x.returns {
		a.Hold = x.hold
	}
	var err error
	if x.reservation, err = e.ask(ctx, a, x.asked, x.decisions); err != nil {
		v.withoutStore(ctx, err)
	}
	v.Allowed = true
	for i := range x.decisions {
		v.Allowed = v.Allowed && x.decisions[i].Allowed
		x.unknown = x.unknown || x.decisions[i].Reason == weir.ReasonUnavailable
	}
	if x.unknown && !e.closed.Load() {
		e.countUnavailable(x, err)
	}
	v.fillStored(err == nil && !v.Allowed)
	x.open = v.Allowed
	switch {
	case !v.Allowed:
		v.giveBack()
	case !reserve:
		v.keepOwed()
	}
	v.bind()
	if !v.Allowed && isCanceled(ctx) && anyCanceled(x.decisions) {
		return ctx.Err()
	}
	return nil
}

// asking is the context of a request, which need not have one.
func (e *Engine) asking(ctx context.Context) context.Context {
	if ctx == nil {
		return e.unending
	}
	return ctx
}

func isCanceled(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// fillStored writes into the parts of limits in a store what that has decided. If nothing is taken of some of them, a limit that
// allows the request with nothing left was not asked.
func (v *Verdict) fillStored(partly bool) {
	w := &v.work
	for i := range w.items {
		it := &w.items[i]
		if !it.stored() {
			continue
		}
		parts := v.partsOf(it)
		for j := range parts {
			p := &parts[j]
			p.Decision = w.sharing.decisions[p.at]
			p.Unasked = partly && p.Decision.Allowed && p.Decision.Remaining == 0
			p.Decision.Policy = it.policy.limits[j].name
		}
	}
}

// stored reports whether an item has charges in a store.
func (it *item) stored() bool { return it.policy.shared && it.at >= 0 }

// skipStored says of the parts of limits in a store that these were not asked.
func (v *Verdict) skipStored() {
	x := &v.work.sharing
	if len(x.asked) == 0 {
		return
	}
	x.decisions = room(x.decisions, len(x.asked))
	for i := range x.asked {
		x.decisions[i] = weir.Decision{Allowed: true, Limit: x.asked[i].Limit.Permits()}
	}
	v.fillStored(true)
}

// giveBack gives the permits of this process back, as the store has refused, and says what is left of them.
func (v *Verdict) giveBack() {
	w := &v.work
	if len(w.leases) == 0 {
		return
	}
	for i := range w.leases {
		w.leases[i].Cancel()
	}
	w.leases = w.leases[:0]
	v.addCharges(false)
	w.step.Peek()
	v.fillLocal()
	for i := range v.Parts {
		if p := &v.Parts[i]; !p.shared { // it was allowed, also if others have come since
			p.Decision.Allowed, p.Decision.Reason, p.Decision.RetryAfter = true, weir.ReasonNone, 0
		}
	}
}

// keepOwed settles what was reserved of this process for a caller that takes, except for permits that come back on release.
func (v *Verdict) keepOwed() {
	for i := range v.Parts {
		p := &v.Parts[i]
		if !p.shared && p.Policy.Limits[p.Limit].Algorithm() != weir.AlgorithmConcurrency {
			v.work.leases[p.at].Release()
		}
	}
}

// withoutStore decides for a store that has failed, by the Fail of each policy.
func (v *Verdict) withoutStore(ctx context.Context, err error) {
	x := &v.work.sharing
	x.unknown, x.reservation = true, store.Hold{}
	var misuse *weir.OptionError
	wrong := errors.As(err, &misuse)
	for i := range x.asked {
		most := x.asked[i].Limit.Permits()
		d := weir.Decision{Reason: weir.ReasonUnavailable, RetryAfter: retryUnavailable, Limit: most}
		switch {
		case isCanceled(ctx):
			d.Reason, d.RetryAfter = weir.ReasonCanceled, 0
		case errors.Is(err, store.ErrClosed):
			d.Reason, d.RetryAfter = weir.ReasonClosed, weir.Never
		case x.asked[i].N > most: // this is known without the store
			d.Reason, d.RetryAfter = weir.ReasonNever, weir.Never
		case !wrong && x.items[i].Fail == FailOpen:
			d = weir.Decision{Allowed: true, Limit: most, Remaining: most - x.asked[i].N}
		}
		x.decisions[i] = d
	}
}

// countUnavailable counts for policies that their store could not tell.
func (e *Engine) countUnavailable(x *sharing, err error) {
	for i, p := range x.items {
		if i > 0 && p == x.items[i-1] {
			continue
		}
		if d := &x.decisions[i]; err != nil && d.Reason != weir.ReasonCanceled || d.Reason == weir.ReasonUnavailable {
			e.unavailable(p, err)
		}
	}
}

// unavailable counts that the store of a policy could not tell. A store that knows what to answer then says so itself, if err is
// nil.
func (e *Engine) unavailable(p *livePolicy, err error) {
	p.state.counts.unavailable.Add()
	if err != nil {
		e.warn(&p.state.counts.storeWarned, storeFailed, "policy", p.Name, err)
	}
}

// lookStored asks the store, if a limit is in one, what it would decide.
func (e *Engine) lookStored(ctx context.Context, v *Verdict) {
	x := &v.work.sharing
	if len(x.asked) == 0 {
		return
	}
	x.decisions = room(x.decisions, len(x.asked))
	ctx = e.asking(ctx)
	if _, err := e.ask(ctx, store.Ask{Mode: store.ModePeek}, x.asked, x.decisions); err != nil {
		v.withoutStore(ctx, err)
	}
	v.fillStored(false)
	v.bind()
}

// shadowShared asks a policy that is not enforced, unless the store has failed for this request. It reports whether the store has
// decided.
func (e *Engine) shadowShared(ctx context.Context, a ask, w *work, it *item) (decided bool) {
	switch {
	case w.sharing.unknown || e.closed.Load():
		return false
	case it.joined >= 0:
		it.allowed, decided = w.items[it.joined].allowed, true
	default:
		it.allowed, decided = e.askAside(ctx, a.verb, w, it, it.total())
	}
	return decided
}

// askAside asks the store about n permits of a policy that is not enforced. What is taken of it for a request that reserves is
// not reserved.
func (e *Engine) askAside(ctx context.Context, what verb, w *work, it *item, n int64) (allowed, decided bool) {
	x := &w.sharing
	x.side = appendStored(x.side[:0], w.storedKey(it), it)
	var a store.Ask
	switch what {
	case take:
		if it.policy.returns {
			a.Hold = it.policy.hold
		}
	case peek:
		a.Mode = store.ModePeek
	case debit:
		a.Mode = store.ModeDebit
		x.side = slices.DeleteFunc(x.side, func(c store.Charge) bool { return c.Limit.Algorithm() == weir.AlgorithmConcurrency })
	}
	if len(x.side) == 0 {
		return true, true
	}
	for i := range x.side {
		if x.side[i].N = storedCost(n, x.side[i].Limit); x.side[i].Fail == store.FailOpen {
			x.side[i].Fail = store.FailClosed // what it lets pass says nothing about the limit
		}
	}
	x.sideDecisions = room(x.sideDecisions, len(x.side))
	ctx = e.asking(ctx)
	reservation, err := e.ask(ctx, a, x.side, x.sideDecisions)
	allowed = true
	for i := range x.sideDecisions {
		if err != nil || x.sideDecisions[i].Reason == weir.ReasonUnavailable {
			x.unknown = true // nor are others asked, which would hold up the request
			if what != peek && !isCanceled(ctx) {
				e.unavailable(it.policy, err)
			}
			return false, false
		}
		allowed = allowed && (what == debit || x.sideDecisions[i].Allowed)
	}
	if reservation.ID != "" {
		x.engine = e
		x.extra = append(x.extra, heldExtra{it.policy, reservation})
	}
	return allowed, true
}

// RefundDurable gives back what the parts of a verdict cost whose limits have an owner, in a cluster or in a file, whatever was
// taken for them: at most until all permits are available. All of it is given back, or nothing. The verdict is that of
// [Engine.PeekAll]. Parts with other limits are left out, and so are those that permits return to when they are released. The
// error is that of the owner, and then it is not known whether the permits were given back.
func (e *Engine) RefundDurable(ctx context.Context, v *Verdict) error {
	var charges []store.Charge
	at := make(map[int32]int)
	for i := range v.Parts {
		p := &v.Parts[i]
		if !p.shared || p.Policy.Durability == DurabilityMemory || p.returns() || p.Cost == 0 {
			continue
		}
		known, twice := at[p.at]
		if !twice {
			known = len(charges)
			at[p.at] = known
			charges = append(charges, v.work.sharing.asked[p.at])
			charges[known].N = 0
		}
		charges[known].N += p.Cost
	}
	if len(charges) == 0 {
		return nil
	}
	return store.Refund(e.asking(ctx), e.options.Durable, charges)
}

// sharing is what a Verdict has to do with a store.
type sharing struct {
	asked     []store.Charge // for the parts that are shared, in their order
	decisions []weir.Decision
	items     []*livePolicy // whose charges they are
	text      string        // the keys, in memory that is never used again
	hold      time.Duration // for how long to reserve
	returns   bool          // some permits come back on release
	skipped   bool          // some limit was not asked, as another one has refused
	unknown   bool          // some limit could not tell, so it is not known what it was charged

	engine      *Engine
	open        bool // the request was allowed, and is not settled
	reserved    bool // by the caller
	expired     bool // what the store held had come back when it was told of the end
	unsettled   bool // the owner of durable limits could not be told of it
	reservation store.Hold
	actual      []int64
	extra       []heldExtra

	side          []store.Charge  // of policies in shadow
	sideDecisions []weir.Decision // of these, and of limits of this process that refuse no request
}

// heldExtra is what a policy in shadow holds in a store.
type heldExtra struct {
	policy      *livePolicy
	reservation store.Hold
}

// reset forgets the request before.
func (x *sharing) reset() {
	x.skipped, x.unknown = false, false
	if len(x.asked) > 0 || x.engine != nil {
		x.asked, x.items, x.extra = x.asked[:0], x.items[:0], x.extra[:0]
		x.hold, x.returns, x.open, x.engine, x.reservation = 0, false, false, nil, store.Hold{}
		x.expired, x.unsettled = false, false
	}
}

// charge appends the charges of an item.
func (x *sharing) charge(w *work, it *item) {
	x.asked = appendStored(x.asked, w.storedKey(it), it)
	for range it.policy.limits {
		x.items = append(x.items, it.policy)
	}
	x.returns, x.hold = x.returns || it.policy.returns, max(x.hold, it.policy.hold)
}

// storedKey is the key of an item as a store gets it. Unlike limiters of this process a store may keep it: the memory is used for
// another request only if that has the same keys.
func (w *work) storedKey(it *item) string {
	if x := &w.sharing; x.text != string(w.keys) {
		x.text = string(w.keys)
	}
	return boundKey(w.sharing.text[it.from:it.to])
}

// boundKey is a key, or what stands for it if it is longer than a store accepts.
func boundKey(key string) string {
	if len(key) <= store.MostKeyBytes {
		return key
	}
	return string(keytext.AppendPart(nil, key))
}

// appendStored appends the charges of an item under a key.
func appendStored(charges []store.Charge, key string, it *item) []store.Charge {
	for i := range it.policy.limits {
		limit := it.variant.limits[i].Limit
		charges = append(charges, store.Charge{
			Policy: it.policy.limits[i].name, Key: key, Limit: limit, N: storedCost(it.total(), limit),
			Consistency: it.policy.Consistency.Stored(), Fail: it.policy.Fail.stored(),
			Durable: it.policy.durable, Queue: it.policy.queued(),
		})
	}
	return charges
}

// storedCost is a cost of several requests as a store takes it: up to 10^15, which is more than the limit has as well. For one
// that has as many it stays a cost that no store takes.
func storedCost(n int64, l weir.Limit) int64 {
	if n > mostCost && l.Permits() < mostCost {
		return mostCost
	}
	return n
}

// queued is how many permits can be waited for where the limits of a policy are kept.
func (p *livePolicy) queued() int64 {
	if p.durable {
		return p.QueueLimit
	}
	return 0
}

// stored is what charges say of it to a store.
func (f Fail) stored() store.Fail {
	switch f {
	case FailOpen:
		return store.FailOpen
	case FailLocal:
		return store.FailLocal
	case FailClosed, fails:
	}
	return store.FailClosed
}

// room is n decisions in the memory of all.
func room(all []weir.Decision, n int) []weir.Decision { return slices.Grow(all[:0], n)[:n] }

// ending is how a request ends.
type ending uint8

const (
	released  ending = iota // it has cost what was taken or reserved
	canceled                // as if nothing had been reserved
	committed               // by what it has really cost
)

// settleStored ends what a store holds for the request. What was not reserved by the caller has cost what was taken.
func (w *work) settleStored(how ending) {
	x := &w.sharing
	x.open = false
	held := x.reservation
	if held.ID == "" {
		return
	}
	if how == canceled && x.reserved {
		x.settle(store.Cancel(x.engine.unending, x.engine.states, held))
		return
	}
	at := 0
	if how == committed && x.reserved {
		for i := 0; i < len(x.asked) && at < len(held.Charges); i++ {
			// A store that has let some charges pass has not reserved them.
			if c := &held.Charges[at]; x.asked[i].Policy == c.Policy && x.asked[i].Key == c.Key {
				x.actual[at] = min(x.actual[i], mostCost)
				at++
			}
		}
	}
	x.actual = appendCosts(x.actual[:at], held.Charges[at:])
	x.settle(store.Commit(x.engine.unending, x.engine.states, held, x.actual))
}

// appendCosts appends what was reserved.
func appendCosts(costs []int64, of []store.Charge) []int64 {
	for i := range of {
		costs = append(costs, of[i].N)
	}
	return costs
}

// settle counts how the reservation has ended.
func (x *sharing) settle(err error) {
	x.reservation, x.expired = store.Hold{}, errors.Is(err, store.ErrNotReserved)
	for i, p := range x.items {
		x.unsettled = x.unsettled || err != nil && !x.expired && p.durable
		if i == 0 || p != x.items[i-1] {
			x.engine.settled(p, err)
		}
	}
}

// settled counts how what a policy held in a store has ended.
func (e *Engine) settled(p *livePolicy, err error) {
	counts := p.state.counts
	switch {
	case err == nil:
	case errors.Is(err, store.ErrNotReserved):
		counts.expired.Add()
	default:
		counts.unsettled.Add()
		e.warn(&counts.storeWarned, storeFailed, "policy", p.Name, err)
	}
}

// releaseExtraStored ends what policies in shadow hold in a store.
func (w *work) releaseExtraStored() {
	x := &w.sharing
	for i := range x.extra {
		held := &x.extra[i]
		x.actual = appendCosts(x.actual[:0], held.reservation.Charges)
		x.engine.settled(held.policy, store.Commit(x.engine.unending, x.engine.states, held.reservation, x.actual))
		*held = heldExtra{}
	}
	x.extra = x.extra[:0]
}

// ask asks where limits are kept for several processes. A request that waits for the owner of the cluster does so until Close at
// the latest.
func (e *Engine) ask(ctx context.Context, a store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	if e.closed.Load() {
		return store.Hold{}, store.ErrClosed
	}
	if a.Wait == 0 {
		return e.states.Do(ctx, a, charges, decisions)
	}
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ending, cancel)() //nolint:contextcheck // it is not that of the request
	held, err := e.states.Do(bounded, a, charges, decisions)
	if bounded.Err() != nil && ctx.Err() == nil && (err != nil || anyCanceled(decisions)) {
		return held, store.ErrClosed
	}
	return held, err
}

// anyCanceled reports whether a decision is that the caller has gone.
func anyCanceled(decisions []weir.Decision) bool {
	return slices.ContainsFunc(decisions, func(d weir.Decision) bool { return d.Reason == weir.ReasonCanceled })
}

// ownerless counts requests that were let pass as no store could decide on them, and logs why. Those that were refused are
// counted where they are.
func (e *Engine) ownerless(charges []store.Charge, err error) {
	s := e.live.Load()
	var last *livePolicy
	for i := range charges {
		name, _, _ := strings.Cut(charges[i].Policy, "/")
		p := s.policy(name)
		if p == nil || p == last {
			continue
		}
		last = p
		if charges[i].Fail == store.FailOpen {
			e.unavailable(p, err)
		} else if !errors.Is(err, context.Canceled) {
			e.warn(&p.state.counts.storeWarned, storeFailed, "policy", p.Name, err)
		}
	}
}
