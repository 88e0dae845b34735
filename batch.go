package weir

import (
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/inside"
	"github.com/weirhq/weir/internal/table"
)

// batch is the memory of calls that are decided each alone, one after the other: see keyset.Batch.
type batch struct {
	keys [inside.MostCharges]touchedKey
	draw uint64        // grows with each refusal
	soon time.Duration // soonAgain, or less in tests
}

type touchedKey struct {
	hash       table.Hash
	spot       table.Spot
	retryAfter time.Duration // of a refusal that is not sure
}

// newBatch is inside.Batch.
func newBatch() any { return &batch{soon: soonAgain, draw: rand.Uint64()} } //nolint:gosec // no secret

// soonAgain is from how long on a refusal is believed, if the batch takes less, although another caller may have used the key
// since the clock was read. One for less long is decided again at once, at a later time.
const soonAgain = 10 * time.Millisecond

// Take implements that of keyset. The plans are *keyPlan.
func (b *batch) Take(calls []inside.Call[Decision]) {
	for i := range calls {
		b.keys[i].hash = hashOf(calls[i].Key)
	}
	for i := range calls {
		p, key := calls[i].Plan.(*keyPlan), &b.keys[i] //nolint:errcheck,forcetypeassert // keyset has no other
		key.spot = p.k.states.Touch(key.hash)
	}
	began := clock.Now()
	now := began
	var p *keyPlan
	var t *terms
	var allowed int64          // of p, not counted yet
	var refused, unsure uint64 // which calls
	plain := false
	for i := range calls {
		of, key := &calls[i], &b.keys[i]
		if plan := of.Plan.(*keyPlan); plan != p { //nolint:errcheck,forcetypeassert // as above
			p.countAllowed(allowed)
			p, t, allowed = plan, plan.current(), 0
			if plain = p.of != nil && t.table != nil && p.k.clock == nil; plain {
				p.k.states.Open()
			}
		}
		n, d := of.N, of.Decision
		if !plain || uint64(n-1) >= uint64(t.permits) || p.k.closed.Load() {
			now = p.takeRare(t, of, key, now)
			continue
		}
		slot, tag := key.spot.Seize(key.hash)
		if slot == nil {
			now = p.takeRare(t, of, key, now)
			continue
		}
		if tag != t.tag || t.users.Load() < 0 {
			slot.Leave()
			now = p.takeRare(t, of, key, now)
			continue
		}
		state := slot.State()
		granted, remaining, retryAfter, resetAfter := t.table.Decide(state, now, n, true)
		if !granted {
			if retryAfter >= b.soon {
				unsure |= 1 << i
				key.retryAfter = retryAfter
			} else {
				now = clock.Now()
				granted, remaining, retryAfter, resetAfter = t.table.Decide(state, now, n, true)
			}
			if !granted && t.elsewhere(state, now) {
				slot.Leave()
				unsure &^= 1 << i
				now = p.takeRare(t, of, key, now)
				continue
			}
		}
		slot.Leave()
		d.Allowed, d.Reason, d.Limit, d.Policy = granted, ReasonNone, t.permits, p.k.policy
		d.Remaining, d.RetryAfter, d.ResetAfter = remaining, retryAfter, resetAfter
		if granted {
			allowed++
		} else {
			d.Reason = ReasonLimited
			refused |= 1 << i
		}
	}
	p.countAllowed(allowed)
	if refused != 0 {
		b.refused(calls, refused, unsure, began)
	}
}

// refused counts refusals, and decides again on those that are not sure if permits may have come back before they were made.
func (b *batch) refused(calls []inside.Call[Decision], refused, unsure uint64, began int64) {
	now := clock.Now()
	for ; refused != 0; refused &= refused - 1 {
		i := bits.TrailingZeros64(refused)
		of, key := &calls[i], &b.keys[i]
		p := of.Plan.(*keyPlan) //nolint:errcheck,forcetypeassert // as above
		if unsure>>i&1 == 1 && key.retryAfter <= time.Duration(now-began) {
			now = p.takeRare(p.current(), of, key, now)
			continue
		}
		p.k.refused.Add()
		b.draw++
		p.of.noteDrawn(key.hash, of.Key, b.draw)
	}
}

// countAllowed counts so many calls; p may be nil.
func (p *keyPlan) countAllowed(n int64) {
	if n > 0 {
		p.k.allowed.AddN(n)
	}
}

// takeRare decides a call that is not plain, or on a key that is new, or under another limit. Now is what the process clock has
// shown since the key was touched. It returns what that has shown last: the next call may be for the same key, of which less than
// there is would remain at an earlier time.
func (p *keyPlan) takeRare(t *terms, of *inside.Call[Decision], key *touchedKey, now int64) int64 {
	if of.N < 0 || p.of == nil || p.k.returns() {
		*of.Decision = p.k.invalid()
		return now
	}
	c := call{k: p.k, hash: key.hash, terms: t, now: now, spot: key.spot}
	if c.isPlain(of.N) && p.of.takeTouched(&c, of.Key, of.N, of.Decision) != locked {
		return c.now
	}
	rare := cell{call: c}
	rare.now = p.k.now()
	p.of.noted(&rare, of.Decision, of.Key, of.N, rare.tryAt(of.Decision, of.N, false))
	if p.k.clock != nil {
		return now // of another clock
	}
	return max(now, rare.now)
}
