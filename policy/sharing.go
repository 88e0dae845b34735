package policy

import (
	"errors"
	"slices"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/keytext"
	"github.com/weirhq/weir/store"
)

// sharing is what a Verdict has to do with a store.
type sharing struct {
	asked     []store.Charge // for the parts that are shared, in their order
	decisions []weir.Decision
	items     []*livePolicy // whose charges they are
	text      string        // the keys, in memory that is never used again
	hold      int64         // for how long to reserve
	returns   bool          // some permits come back on release
	unknown   bool          // some limit was not asked, or could not tell

	engine      *Engine
	open        bool // the request was granted, and is not settled
	reserved    bool // by the caller
	expired     bool // what the store held had come back when it was told of the end
	reservation store.Hold
	actual      []int64
	extra       []heldExtra

	side          []store.Charge // of policies in shadow
	sideDecisions []weir.Decision
}

// heldExtra is what a policy in shadow holds in a store.
type heldExtra struct {
	policy      *livePolicy
	reservation store.Hold
}

// reset forgets the request before.
func (x *sharing) reset() {
	x.unknown = false
	if len(x.asked) > 0 || x.engine != nil {
		x.asked, x.items, x.extra = x.asked[:0], x.items[:0], x.extra[:0]
		x.hold, x.returns, x.open, x.engine, x.reservation = 0, false, false, nil, store.Hold{}
		x.expired = false
	}
}

// charge appends the charges of an item.
func (x *sharing) charge(w *work, it *item) {
	x.asked = appendStored(x.asked, w.storedKey(it), it)
	for i := range it.policy.limits {
		x.items = append(x.items, it.policy)
		x.returns = x.returns || it.policy.limits[i].returns
	}
	x.hold = max(x.hold, int64(it.policy.hold))
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
		charges = append(charges, store.Charge{
			Policy: it.policy.limits[i].name, Key: key, Limit: it.variant.limits[i].Limit, N: it.total,
			Consistency: it.policy.Consistency.Stored(), Fail: it.policy.Fail.stored(),
			Durable: it.policy.durable, Queue: it.policy.queued(),
		})
	}
	return charges
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

// releaseStored ends what a store holds for the request, which has cost what it was charged.
func (w *work) releaseStored() {
	x := &w.sharing
	x.open = false
	if x.reservation.ID == "" {
		return
	}
	x.actual = appendCosts(x.actual[:0], x.reservation.Charges)
	x.settle(store.Commit(x.engine.unending, x.engine.states, x.reservation, x.actual))
}

// appendCosts appends what was reserved.
func appendCosts(costs []int64, of []store.Charge) []int64 {
	for i := range of {
		costs = append(costs, of[i].N)
	}
	return costs
}

// cancelStored ends it as if the request had never come, if it was reserved.
func (w *work) cancelStored() {
	x := &w.sharing
	if !x.reserved {
		w.releaseStored()
		return
	}
	x.open = false
	if x.reservation.ID != "" {
		x.settle(store.Cancel(x.engine.unending, x.engine.states, x.reservation))
	}
}

// commitStored ends it with what it really cost, if it was reserved: actual is that of each charge that was asked for.
func (w *work) commitStored() {
	x := &w.sharing
	x.open = false
	if x.reservation.ID == "" {
		return
	}
	held, at := x.reservation.Charges, 0
	for i := 0; i < len(x.asked) && at < len(held); i++ {
		// A store that has let some charges pass has not reserved them.
		if x.asked[i].Policy != held[at].Policy || x.asked[i].Key != held[at].Key {
			continue
		}
		cost := held[at].N
		if x.reserved {
			cost = min(x.actual[i], mostCost)
		}
		x.actual[at] = cost
		at++
	}
	x.actual = appendCosts(x.actual[:at], held[at:])
	x.settle(store.Commit(x.engine.unending, x.engine.states, x.reservation, x.actual))
}

// settle counts how the reservation has ended.
func (x *sharing) settle(err error) {
	x.reservation, x.expired = store.Hold{}, errors.Is(err, store.ErrNotReserved)
	for i, p := range x.items {
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
