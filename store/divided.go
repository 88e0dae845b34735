package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir"
)

// Divided is the [Home] for programs that have limits of two kinds. The owner of a cluster keeps those of charges that are
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
// itself. An invalid request, a store that was closed and a canceled context are errors, as with any store. The zero Divided is
// not usable: call [NewDivided].
type Divided struct {
	// Failed gets the charges that a store could not decide on, and why. The call is part of the request, and must not keep the
	// charges. Set it before the first call. Default: nil, no call.
	Failed func(charges []Charge, err error)

	shared  Home
	durable Home
}

var _ Home = (*Divided)(nil)

// NewDivided returns a store over both, which it closes when it is closed.
func NewDivided(shared, durable Home) *Divided {
	d := &Divided{shared: shared, durable: durable}
	if shared == nil {
		d.shared = absent{}
	}
	if durable == nil {
		d.durable = absent{}
	}
	return d
}

// retryDivided is when to come back to a store that was unavailable.
const retryDivided = time.Second

// settleTime is how long what was taken for both may wait for the other store.
const settleTime = time.Minute

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

// of is the home of one kind.
func (d *Divided) of(durable bool) Home { //nolint:ireturn // one of two
	if durable {
		return d.durable
	}
	return d.shared
}

// split cuts a request into its durable part and the other one.
func (d *Divided) split(charges []Charge) *parts {
	return splitBy(charges, func(c *Charge) int {
		if c.Durable {
			return 0
		}
		return 1
	})
}

// Do implements [Home]. Charges that are not durable do not wait. They are asked when the permits of the others are there; if
// they would refuse already when the request comes, it does not wait. Charges of both kinds are debited and given back one kind
// after the other. A reset asks both homes, as the names do not tell which of them has a key.
func (d *Divided) Do(ctx context.Context, ask Ask, charges []Charge, decisions []weir.Decision) (Hold, error) {
	if gone := ctx.Err(); gone != nil && ask.Wait == 0 {
		return Hold{}, notTaken(gone)
	}
	durable, mixed := kindOf(charges)
	if mixed || ask.Mode == ModeReset {
		if err := CheckQueued(ask, charges, decisions); err != nil {
			return Hold{}, err
		}
	}
	switch {
	case ask.Mode == ModeReset:
		return Hold{}, d.reset(ctx, charges)
	case ask.Mode == ModeTake && !mixed:
		h, err := d.take(ctx, ask, durable, charges, decisions)
		return h, d.decided(ctx, charges, decisions, err)
	case ask.Mode == ModePeek && ask.States == nil && !mixed:
		_, err := d.of(durable).Do(ctx, ask, charges, decisions)
		return Hold{}, byFail(ctx, charges, decisions, err)
	case !mixed:
		return d.of(durable).Do(ctx, ask, charges, decisions)
	case ask.States != nil:
		return Hold{}, inTurn(ask, charges, decisions, func(ask Ask, one []Charge, d1 []weir.Decision) error {
			_, err := d.of(one[0].Durable).Do(ctx, ask, one, d1)
			return err
		})
	}
	p := d.split(charges)
	if ask.Mode == ModeRefund {
		decisions = nil
	}
	defer p.end(decisions)
	if ask.Mode == ModeTake {
		return d.both(ctx, ask, charges, p)
	}
	return Hold{}, p.each(func(i int, q *part) error {
		_, err := d.of(i == 0).Do(ctx, ask, q.charges, q.decisions)
		if ask.Mode == ModePeek {
			err = byFail(ctx, q.charges, q.decisions, err)
		}
		return err
	})
}

// reset forgets keys in both homes.
func (d *Divided) reset(ctx context.Context, charges []Charge) error {
	var errs [2]error
	for i, at := range []Home{d.durable, d.shared} {
		if at != (absent{}) {
			_, errs[i] = at.Do(ctx, Ask{Mode: ModeReset}, charges, nil)
		}
	}
	return errors.Join(errs[:]...)
}

// take takes permits of one kind. An owner that ends while a request waits for it, or has failed meanwhile, is an error, as for
// requests that do not wait.
func (d *Divided) take(ctx context.Context, ask Ask, durable bool, charges []Charge, decisions []weir.Decision) (Hold, error) {
	if !durable {
		ask.Wait = 0
	}
	h, err := d.of(durable).Do(ctx, ask, charges, decisions)
	if err != nil || h.ID != "" || ask.Wait == 0 {
		return h, err
	}
	for i := range decisions {
		if why := decisions[i].Reason; why == weir.ReasonClosed || why == weir.ReasonUnavailable {
			return h, errStopping
		}
	}
	return h, nil
}

// both takes permits of both kinds, or none. The durable ones are reserved until the other home has decided.
func (d *Divided) both(ctx context.Context, ask Ask, charges []Charge, p *parts) (Hold, error) {
	durable, shared := &p[0], &p[1]
	if ask.Wait != 0 {
		_, err := d.shared.Do(ctx, Ask{Mode: ModePeek}, shared.charges, shared.decisions)
		if wrong := byFail(ctx, shared.charges, shared.decisions, err); wrong != nil {
			return Hold{}, wrong
		}
		if !allGranted(shared.decisions) {
			durable.notAsked()
			return Hold{}, nil
		}
	}
	err := p.takeAll(func(i int, q *part) (err error) {
		asked := ask
		if i == 0 && ask.Hold == 0 {
			asked.Hold = settleTime
		}
		q.held, err = d.take(ctx, asked, i == 0, q.charges, q.decisions)
		return d.decided(ctx, q.charges, q.decisions, err)
	}, func(q *part) { d.giveBack(ctx, q) })
	switch {
	case err != nil || !allGranted(durable.decisions) || !allGranted(shared.decisions):
		return Hold{}, err
	case ask.Hold != 0:
		return joined(charges, durable.held, shared.held), nil
	case durable.held.ID == "":
		return Hold{}, nil
	}
	err = d.durable.Settle(ctx, durable.held, permitsOf(durable.held))
	return Hold{}, d.decided(ctx, durable.charges, durable.decisions, err)
}

// errStopping says that an owner has ended while a request waited for it.
var errStopping = fmt.Errorf("%w: the owner of the limits has ended", ErrUnavailable)

// giveBack undoes what was reserved of the durable part of a request.
func (d *Divided) giveBack(ctx context.Context, q *part) {
	if q.held.ID != "" {
		// Whatever becomes of the caller: what cannot be told expires.
		if err := d.durable.Settle(context.WithoutCancel(ctx), q.held, nil); err != nil && d.Failed != nil {
			d.Failed(q.charges, err)
		}
	}
	q.givenBack() // also what Fail lets pass: Remaining 0 would say that it was not asked
}

func permitsOf(h Hold) []int64 {
	all := make([]int64, len(h.Charges))
	for i := range h.Charges {
		all[i] = h.Charges[i].N
	}
	return all
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

// byFail is decided without a call of Failed.
func byFail(ctx context.Context, charges []Charge, decisions []weir.Decision, err error) error {
	switch {
	case !undecided(ctx, err):
		return err
	case CheckQueued(Ask{Mode: ModePeek}, charges, decisions) != nil:
		return err
	}
	for i := range charges {
		c, to := &charges[i], &decisions[i]
		t, _ := termsOf(c.Limit)
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

// Settle implements [Home]. It settles both parts of a reservation, even if one fails; after an error it can be called again.
func (d *Divided) Settle(ctx context.Context, h Hold, actual []int64) error {
	if !strings.HasPrefix(h.ID, dividedID) {
		durable, _ := kindOf(h.Charges)
		return d.of(durable).Settle(ctx, h, actual)
	}
	if err := CheckSettle(Hold{ID: dividedID, Charges: h.Charges}, actual); err != nil {
		return err
	}
	two, costs, ok := parted(h, actual)
	if !ok {
		return ErrNotReserved
	}
	first, second := d.durable.Settle(ctx, two[0], costs[0]), d.shared.Settle(ctx, two[1], costs[1])
	switch gone := errors.Is(second, ErrNotReserved); {
	case errors.Is(first, ErrNotReserved) && !gone: // the rest was settled
		return second
	case gone:
		return first
	}
	return errors.Join(first, second)
}

// Close implements [Home]. It closes both homes.
func (d *Divided) Close() error { return errors.Join(d.durable.Close(), d.shared.Close()) }

// absent is the Home of charges for which none was given. Every call about charges is misuse.
type absent struct{}

var errAbsent = &weir.OptionError{Option: "Charge.Durable", Value: "given", Accepted: "what there is a store for"}

func (absent) Do(context.Context, Ask, []Charge, []weir.Decision) (Hold, error) {
	return Hold{}, errAbsent
}
func (absent) Settle(context.Context, Hold, []int64) error { return errAbsent }
func (absent) Close() error                                { return nil }

// dividedID begins the IDs of reservations of both kinds. Behind it are when the two expire and how long the ID of the first is,
// each with a colon behind it, and the IDs of the two.
const dividedID = "weir-both:"

// joined is one reservation for two. A part that has let pass what it could not ask has none.
func joined(charges []Charge, durable, shared Hold) Hold {
	switch {
	case durable.ID == "":
		return shared
	case shared.ID == "":
		return durable
	}
	r := Hold{
		ID: dividedID + strconv.FormatInt(durable.Expires, 10) + ":" + strconv.FormatInt(shared.Expires, 10) + ":" +
			strconv.Itoa(len(durable.ID)) + ":" + durable.ID + shared.ID,
		Expires: min(durable.Expires, shared.Expires), Charges: make([]Charge, 0, len(charges)),
	}
	rest := [2][]Charge{durable.Charges, shared.Charges} // which may say more than what was asked for
	for i := range charges {
		of := &rest[1]
		if charges[i].Durable {
			of = &rest[0]
		}
		if all := *of; len(all) > 0 && all[0].Policy == charges[i].Policy && all[0].Key == charges[i].Key {
			r.Charges, *of = append(r.Charges, all[0]), all[1:]
		}
	}
	return r
}

// parted is the inverse of joined, with what each of the charges really cost. It returns false for what joined has not made.
func parted(r Hold, actual []int64) (two [2]Hold, costs [2][]int64, ok bool) {
	rest, _ := strings.CutPrefix(r.ID, dividedID)
	var numbers [3]int64
	for i := range numbers {
		var number string
		var err error
		number, rest, _ = strings.Cut(rest, ":")
		if numbers[i], err = strconv.ParseInt(number, 10, 64); err != nil {
			return two, costs, false
		}
	}
	n := int(min(numbers[2], MostIDBytes+1))
	if n < 1 || n > MostIDBytes || n >= len(rest) || len(rest)-n > MostIDBytes {
		return two, costs, false
	}
	two[0].ID, two[1].ID = rest[:n], rest[n:]
	two[0].Expires, two[1].Expires = numbers[0], numbers[1]
	for i := range r.Charges {
		kind := 1
		if r.Charges[i].Durable {
			kind = 0
		}
		two[kind].Charges = append(two[kind].Charges, r.Charges[i])
		if actual != nil {
			costs[kind] = append(costs[kind], actual[i])
		}
	}
	return two, costs, len(two[0].Charges) > 0 && len(two[1].Charges) > 0
}
