// Package store keeps the states of limits outside of the process, in Redis or a database, for programs of which several
// processes share limits. A program that runs once does not need it.
//
// To begin, open the store of package store/redis, and put [NewFleet] over it. A [Fleet] keeps each limit as exactly as its
// [Consistency], and its [Fail] decides while the store is unavailable. An engine of package policy takes it as
// EngineOptions.Store. Without an engine, call [Take] with a [Charge] for each limit of a request, as the examples do.
//
// A [Home] takes the charges of a request as a slice and returns decisions, all or nothing. It has a clock of its own; the
// clocks of callers do not count. [NewMemory] is a home in the memory of this process, for tests and for a single node.
// [NewLocked] makes a Home of anything that can lock a key and keep some bytes. Package storetest is the suite that every home
// must pass.
package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/inwords"
)

// Home keeps the states of limits: the memory of a process, Redis, a database with locks, the owner of a cluster, or a layer over
// another home. All methods are safe for concurrent use by any number of processes that share the states.
//
// The functions of this package, such as [Take] and [Reserve], say the usual calls in one word.
type Home interface {
	// Do does with the charges what ask says, with all of them or with none, as one step. It fills decisions, which has the
	// length of charges; ModeRefund and ModeReset make none, and accept nil. A refusal is not an error. A home that is full, of
	// keys or of the reservations of one, refuses with weir.ReasonTableFull.
	//
	// The slices are the caller's again when Do returns: a Hold has charges of its own.
	//
	// After an error it is not known whether the call took effect. The exceptions are the sentinels of this package and errors
	// about a charge, which are of the type *[weir.OptionError]: then it did not.
	Do(ctx context.Context, ask Ask, charges []Charge, decisions []weir.Decision) (Hold, error)
	// Settle ends a hold with what each of its charges really cost. If actual is nil, it ends as if nothing had been taken. See
	// [Commit], [Cancel] and [Return].
	Settle(ctx context.Context, h Hold, actual []int64) error
	// Close ends the use of the home by this process; the states stay. Later calls return ErrClosed. Closing twice is harmless.
	Close() error
}

// Mode is what a call of a [Home] does with its charges.
type Mode uint8

const (
	// ModeTake takes permits: see [Take], and with Hold [Reserve], and with Wait [Acquire].
	ModeTake Mode = iota
	// ModePeek takes nothing: see [Peek] and [Inspect].
	ModePeek
	// ModeDebit takes permits whether they are there or not: see [Debit].
	ModeDebit
	// ModeRefund gives permits back: see [Refund].
	ModeRefund
	// ModeLend takes as many permits of one charge as there are: see [Lend].
	ModeLend
	// ModeReset forgets what is kept for the keys, under all algorithms: see [Reset]. Limits and permits do not count.
	ModeReset

	modes
)

// Ask is what a call of a [Home] does. The zero value takes the permits now or not at all.
type Ask struct {
	Mode Mode
	// Wait is how long ModeTake may wait for the permits, from 0, which is not at all, to 24 h. A home without a queue accepts 0
	// only.
	Wait time.Duration
	// Hold makes ModeTake a reservation that ends by itself after this time, from 1 ms to 24 h. Default: 0, the permits are
	// taken.
	Hold time.Duration
	// Least is how many permits ModeLend lends at least: from 1 to the N of the charge.
	Least int64
	// States are filled by ModePeek with what is kept for the charges. They have the length of charges, or are nil.
	States []State
}

// Hold is what a call of a [Home] has taken until [Home].Settle: a reservation, which any process that has it can settle, or a
// loan. The zero value is that of a call that holds nothing; settling it for nothing does nothing.
type Hold struct {
	// ID is the identity of a reservation, which cannot be guessed: at most 64 bytes, or 192 where a [Divided] has made it for
	// two homes; "" for a loan.
	ID string
	// Charges are those that were reserved, or the one that was lent, with N as many permits as were lent. Their limits say where
	// the permits go back.
	Charges []Charge
	// Expires is when a reservation ends by itself, by the clock of the home, in Unix nanoseconds.
	Expires int64
	// Taken is when a loan was taken, by the clock of the home, in Unix nanoseconds.
	Taken int64
}

// lent reports whether a hold is a loan.
func (h *Hold) lent() bool { return h.ID == "" && len(h.Charges) == 1 }

// Lent is how many permits a loan has, and 0 for any other hold.
func (h *Hold) Lent() int64 {
	if !h.lent() {
		return 0
	}
	return h.Charges[0].N
}

// unspent is how many permits of a loan go back.
func (h *Hold) unspent(actual []int64) int64 {
	if actual == nil {
		return h.Charges[0].N
	}
	return h.Charges[0].N - actual[0]
}

// State is what a home keeps for a key of a policy.
type State struct {
	// Known reports whether there is a state; a key without one has all its permits.
	Known bool
	// Decision is that of a probe.
	Decision weir.Decision
	// Reserved is how many permits are reserved, and Reservations by how many reservations.
	Reserved     int64
	Reservations int
	// Forgotten is when the state is dropped if it is not used, in Unix nanoseconds by the clock of the home; 0 if never.
	Forgotten int64
}

var (
	// ErrClosed is returned if this process has closed the home.
	ErrClosed = errors.New("weir: the store is closed")
	// ErrNotReserved is returned if a reservation does not exist, has expired, or was settled before.
	ErrNotReserved = errors.New("weir: the reservation has expired or was settled before")
	// ErrUnavailable is returned if the home could not be reached, or did not reply in time. It is never a decision about a
	// limit.
	ErrUnavailable = errors.New("weir: the store is unavailable")
	// ErrPartUnavailable is returned if the part of the home that keeps a key could not be reached, while others can: as one of
	// the masters of a cluster. It matches ErrUnavailable, but a [Breaker] does not open for it.
	ErrPartUnavailable = fmt.Errorf("%w: the part of it that keeps the key cannot be reached", ErrUnavailable)
	// ErrUnreadable is returned if what is kept for a key is damaged, or is no record. It matches ErrUnavailable, but for this
	// key alone, and until the key is [Reset]: a [Breaker] does not open for it.
	ErrUnreadable = fmt.Errorf("%w: the record of a key cannot be read", ErrUnavailable)
)

// Take takes the permits of all charges, or none, as one step, and fills decisions, which has the length of charges. Each
// decision of a refused request is that of its limit alone, as by Peek: those of limits that do not refuse are Allowed, with
// what remains. A Concurrency limit cannot be taken, as its permits would never come back: see [Reserve].
func Take(ctx context.Context, h Home, charges []Charge, decisions []weir.Decision) error {
	_, err := h.Do(ctx, Ask{}, charges, decisions)
	return err
}

// Peek returns what Take would, and takes nothing. Remaining is that before the permits are taken.
func Peek(ctx context.Context, h Home, charges []Charge, decisions []weir.Decision) error {
	_, err := h.Do(ctx, Ask{Mode: ModePeek}, charges, decisions)
	return err
}

// Inspect returns what is kept for a charge; N does not count.
func Inspect(ctx context.Context, h Home, c Charge) (State, error) {
	var states [1]State
	c.N = 0
	_, err := h.Do(ctx, Ask{Mode: ModePeek, States: states[:]}, []Charge{c}, make([]weir.Decision, 1))
	return states[0], err
}

// Refund gives permits back, also such as were never taken, at most until all are available. Those of a Concurrency limit are
// taken from its reservations, the one that expires first before others, so they do not come back twice.
func Refund(ctx context.Context, h Home, charges []Charge) error {
	_, err := h.Do(ctx, Ask{Mode: ModeRefund}, charges, nil)
	return err
}

// Reserve is Take with a cost that is settled later. A reservation that is not settled within expiry, from 1 ms to 24 h, is
// canceled by itself. The permits of a Concurrency limit are in use until then.
func Reserve(ctx context.Context, h Home, charges []Charge, decisions []weir.Decision, expiry time.Duration) (Hold, error) {
	if err := checkExpiry(expiry); err != nil {
		return Hold{}, err
	}
	return h.Do(ctx, Ask{Hold: expiry}, charges, decisions)
}

// Acquire is Take for a request that may wait, or Reserve if ask.Hold is not 0. It waits until the permits of all charges are
// there, in the order of arrival at each of their limits, whichever process requests are in. If ask.Wait passes or ctx ends
// before that, nothing is taken, and the Reason of the decisions is ReasonQueueFull, ReasonDeadline, ReasonCanceled or
// ReasonClosed. Permits that can never be there are refused at once with ReasonNever, and a charge whose Queue is 0 refuses at
// once. ReasonClosed is of an owner of durable limits that ends its term: the next one can be asked, so the error does not match
// weir.ErrClosed.
//
// The error is nil if and only if the permits are taken. One that matches weir.ErrRefused, or the error of ctx if that was
// canceled, is that of [Refusal]: the decisions are filled in. With any other error, such as ErrUnavailable, they are not.
func Acquire(ctx context.Context, h Home, ask Ask, charges []Charge, decisions []weir.Decision) (Hold, error) {
	hold, err := h.Do(ctx, ask, charges, decisions)
	if err == nil {
		err = Refusal(ctx, charges, decisions)
	}
	return hold, err
}

// Commit ends a reservation with what each charge really cost; actual has the length of its charges. Less is given back as by
// Cancel, more is charged at once, up to a debt of the limit. For a Concurrency limit it gives all permits back.
//
// It returns ErrNotReserved if the reservation has expired or was settled before, for all of its charges. Where only some of
// them were settled, because their keys were reset or a call was cut short, Commit and Cancel settle the rest. After an error
// they can be called again.
//
// A limit that was changed meanwhile stays changed. What was reserved under the old one is given back as far as it has surely
// not been regained.
func Commit(ctx context.Context, h Home, held Hold, actual []int64) error {
	if actual == nil {
		actual = []int64{}
	}
	return h.Settle(ctx, held, actual)
}

// Cancel ends a reservation as if nothing had been taken. Permits that were regained meanwhile are not given back twice. It
// returns ErrNotReserved if the reservation has expired or was settled before.
func Cancel(ctx context.Context, h Home, held Hold) error { return h.Settle(ctx, held, nil) }

// Debit takes permits that were allowed elsewhere, whether they are there or not, up to a debt of the limit; the rest is
// forgotten. The decisions are those of a probe afterwards. All charges are debited or none, unless the call is cut short. A
// Concurrency limit cannot be debited.
func Debit(ctx context.Context, h Home, charges []Charge, decisions []weir.Decision) error {
	_, err := h.Do(ctx, Ask{Mode: ModeDebit}, charges, decisions)
	return err
}

// Lend takes as many of the N permits of a charge as there are, and at least so many as least, from 1 to N: a block that the
// caller spends by itself. If there are fewer, the decision is the refusal of least permits, and the hold is the zero Hold. A
// Concurrency limit lends nothing. If the caller dies, the block is lost to the limit until it comes back as any permit does.
func Lend(ctx context.Context, h Home, c Charge, least int64) (Hold, weir.Decision, error) {
	var decisions [1]weir.Decision
	loan, err := h.Do(ctx, Ask{Mode: ModeLend, Least: least}, []Charge{c}, decisions[:])
	if err != nil {
		return Hold{}, weir.Decision{}, err
	}
	return loan, decisions[0], nil
}

// Return gives back what was not spent of a loan, once for each loan. It never makes more permits available than if they had
// not been lent (TestReturnNeverMints). Permits of a window or segment that has ended are not given back, nor those that a
// token bucket can have regained since. Nothing is given back if the parameters of the limit were changed since, even if that was
// undone, or if the clock was set back. After a Reset, a Refund of permits that were not lent, or a Debit of which a part was
// forgotten, it may make as many more available.
func Return(ctx context.Context, h Home, loan Hold, unspent int64) error {
	if !loan.lent() {
		return h.Settle(ctx, Hold{}, nil)
	}
	lent := loan.Charges[0].N
	if unspent < 0 || unspent > lent { // Settle would speak of what was spent
		return &weir.OptionError{
			Option: "unspent", Value: fmt.Sprint(unspent), Accepted: fmt.Sprintf("from 0 to what was lent, which is %d", lent),
		}
	}
	return h.Settle(ctx, loan, []int64{lent - unspent})
}

// Reset makes all permits of a key of a policy available, as if it had never been seen, whatever the algorithm of its limit.
func Reset(ctx context.Context, h Home, policy, key string) error {
	_, err := h.Do(ctx, Ask{Mode: ModeReset}, []Charge{{Policy: policy, Key: key}}, nil)
	return err
}

// Refusal is the error of [Acquire] for its decisions. It is nil if all of them are Allowed, or else a *[weir.RefusedError] with
// the one at [Binding]. It wraps the error of ctx, and its cause, if the deadline of ctx has passed. If ctx was canceled, no
// limit has refused: the error wraps the same two, and does not match weir.ErrRefused.
func Refusal(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	at := Binding(decisions)
	if at < 0 || decisions[at].Allowed {
		return nil
	}
	e := &weir.RefusedError{Decision: decisions[at]}
	if at < len(charges) {
		e.Permits = charges[at].N
	}
	why, ended := decisions[at].Reason, ctx.Err()
	if ended == nil || why != weir.ReasonCanceled && why != weir.ReasonDeadline {
		return e
	}
	if e.Err = ended; context.Cause(ctx) != ended { //nolint:errorlint // it is asked whether there is another one
		e.Err = fmt.Errorf("%w: %w", ended, context.Cause(ctx))
	}
	if why == weir.ReasonCanceled {
		return fmt.Errorf("weir: acquire %s: %w", inwords.Permits(e.Permits), e.Err)
	}
	return e
}

// Binding is the index of the decision that counts for the request: the refusal with the longest RetryAfter, or if none refuses,
// the decision with the fewest remaining permits. It is -1 if there are none.
func Binding(decisions []weir.Decision) int {
	at := -1
	var binding *weir.Decision
	for i := range decisions {
		if d := &decisions[i]; binding == nil || binds(d, binding) {
			at, binding = i, d
		}
	}
	return at
}

func binds(a, b *weir.Decision) bool {
	switch {
	case a.Allowed != b.Allowed:
		return b.Allowed
	case a.Allowed:
		return a.Remaining < b.Remaining
	}
	return a.RetryAfter > b.RetryAfter
}

// mustHave is the error of a constructor that was given nothing to work on: the first call would fail, or a goroutine of its own.
func mustHave(option string, what any) error {
	value := "nil"
	if what != nil {
		r := reflect.ValueOf(what)
		if r.Kind() != reflect.Pointer || !r.IsNil() {
			return nil
		}
		value = fmt.Sprintf("a nil %T", what)
	}
	return &weir.OptionError{Option: option, Value: value, Accepted: "given"}
}
