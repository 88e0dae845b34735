package store

import (
	"fmt"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

const (
	// MostPolicyBytes is how long the Policy of a charge may be.
	MostPolicyBytes = 256
	// MostKeyBytes is how long the Key of a charge may be.
	MostKeyBytes = 1024
	// MostIDBytes is how long the ID of a reservation may be.
	MostIDBytes = 64
	// LeastExpiry is the shortest time after which a reservation may expire.
	LeastExpiry = time.Millisecond
	// MostExpiry is the max expiry of a reservation.
	MostExpiry = 24 * time.Hour
)

// CheckCharges returns what is wrong with the charges of one request, or nil: their number, names, permits and limits, or two of
// them for the same key of the same policy. The error is an *[weir.OptionError]. It is for implementations of [Store]: every call
// begins with it.
func CheckCharges(charges []Charge) error {
	if err := checkNames(charges); err != nil {
		return err
	}
	for i := range charges {
		if _, err := compiled.terms(charges[i].Limit); err != nil {
			return err
		}
	}
	return nil
}

// checkNames is CheckCharges without the limits.
func checkNames(charges []Charge) error {
	if len(charges) > MostCharges {
		return &weir.OptionError{
			Option: "charges", Value: fmt.Sprint(len(charges)), Accepted: fmt.Sprintf("at most %d", MostCharges),
		}
	}
	for i := range charges {
		c := &charges[i]
		if err := checkName(c.Policy, c.Key); err != nil {
			return err
		}
		if c.N < 0 || c.N > algo.MaxPermits {
			return permitsError("Charge.N", c.N)
		}
		for j := range i {
			if charges[j].Key == c.Key && charges[j].Policy == c.Policy {
				return &weir.OptionError{
					Option: "Charge.Key", Value: fmt.Sprintf("%.40q", c.Key),
					Accepted: fmt.Sprintf("different in all charges of the policy %.40q", c.Policy),
				}
			}
		}
	}
	return nil
}

func permitsError(option string, n int64) error {
	return &weir.OptionError{Option: option, Value: fmt.Sprint(n), Accepted: "from 0 to 10^15"}
}

// checkName checks what a state is kept under.
func checkName(policy, key string) error {
	if len(policy) < 1 || len(policy) > MostPolicyBytes {
		return &weir.OptionError{
			Option: "Charge.Policy", Value: fmt.Sprintf("of %d bytes", len(policy)),
			Accepted: fmt.Sprintf("from 1 to %d bytes", MostPolicyBytes),
		}
	}
	if len(key) > MostKeyBytes {
		return &weir.OptionError{
			Option: "Charge.Key", Value: fmt.Sprintf("of %d bytes", len(key)),
			Accepted: fmt.Sprintf("at most %d bytes", MostKeyBytes),
		}
	}
	return nil
}

// CheckDecisions returns an *[weir.OptionError] if there are not as many decisions as charges. It is for implementations of
// [Store].
func CheckDecisions(charges []Charge, decisions []weir.Decision) error {
	if len(charges) == len(decisions) {
		return nil
	}
	return &weir.OptionError{
		Option: "decisions", Value: fmt.Sprint(len(decisions)),
		Accepted: fmt.Sprintf("as many as charges, which are %d", len(charges)),
	}
}

// CheckTaken returns an *[weir.OptionError] if one of the charges cannot be taken, debited or lent, only reserved. It is for
// implementations of [Store].
func CheckTaken(charges []Charge) error {
	for i := range charges {
		if charges[i].Limit.Algorithm() == weir.AlgorithmConcurrency {
			return &weir.OptionError{
				Option: "Charge.Limit.Algorithm", Value: weir.AlgorithmConcurrency.String(),
				Accepted: "another one: permits of a concurrency limit are reserved",
			}
		}
	}
	return nil
}

// CheckLend returns what is wrong with a call of Lend, or nil. It is for implementations of [Store].
func CheckLend(c Charge, least int64) error {
	charges := [1]Charge{c}
	if err := CheckTaken(charges[:]); err != nil {
		return err
	}
	if err := CheckCharges(charges[:]); err != nil {
		return err
	}
	if least < 1 || least > c.N {
		return &weir.OptionError{
			Option: "least", Value: fmt.Sprint(least), Accepted: fmt.Sprintf("from 1 to Charge.N, which is %d", c.N),
		}
	}
	return nil
}

// CheckReturn returns what is wrong with a call of Return, or nil. It is for implementations of [Store].
func CheckReturn(l Loan, unspent int64) error {
	charges := [1]Charge{l.Charge}
	if err := CheckCharges(charges[:]); err != nil {
		return err
	}
	if unspent < 0 || unspent > l.Charge.N {
		return &weir.OptionError{
			Option: "unspent", Value: fmt.Sprint(unspent),
			Accepted: fmt.Sprintf("from 0 to what was lent, which is %d", l.Charge.N),
		}
	}
	return nil
}

// CheckExpiry returns an *[weir.OptionError] if a reservation cannot expire after this time. It is for implementations of
// [Store].
func CheckExpiry(expiry time.Duration) error {
	if expiry < LeastExpiry || expiry > MostExpiry {
		return &weir.OptionError{Option: "expiry", Value: expiry.String(), Accepted: "from 1ms to 24h"}
	}
	return nil
}

// CheckReservation returns an *[weir.OptionError] if something is wrong with a reservation or, if actual is not nil, with what
// its charges really cost. It is for implementations of [Store].
func CheckReservation(r Reservation, actual []int64) error {
	if len(r.ID) > MostIDBytes {
		return &weir.OptionError{
			Option: "Reservation.ID", Value: fmt.Sprintf("of %d bytes", len(r.ID)),
			Accepted: fmt.Sprintf("at most %d bytes", MostIDBytes),
		}
	}
	if err := checkNames(r.Charges); err != nil {
		return err
	}
	if actual != nil && len(actual) != len(r.Charges) {
		return &weir.OptionError{
			Option: "actual", Value: fmt.Sprintf("%d numbers", len(actual)),
			Accepted: fmt.Sprintf("one for each of %d charges", len(r.Charges)),
		}
	}
	for _, n := range actual {
		if n < 0 || n > algo.MaxPermits {
			return permitsError("actual", n)
		}
	}
	return nil
}

// DecisionOf is the decision about a charge for which its algorithm returned r; most is the max number of permits at once. It is
// for implementations of [Store].
func DecisionOf(c Charge, most int64, r algo.Result) weir.Decision {
	d := weir.Decision{
		Allowed: r.Allowed, Limit: most, Remaining: r.Remaining,
		RetryAfter: r.RetryAfter, ResetAfter: r.ResetAfter, Policy: c.Policy,
	}
	switch {
	case r.Allowed:
	case c.N > most:
		d.Reason, d.RetryAfter = weir.ReasonNever, weir.Never
	default:
		d.Reason = weir.ReasonLimited
	}
	return d
}
