package tiers

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"

	"github.com/weirhq/weir"
)

// Attribute is what a handler asks for. A nil *Attribute asks for nothing: the handler has no limit of its own.
type Attribute struct {
	// RPS is how many requests a second each address may make in the long run. 0 and less mean: no limit of its own.
	RPS float64
	// Burst is how many requests an address may make at once. 0 and less mean that every request is refused.
	Burst float64
}

// place is where an attribute leads: to a decision that needs no bucket, or, from firstPair on, to a pair of tiers.
type place int

const (
	unlimited place = iota
	forbidden
	invalid
	firstPair
)

// place rounds an attribute. What is not a number is invalid, even beside an RPS that would mean no limit.
func (t *Tiers) place(a *Attribute) place {
	switch {
	case a == nil:
		return unlimited
	case math.IsNaN(a.RPS) || math.IsNaN(a.Burst):
		return invalid
	case a.RPS <= 0:
		return unlimited
	case a.Burst <= 0:
		return forbidden
	}
	rps, burst := 0, 0
	for rps < len(t.rps)-1 && t.rps[rps] < a.RPS {
		rps++
	}
	for burst < len(t.burst)-1 && float64(t.burst[burst]) < a.Burst {
		burst++
	}
	return firstPair + place(rps*len(t.burst)+burst)
}

// pair is what a place from firstPair on allows.
func (t *Tiers) pair(at place) pair {
	i := int(at - firstPair)
	return pair{t.rps[i/len(t.burst)], t.burst[i%len(t.burst)]}
}

// pair is a tier of requests per second and one of bursts.
type pair struct {
	rps   float64
	burst int
}

func (p pair) String() string {
	return strconv.FormatFloat(p.rps, 'f', -1, 64) + "/s burst " + strconv.Itoa(p.burst)
}

// Tier is an attribute that has been rounded, so that asking costs no rounding. It is made by [Tiers.Tier]. Tiers of equal
// rounded attributes are equal. The zero Tier has no limit.
type Tier struct {
	tiers *Tiers
	at    place
}

// Tier rounds what a handler asks for; call it when the handler is registered. RPS and Burst each go up to the next tier, or to
// the top one if they are above it, as infinity is. An attribute that is not a number is an error.
func (t *Tiers) Tier(a *Attribute) (Tier, error) {
	at := t.place(a)
	if at != invalid {
		return Tier{t, at}, nil
	}
	field, value := "RPS", a.RPS
	if !math.IsNaN(value) {
		field, value = "Burst", a.Burst
	}
	return Tier{t, at}, &weir.OptionError{Option: "tiers.Attribute." + field, Value: fmt.Sprint(value), Accepted: "a number"}
}

// Check is [Tiers.Check] for the attribute that the tier was made of.
func (t Tier) Check(op uint64, addr netip.Addr) weir.Decision {
	if t.tiers == nil {
		return unlimitedDecision("")
	}
	return t.tiers.check(t.at, op, addr)
}

// Limits returns what the attribute was rounded to. It returns false if there is no bucket: every request is allowed, or refused.
// When there are MaxPolicies limiters, another tier may serve it: see [Tiers].
func (t Tier) Limits() (rps float64, burst int, ok bool) {
	if t.at < firstPair {
		return 0, 0, false
	}
	p := t.tiers.pair(t.at)
	return p.rps, p.burst, true
}

// String is the rounded attribute, such as "8/s burst 4", or "unlimited", "forbidden" or "invalid".
func (t Tier) String() string {
	switch t.at {
	case unlimited:
		return "unlimited"
	case forbidden:
		return "forbidden"
	case invalid:
		return "invalid"
	default:
		return t.tiers.pair(t.at).String()
	}
}

// checkTiers returns an error if values are not ascending from low to high.
func checkTiers[T int | float64](option string, values []T, low, high T) error {
	if len(values) < 1 || len(values) > maxTiers {
		return &weir.OptionError{
			Option: option, Value: fmt.Sprintf("%d tiers", len(values)), Accepted: fmt.Sprintf("1 to %d tiers", maxTiers),
		}
	}
	for i, v := range values {
		name := fmt.Sprintf("%s[%d]", option, i)
		if math.IsNaN(float64(v)) || v < low || v > high {
			return &weir.OptionError{Option: name, Value: fmt.Sprint(v), Accepted: fmt.Sprintf("from %v to %v", low, high)}
		}
		if i > 0 && v <= values[i-1] {
			return &weir.OptionError{
				Option: name, Value: fmt.Sprint(v), Accepted: fmt.Sprintf("more than the tier before it, %v", values[i-1]),
			}
		}
	}
	return nil
}
