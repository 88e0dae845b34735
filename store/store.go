// Package store keeps the states of limits outside of the process, in Redis or a database, for programs of which several
// processes share limits. A program that runs once does not need it.
//
// To begin, open the store of package store/redis, and put [NewFleet] over it. A [Fleet] keeps each limit as exactly as its
// [Consistency], and its [Fail] decides while the store is unavailable. An engine of package policy takes it as
// EngineOptions.Store. Without an engine, call [Store.Take] with a [Charge] for each limit of a request, as the examples do.
//
// A [Store] takes the charges of a request as a slice and returns decisions, all or nothing. It has a clock of its own; the
// clocks of callers do not count. [NewMemory] is a store in the memory of this process, for tests and for a single node.
// [NewLocked] makes a Store of anything that can lock a key and keep some bytes. Package storetest is the suite that every store
// must pass.
package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/weirhq/weir"
)

// Charge is a part of a request: N permits of Key under a limit. No two charges of a request may be for the same Key of the
// same Policy. See [CheckCharges].
type Charge struct {
	// Policy names the limit: the state is kept under it and Key, whatever the parameters of Limit are. It is the Policy of the
	// decision. From 1 to 256 bytes.
	Policy string
	// Key is who shares the permits: from 0 to 1024 bytes.
	Key string
	// Limit is the limit. Every charge carries it, so it may change at any time. The parameters of the last charge count.
	// Available permits stay so, up to the new limit, and are never multiplied: a token bucket keeps what is in it, and windows
	// what was taken of them. Where the algorithm changes, the state begins anew. Zones of calendars must be known by their name
	// everywhere.
	Limit weir.Limit
	// N is how many permits are asked for, from 0 to 10^15. 0 is a probe: it is allowed if at least one permit is available,
	// and takes nothing. More than the limit is refused with ReasonNever.
	N int64
	// Consistency and Fail are for a [Fleet]: how exactly the limit is kept, and what is decided while the store is unavailable.
	// Other stores do not look at them.
	Consistency Consistency
	Fail        Fail
	// Durable means that the one owner in a cluster keeps the limit: see [Divided], and package durable. Other stores do not look
	// at it.
	Durable bool
	// Queue is how many permits can be waited for, those of this charge included, by [Queued.Acquire]: from 0 to 10^15. Default:
	// 0, no request waits.
	Queue int64
}

// MostCharges is how many charges a request may have.
const MostCharges = 64

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

// Reservation is what [Store.Reserve] has taken. Settle it by Commit or Cancel, in any process that has the Reservation, before
// it expires. The zero value is that of a refused request; settling it does nothing.
type Reservation struct {
	// ID is the identity of the reservation, which cannot be guessed: at most 64 bytes, or 192 where a [Divided] has made it for
	// two stores; "" for the zero Reservation.
	ID string
	// Charges are those that were reserved.
	Charges []Charge
	// Expires is when it ends by itself, by the clock of the store, in Unix nanoseconds.
	Expires int64
}

// Store keeps states of limits. All methods are safe for concurrent use by any number of processes that share the state.
//
// After an error it is not known whether the call took effect. The exceptions are the sentinels of this package and errors about
// a charge, which are of the type *[weir.OptionError]: then it did not. A refusal is not an error.
type Store interface { //nolint:interfacebloat // what the states of limits need, and NewLocked makes it of three methods
	// Take takes the permits of all charges, or none, as one step, and fills decisions, which has the length of charges. Each
	// decision of a refused request is that of its limit alone, as by Peek: those of limits that do not refuse are Allowed, with
	// what remains. A Concurrency limit cannot be taken, as its permits would never come back: see Reserve.
	//
	// A store that is full, of keys or of the reservations of one, refuses with weir.ReasonTableFull.
	Take(ctx context.Context, charges []Charge, decisions []weir.Decision) error
	// Peek returns what Take would, and takes nothing. Remaining is that before the permits are taken.
	Peek(ctx context.Context, charges []Charge, decisions []weir.Decision) error
	// Refund gives permits back, also such as were never taken, at most until all are available. Those of a Concurrency limit are
	// taken from its reservations, the one that expires first before others, so they do not come back twice.
	Refund(ctx context.Context, charges []Charge) error
	// Reserve is Take with a cost that is settled later. A reservation that is not settled within expiry, from 1 ms to 24 h, is
	// canceled by itself. The permits of a Concurrency limit are in use until then.
	Reserve(ctx context.Context, charges []Charge, decisions []weir.Decision, expiry time.Duration) (Reservation, error)
	// Commit ends a reservation with what each charge really cost; actual has the length of its charges. Less is given back as by
	// Cancel, more is charged at once, up to a debt of the limit. For a Concurrency limit it gives all permits back.
	//
	// It returns ErrNotReserved if the reservation has expired or was settled before, for all of its charges. Where only some of
	// them were settled, because their keys were reset or a call was cut short, Commit and Cancel settle the rest. After an error
	// they can be called again.
	//
	// A limit that was changed meanwhile stays changed. What was reserved under the old one is given back as far as it has surely
	// not been regained, and not at all if the algorithm was changed.
	Commit(ctx context.Context, r Reservation, actual []int64) error
	// Cancel ends a reservation as if nothing had been taken. Permits that were regained meanwhile are not given back twice. It
	// returns ErrNotReserved if the reservation has expired or was settled before.
	Cancel(ctx context.Context, r Reservation) error
	// Debit takes permits that were allowed elsewhere, whether they are there or not, up to a debt of the limit; the rest is
	// forgotten. The decisions are those of a probe afterwards. All charges are debited or none, unless the call is cut short. A
	// Concurrency limit cannot be debited.
	Debit(ctx context.Context, charges []Charge, decisions []weir.Decision) error
	// Lend takes as many of the N permits of a charge as there are, and at least so many as least, from 1 to N: a block that the
	// caller spends by itself. If there are fewer, the decision is the refusal of least permits, and the Loan is the zero Loan. A
	// Concurrency limit lends nothing.
	Lend(ctx context.Context, c Charge, least int64) (Loan, weir.Decision, error)
	// Return gives back what was not spent of a loan, once for each loan. It never makes more permits available than if they had
	// not been lent (TestReturnNeverMints). Permits of a window or segment that has ended are not given back, nor those that a
	// token bucket can have regained since. Nothing is given back if the limit was changed since, even if it was changed back, or
	// if the clock was set back. After a Reset, a Refund of permits that were not lent, or a Debit of which a part was forgotten,
	// it may make as many more available.
	Return(ctx context.Context, l Loan, unspent int64) error
	// Reset makes all permits of a key of a policy available, as if it had never been seen.
	Reset(ctx context.Context, policy, key string) error
	// Inspect returns what is kept for a charge; N does not count.
	Inspect(ctx context.Context, c Charge) (State, error)
	// Close ends the use of the store by this process; the states stay. Later calls return ErrClosed. Closing twice is harmless.
	Close() error
}

// State is what a store keeps for a key of a policy.
type State struct {
	// Known reports whether there is a state; a key without one has all its permits.
	Known bool
	// Decision is that of a probe.
	Decision weir.Decision
	// Reserved is how many permits are reserved, and Reservations by how many reservations.
	Reserved     int64
	Reservations int
	// Forgotten is when the state is dropped if it is not used, in Unix nanoseconds by the clock of the store; 0 if never.
	Forgotten int64
}

var (
	// ErrClosed is returned if this process has closed the store.
	ErrClosed = errors.New("weir: the store is closed")
	// ErrNotReserved is returned if a reservation does not exist, has expired, or was settled before.
	ErrNotReserved = errors.New("weir: the reservation has expired or was settled before")
	// ErrUnavailable is returned if the store could not be reached, or did not reply in time. It is never a decision about a
	// limit.
	ErrUnavailable = errors.New("weir: the store is unavailable")
)

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
