package store

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/limits"
)

// Charge is a part of a request: N permits of Key under a limit. No two charges of a request may be for the same Key of the
// same Policy. See [Check].
type Charge struct {
	// Policy names the limit: the state is kept under it, Key and the algorithm of Limit, whatever its parameters are. It is the
	// Policy of the decision. From 1 to 256 bytes.
	Policy string
	// Key is who shares the permits: from 0 to 1024 bytes.
	Key string
	// Limit is the limit. Every charge carries it, so it may change at any time. The parameters of the last charge count.
	// Available permits stay so, up to the new limit, and are never multiplied: a token bucket keeps what is in it, and windows
	// what was taken of them. Zones of calendars must be known by their name everywhere.
	//
	// Each algorithm has a state of its own. So a limit whose algorithm changes begins anew, and goes on where it was if that is
	// changed back; processes that differ in it allow what both limits do, and no more.
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
	// Queue is how many permits can be waited for, those of this charge included, by [Acquire]: from 0 to 10^15. Default:
	// 0, no request waits.
	Queue int64
}

// recordKey is what a record is kept under. Were it the same for all algorithms, processes that differ in that of a limit would
// have it begin anew in turn, and allow everything.
type recordKey struct {
	policy, key string
	algorithm   weir.Algorithm
}

func (c *Charge) recordKey() recordKey { return recordKey{c.Policy, c.Key, c.Limit.Algorithm()} }

// recordKeys are those of all algorithms, of charges whose limits do not count.
func recordKeys(charges []Charge) []recordKey {
	all := make([]recordKey, 0, len(charges)*int(limits.Algorithms))
	for i := range charges {
		for a := range limits.Algorithms {
			all = append(all, recordKey{charges[i].Policy, charges[i].Key, a})
		}
	}
	return all
}

// clone is one in memory of its own.
func (k recordKey) clone() recordKey {
	k.policy, k.key = strings.Clone(k.policy), strings.Clone(k.key)
	return k
}

// MostCharges is how many charges a request may have.
const MostCharges = 64

const (
	// MostPolicyBytes is how long the Policy of a charge may be.
	MostPolicyBytes = 256
	// MostKeyBytes is how long the Key of a charge may be.
	MostKeyBytes = 1024
	// MostIDBytes is how long the ID of a reservation may be.
	MostIDBytes = 64
	// LeastExpiry is the shortest time after which a reservation may expire.
	LeastExpiry = time.Millisecond
	// MaxWait is how long a request may wait at most.
	MaxWait = 24 * time.Hour
	// MostExpiry is the max expiry of a reservation.
	MostExpiry = 24 * time.Hour
)

// Check returns what is wrong with a call of Do, or nil. The error is an *[weir.OptionError]. It is for implementations of [Home]
// without a queue: every call begins with it.
func Check(ask Ask, charges []Charge, decisions []weir.Decision) error {
	if ask.Mode == ModeTake && ask.Wait != 0 {
		return errNoQueue(ask.Wait)
	}
	return CheckQueued(ask, charges, decisions)
}

func errNoQueue(wait time.Duration) error {
	return &weir.OptionError{
		Option: "Ask.Wait", Value: wait.String(), Accepted: "0, as there is no queue where the limits are kept",
	}
}

// CheckQueued is [Check] for a home with a queue.
func CheckQueued(ask Ask, charges []Charge, decisions []weir.Decision) error {
	if err := check(&ask, charges, decisions); err != nil || ask.Mode == ModeReset {
		return err
	}
	return checkLimits(charges)
}

func checkLimits(charges []Charge) error {
	for i := range charges {
		if _, err := termsOf(charges[i].Limit); err != nil {
			return err
		}
	}
	return nil
}

// check is CheckQueued without the limits, which a home may find to be those that it has checked before.
func check(ask *Ask, charges []Charge, decisions []weir.Decision) error {
	if err := ask.check(len(charges), decisions); err != nil {
		return err
	}
	if ask.Mode == ModeTake && ask.Hold == 0 || ask.Mode == ModeDebit || ask.Mode == ModeLend {
		if err := checkTaken(charges); err != nil {
			return err
		}
	}
	if err := checkNames(charges); err != nil {
		return err
	}
	if ask.Mode == ModeLend && (ask.Least < 1 || ask.Least > charges[0].N) {
		return &weir.OptionError{
			Option: "Ask.Least", Value: fmt.Sprint(ask.Least),
			Accepted: fmt.Sprintf("from 1 to Charge.N, which is %d", charges[0].N),
		}
	}
	return nil
}

// check checks what does not depend on the charges, which are n.
func (a *Ask) check(n int, decisions []weir.Decision) error {
	switch {
	case a.Mode >= modes:
		return &weir.OptionError{Option: "Ask.Mode", Value: fmt.Sprint(a.Mode), Accepted: "one of the constants"}
	case a.Mode == ModeLend && n != 1:
		return &weir.OptionError{Option: "charges", Value: fmt.Sprint(n), Accepted: "one, to lend its permits"}
	case a.Wait < 0 || a.Wait > MaxWait:
		return &weir.OptionError{Option: "Ask.Wait", Value: a.Wait.String(), Accepted: "from 0 to 24h"}
	case a.Mode != ModeTake && (a.Wait != 0 || a.Hold != 0):
		return &weir.OptionError{Option: "Ask.Mode", Value: fmt.Sprint(a.Mode), Accepted: "ModeTake, where Wait or Hold is given"}
	case a.States != nil && len(a.States) != n:
		return numberError("Ask.States", len(a.States), n)
	case len(decisions) != n && (decisions != nil || a.Mode != ModeRefund && a.Mode != ModeReset):
		return numberError("decisions", len(decisions), n)
	case a.Hold != 0:
		return checkExpiry(a.Hold)
	}
	return nil
}

func numberError(option string, n, charges int) error {
	return &weir.OptionError{
		Option: option, Value: fmt.Sprint(n), Accepted: fmt.Sprintf("as many as charges, which are %d", charges),
	}
}

// checkNames checks the number of charges, their names and their permits.
func checkNames(charges []Charge) error {
	if len(charges) > MostCharges {
		return &weir.OptionError{
			Option: "charges", Value: fmt.Sprint(len(charges)), Accepted: fmt.Sprintf("at most %d", MostCharges),
		}
	}
	for i := range charges {
		c := &charges[i]
		switch {
		case len(c.Policy) < 1 || len(c.Policy) > MostPolicyBytes:
			return &weir.OptionError{
				Option: "Charge.Policy", Value: fmt.Sprintf("of %d bytes", len(c.Policy)),
				Accepted: fmt.Sprintf("from 1 to %d bytes", MostPolicyBytes),
			}
		case len(c.Key) > MostKeyBytes:
			return &weir.OptionError{
				Option: "Charge.Key", Value: fmt.Sprintf("of %d bytes", len(c.Key)),
				Accepted: fmt.Sprintf("at most %d bytes", MostKeyBytes),
			}
		case c.N < 0 || c.N > algo.MaxPermits:
			return permitsError("Charge.N", c.N)
		case c.Queue < 0 || c.Queue > algo.MaxPermits:
			return permitsError("Charge.Queue", c.Queue)
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

// checkTaken checks that none of the charges can only be reserved.
func checkTaken(charges []Charge) error {
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

func checkExpiry(expiry time.Duration) error {
	if expiry < LeastExpiry || expiry > MostExpiry {
		return &weir.OptionError{Option: "Ask.Hold", Value: expiry.String(), Accepted: "from 1ms to 24h"}
	}
	return nil
}

// CheckSettle returns what is wrong with a call of Settle, or nil. The error is an *[weir.OptionError]. It is for
// implementations of [Home]: every call begins with it.
func CheckSettle(h Hold, actual []int64) error {
	if len(h.ID) > MostIDBytes {
		return &weir.OptionError{
			Option: "Hold.ID", Value: fmt.Sprintf("of %d bytes", len(h.ID)),
			Accepted: fmt.Sprintf("at most %d bytes", MostIDBytes),
		}
	}
	if h.ID == "" && len(h.Charges) > 1 {
		return &weir.OptionError{Option: "Hold.ID", Value: `""`, Accepted: fmt.Sprintf("given, for %d charges", len(h.Charges))}
	}
	if err := checkNames(h.Charges); err != nil {
		return err
	}
	if actual != nil && len(actual) != len(h.Charges) {
		return &weir.OptionError{
			Option: "actual", Value: fmt.Sprintf("%d numbers", len(actual)),
			Accepted: fmt.Sprintf("one for each of %d charges", len(h.Charges)),
		}
	}
	for _, n := range actual {
		if n < 0 || n > algo.MaxPermits {
			return permitsError("actual", n)
		}
	}
	if h.lent() && len(actual) == 1 && actual[0] > h.Charges[0].N {
		return &weir.OptionError{
			Option: "actual", Value: fmt.Sprint(actual[0]),
			Accepted: fmt.Sprintf("from 0 to what was lent, which is %d", h.Charges[0].N),
		}
	}
	return checkLimits(h.Charges)
}

// DecisionOf is the decision about a charge for which its algorithm returned r; most is the max number of permits at once. It is
// for implementations of [Home].
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
