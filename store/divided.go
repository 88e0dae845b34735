package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirhq/weir"
)

// Divided is the [Store] for programs that have limits of two kinds. The owner of a cluster keeps those of charges that are
// Durable, and a store that processes share keeps all others. Either may be nil, if there are no charges for it.
//
// A request is all or nothing whatever its charges are (TestDividedContention). If all of them are of one kind, it is one call of
// their store. Otherwise the durable ones are reserved, then the other store is asked. What was reserved is committed if that
// allows the request, and canceled exactly if it refuses. Until then others can be refused because of these permits
// (TestDividedHoldsWhileItAsks). A charge that was not asked, because the other kind has refused, is Allowed with Remaining 0. If
// the owner is lost between the two, the request is refused, and what the other store has taken stays taken.
//
// # While one of the two is unavailable
//
// The Fail of a charge decides. FailClosed and FailLocal refuse with weir.ReasonUnavailable and a RetryAfter of 1 s, also callers
// that wait for an owner that ends. FailOpen allows, and the store is not told later. A [Fleet] decides about its own charges
// itself. An invalid request, a store that was closed and a canceled context are errors, as with any store.
type Divided struct {
	// Failed gets the charges that a store could not decide on, and why. The call is part of the request, and must not keep the
	// charges. Set it before the first call. Default: nil, no call.
	Failed func(charges []Charge, err error)

	shared  Store
	durable Queued
	sides   sync.Pool
}

var _ Queued = (*Divided)(nil)

// NewDivided returns a store over both, which it closes when it is closed.
func NewDivided(shared Store, durable Queued) *Divided {
	d := &Divided{shared: shared, durable: durable}
	if shared == nil {
		d.shared = nobody{}
	}
	if durable == nil {
		d.durable = nobody{}
	}
	d.sides.New = func() any { return new(sides) }
	return d
}

// retryDivided is when to come back to a store that was unavailable.
const retryDivided = time.Second

// settleTime is how long what was taken for both may wait for the other store.
const settleTime = time.Minute

// side is the charges of a request that are of one kind.
type side struct {
	store     Store
	charges   []Charge
	decisions []weir.Decision
	at        []int // where they are in the request
}

// sides are those of a request: the durable one, and the other one.
type sides [2]side

// kindOf reports whether all charges are durable, or none of them, unless they are mixed.
func kindOf(charges []Charge) (durable, mixed bool) {
	if len(charges) == 0 {
		return false, false
	}
	durable = charges[0].Durable
	for i := 1; i < len(charges); i++ {
		if charges[i].Durable != durable {
			return false, true
		}
	}
	return durable, false
}

// of is the store of one kind.
func (d *Divided) of(durable bool) Store { //nolint:ireturn // one of two
	if durable {
		return d.durable
	}
	return d.shared
}

func (d *Divided) split(charges []Charge) *sides {
	s := d.sides.Get().(*sides)
	s[0].store, s[1].store = d.durable, d.shared
	for i := range charges {
		p := &s[1]
		if charges[i].Durable {
			p = &s[0]
		}
		p.charges = append(p.charges, charges[i])
		p.decisions = append(p.decisions, weir.Decision{})
		p.at = append(p.at, i)
	}
	return s
}

// join ends the use of the sides, and fills the decisions of the request, if there are any.
func (d *Divided) join(s *sides, decisions []weir.Decision) {
	for i := range s {
		p := &s[i]
		for j, at := range p.at {
			if at < len(decisions) {
				decisions[at] = p.decisions[j]
			}
		}
		clear(p.charges)
		clear(p.decisions)
		*p = side{charges: p.charges[:0], decisions: p.decisions[:0], at: p.at[:0]}
	}
	d.sides.Put(s)
}

// Take implements [Store].
func (d *Divided) Take(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	if gone := ctx.Err(); gone != nil {
		return notTaken(gone)
	}
	durable, mixed := kindOf(charges)
	if !mixed {
		return d.decided(ctx, charges, decisions, d.of(durable).Take(ctx, charges, decisions))
	}
	if err := CheckTaken(charges); err != nil {
		return err
	}
	_, err := d.both(ctx, charges, decisions, dividedCall{})
	return err
}

// Reserve implements [Store].
func (d *Divided) Reserve(
	ctx context.Context, charges []Charge, decisions []weir.Decision, expiry time.Duration,
) (Reservation, error) {
	if gone := ctx.Err(); gone != nil {
		return Reservation{}, notTaken(gone)
	}
	durable, mixed := kindOf(charges)
	if !mixed {
		r, err := d.of(durable).Reserve(ctx, charges, decisions, expiry)
		return r, d.decided(ctx, charges, decisions, err)
	}
	if err := CheckExpiry(expiry); err != nil {
		return Reservation{}, err
	}
	return d.both(ctx, charges, decisions, dividedCall{expiry: expiry})
}

// Acquire implements [Queued]: charges that are not durable refuse at once. They are asked when the permits of the others are
// there; if they would refuse already when the request comes, it does not wait.
func (d *Divided) Acquire(ctx context.Context, charges []Charge, decisions []weir.Decision, w Waiting) (Reservation, error) {
	r, err := d.decide(ctx, charges, decisions, w)
	if err == nil {
		err = Refusal(ctx, charges, decisions)
	}
	return r, err
}

// decide is Acquire, except that a refusal is no error.
func (d *Divided) decide(ctx context.Context, charges []Charge, decisions []weir.Decision, w Waiting) (Reservation, error) {
	durable, mixed := kindOf(charges)
	switch {
	case mixed && w.Expiry != 0:
		if err := CheckExpiry(w.Expiry); err != nil {
			return Reservation{}, err
		}
		fallthrough
	case mixed:
		if w.Expiry == 0 {
			if err := CheckTaken(charges); err != nil {
				return Reservation{}, err
			}
		}
		return d.both(ctx, charges, decisions, dividedCall{expiry: w.Expiry, waits: true, most: w.Most})
	case durable:
		r, err := d.acquire(ctx, charges, decisions, w)
		return r, d.decided(ctx, charges, decisions, err)
	case w.Expiry != 0:
		return d.Reserve(ctx, charges, decisions, w.Expiry)
	}
	return Reservation{}, d.Take(ctx, charges, decisions)
}

// dividedCall is how permits of both kinds are asked for.
type dividedCall struct {
	expiry time.Duration // 0: they are taken
	waits  bool
	most   time.Duration
}

// both asks for permits of both kinds, or takes none.
func (d *Divided) both(
	ctx context.Context, charges []Charge, decisions []weir.Decision, c dividedCall,
) (Reservation, error) {
	if err := firstOf(errors.Join(CheckDecisions(charges, decisions), CheckCharges(charges))); err != nil {
		return Reservation{}, err
	}
	s := d.split(charges)
	defer func() { d.join(s, decisions) }()
	durable, shared := &s[0], &s[1]
	if c.waits {
		asked := shared.store.Peek(ctx, shared.charges, shared.decisions)
		if err := byFail(ctx, shared.charges, shared.decisions, asked); err != nil {
			return Reservation{}, err
		}
		if !allGranted(shared.decisions) {
			durable.notAsked()
			return Reservation{}, nil
		}
	}
	held, err := d.hold(ctx, durable, c)
	if err != nil {
		return Reservation{}, err
	}
	if !allGranted(durable.decisions) {
		shared.notAsked()
		return Reservation{}, nil
	}
	var other Reservation
	if c.expiry == 0 {
		err = shared.store.Take(ctx, shared.charges, shared.decisions)
	} else {
		other, err = shared.store.Reserve(ctx, shared.charges, shared.decisions, c.expiry)
	}
	if err = d.failing(ctx, shared, err); err != nil || !allGranted(shared.decisions) {
		d.giveBack(ctx, durable, held)
		return Reservation{}, err
	}
	if c.expiry != 0 {
		return joined(charges, held, other), nil
	}
	if held.ID == "" {
		return Reservation{}, nil
	}
	return Reservation{}, d.failing(ctx, durable, d.durable.Commit(ctx, held, permitsOf(held)))
}

// hold reserves the durable part of a request.
func (d *Divided) hold(ctx context.Context, p *side, c dividedCall) (held Reservation, err error) {
	expiry := c.expiry
	if expiry == 0 {
		expiry = settleTime
	}
	if c.waits {
		held, err = d.acquire(ctx, p.charges, p.decisions, Waiting{Most: c.most, Expiry: expiry})
	} else {
		held, err = d.durable.Reserve(ctx, p.charges, p.decisions, expiry)
	}
	return held, d.failing(ctx, p, err)
}

// errStopping says that an owner has ended while somebody waited for it.
var errStopping = fmt.Errorf("%w: the owner of the limits has ended", ErrUnavailable)

// acquire waits for the owner. A refusal is no error here. An owner that ends, or has failed meanwhile, is one, as for those who
// do not wait.
func (d *Divided) acquire(ctx context.Context, charges []Charge, decisions []weir.Decision, w Waiting) (Reservation, error) {
	r, err := d.durable.Acquire(ctx, charges, decisions, w)
	if err != nil && !errors.Is(err, weir.ErrRefused) || r.ID != "" {
		return r, err
	}
	for i := range decisions {
		if why := decisions[i].Reason; why == weir.ReasonClosed || why == weir.ReasonUnavailable {
			return r, errStopping
		}
	}
	return r, nil
}

// giveBack undoes what was reserved of the durable part of a request.
func (d *Divided) giveBack(ctx context.Context, p *side, held Reservation) {
	if held.ID != "" {
		// Whatever becomes of the caller: what cannot be told expires.
		if err := d.durable.Cancel(context.WithoutCancel(ctx), held); err != nil && d.Failed != nil {
			d.Failed(p.charges, err)
		}
	}
	for i := range p.decisions { // also of those that Fail lets pass: Remaining 0 would say that they were not asked
		p.decisions[i].Remaining = min(p.decisions[i].Remaining+p.charges[i].N, p.decisions[i].Limit)
	}
}

func permitsOf(r Reservation) []int64 {
	all := make([]int64, len(r.Charges))
	for i := range r.Charges {
		all[i] = r.Charges[i].N
	}
	return all
}

// notAsked fills the decisions of a part that was not asked.
func (p *side) notAsked() {
	for i := range p.charges {
		t, _ := compiled.terms(p.charges[i].Limit) // which was checked
		p.decisions[i] = notAsked(&p.charges[i], t)
	}
}

// undecided reports whether a call that failed is to be decided by Fail.
func undecided(ctx context.Context, err error) bool {
	if err == nil || errors.Is(ctx.Err(), context.Canceled) || errors.Is(err, ErrClosed) {
		return false
	}
	_, misuse := errors.AsType[*weir.OptionError](err)
	return !misuse
}

// decided decides about charges that their store has not decided on, as their Fail says. The error is one that no Fail is for.
func (d *Divided) decided(ctx context.Context, charges []Charge, decisions []weir.Decision, err error) error {
	if err == nil {
		return nil
	}
	wrong := byFail(ctx, charges, decisions, err)
	if wrong == nil && d.Failed != nil {
		d.Failed(charges, err)
	}
	return wrong
}

// byFail is decided without telling anybody.
func byFail(ctx context.Context, charges []Charge, decisions []weir.Decision, err error) error {
	switch {
	case !undecided(ctx, err):
		return err
	case firstOf(errors.Join(CheckDecisions(charges, decisions), CheckCharges(charges))) != nil:
		return err
	}
	for i := range charges {
		c, to := &charges[i], &decisions[i]
		t, _ := compiled.terms(c.Limit)
		switch {
		case c.N > t.most: // this is known without the store
			*to = weir.Decision{Reason: weir.ReasonNever, RetryAfter: weir.Never, Limit: t.most, Policy: c.Policy}
		case c.Fail == FailOpen:
			*to = weir.Decision{Allowed: true, Limit: t.most, Remaining: t.most - c.N, Policy: c.Policy}
		default:
			*to = weir.Decision{Reason: weir.ReasonUnavailable, RetryAfter: retryDivided, Limit: t.most, Policy: c.Policy}
		}
	}
	if !allGranted(decisions) {
		nothingOpen(charges, decisions)
	}
	return nil
}

// nothingOpen says of the charges of FailOpen of a request that is refused that nothing is taken of them. With a Remaining of 0
// they would look as if the store had not been asked about them.
func nothingOpen(charges []Charge, decisions []weir.Decision) {
	for i := range charges {
		if d := &decisions[i]; charges[i].Fail == FailOpen && d.Allowed {
			d.Remaining = d.Limit
		}
	}
}

func (d *Divided) failing(ctx context.Context, p *side, err error) error {
	return d.decided(ctx, p.charges, p.decisions, err)
}
