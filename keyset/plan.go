package keyset

import (
	"unsafe"

	"github.com/weirhq/weir"
)

// Plan is a limit that a limiter has checked, for [Charge], and for keys that bring their limit with each request: see
// [Plan.TakeBytes]. It is made by [View.Plan].
type Plan struct{ in plan }

// plan is what package weir has for a Plan.
type plan interface {
	Limit() weir.Limit
	Replaces(replaced any)
	Follows(followed any)
	Take(key string, n int64) weir.Decision
	Peek(key string, n int64) weir.Decision
	Refund(key string, n int64) weir.Decision
}

// Plan checks a limit that keys can be under by a [Charge]: it takes effect at once and keeps the state, as described at
// [weir.NewKeyedFunc], which must have made the limiter. The zero Limit is that of the limiter. The error is a
// *[weir.OptionError], or [ErrTableFull] if keys have 65,534 other limits.
func (v View[K]) Plan(limit weir.Limit) (*Plan, error) {
	in, err := v.in.Plan(limit)
	if err != nil {
		return nil, err
	}
	return &Plan{in.(plan)}, nil //nolint:errcheck,forcetypeassert // package weir has said what it is
}

// Limit returns the limit of the plan.
func (p *Plan) Limit() weir.Limit { return p.in.Limit() }

// Replaces puts p in the place of old, a plan of the same limiter, from now on. A key that is under old until its next
// request, which is then under p, has regained permits at the rate of old until now, and at that of p since. Otherwise a key
// changes at its next request only (TestPlansThatReplaceOthers). If p had been replaced itself, that is forgotten; with an
// old of nil, nothing else is done.
func (p *Plan) Replaces(old *Plan) {
	if old == nil {
		p.in.Replaces(nil)
		return
	}
	p.in.Replaces(old.in)
}

// Follows makes old, a plan of the same limiter, the same limit as p: requests that still bring it, and have not begun to wait,
// are under p. It is for a caller that makes other plans apply to callers that wait, which would undo that otherwise.
func (p *Plan) Follows(old *Plan) { p.in.Follows(old.in) }

// TakeBytes takes n permits of key under this plan if they are available and no caller waits for them. It is for keys that bring
// their limit with each request: what [weir.Keyed.Take] does, with the plan in the place of the limit that NewKeyedFunc's
// function would choose, and without a copy of key. If the key was under another plan, it is under this one from now on:
// permits that are available stay so, up to the new limit, and are never scaled. While the key has an override, that decides,
// and this plan is the one that the key goes back to.
//
// Nothing is allocated, unless a key is seen for the first time. Keys of other types than string, a limit [weir.AtOnce], and a
// negative n are refused with ReasonInvalid. See [weir.Limiter] for n = 0 and for more than the limit. A plan that no key was
// under, and whose place other limits got, is renewed. If that is not possible, because keys have 65,534 other limits, the key
// is treated like a new one that finds the table full.
func (p *Plan) TakeBytes(key []byte, n int64) weir.Decision { return p.in.Take(borrowed(key), n) }

// PeekBytes returns what TakeBytes would, and takes nothing, as [weir.Keyed.Peek] does. Remaining is what remains now. A key that
// was under another plan is under this one from now on, as by TakeBytes.
func (p *Plan) PeekBytes(key []byte, n int64) weir.Decision { return p.in.Peek(borrowed(key), n) }

// RefundBytes gives key n permits back whatever their origin, at most until all that this plan allows are available, and serves
// callers that wait for them. It returns what PeekBytes(key, 0) would right after it, as one step: no caller can take in between
// what the decision still counts. An n below 1 gives nothing back. A key that was under another plan is under this one from
// now on, before it gets its permits. A key that has never been seen stays unknown, as it has all permits. See TakeBytes for
// what is refused with ReasonInvalid.
func (p *Plan) RefundBytes(key []byte, n int64) weir.Decision { return p.in.Refund(borrowed(key), n) }

// AllowBytes is k.Allow(string(key)) without a copy of key.
func AllowBytes(k *weir.Keyed[string], key []byte) bool { return k.Allow(borrowed(key)) }

// TakeBytes is k.Take(string(key), n) without a copy of key.
func TakeBytes(k *weir.Keyed[string], key []byte, n int64) weir.Decision {
	return k.Take(borrowed(key), n)
}

// borrowed is b as a string that is valid until b changes: a limiter keeps clones only (TestBytesAreKeysLikeStrings).
func borrowed(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // no caller changes b in this call
}
