package ratelimitconfig

import (
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

// Unit is the unit of time of a limit.
type Unit uint8

// The units.
const (
	UnitUnknown Unit = iota
	Second
	Minute
	Hour
	Day
	Week
	Month
	Year

	units
)

var unitNames = [units]string{"unknown", "second", "minute", "hour", "day", "week", "month", "year"}

// String is the name of the unit in lower case, as it is written in a file.
func (u Unit) String() string {
	if u < units {
		return unitNames[u]
	}
	return "Unit(" + strconv.Itoa(int(u)) + ")"
}

// unitNamed is the inverse of String. Case does not matter.
func unitNamed(s string) (Unit, bool) {
	for u := Second; u < units; u++ {
		if strings.EqualFold(s, unitNames[u]) {
			return u, true
		}
	}
	return UnitUnknown, false
}

// Duration is how long the unit is: a month has 30 days, a year 365. It is 0 for UnitUnknown.
func (u Unit) Duration() time.Duration {
	const day = 24 * time.Hour
	lengths := [units]time.Duration{0, time.Second, time.Minute, time.Hour, day, 7 * day, 30 * day, 365 * day}
	if u < units {
		return lengths[u]
	}
	return 0
}

// Limit is a limit of a file. It must not be changed.
type Limit struct {
	// Domain is the domain, Path the descriptor as the statistics of envoyproxy/ratelimit name it: "domain.key_value.key2".
	Domain, Path string
	// Policy is the name of the policy that counts it, PolicyBytes the same for those who need bytes, which must not be
	// changed. They are empty if the limit is Unlimited.
	Policy      string
	PolicyBytes []byte
	// RequestsPerUnit, Unit, UnitMultiplier and Name are those of the file. RequestsPerUnit may be 0: then nothing is
	// granted. It is for UnitMultiplier units, where 0 stands for 1.
	RequestsPerUnit uint32
	Unit            Unit
	UnitMultiplier  uint32
	Name            string
	// Counted is how it is counted. It is the zero Limit if it is Unlimited.
	Counted weir.Limit
	// Replaces are the names of limits that do not hold in a request which this one holds for.
	Replaces []string
	// Unlimited tells that everything passes, and nothing is counted.
	Unlimited bool
	// Shadow tells that nothing is refused: the mode of the policy is policy.ModeShadow.
	Shadow bool
	// Quota tells that a request is refused only if all its quotas are. Each has to be asked apart from all others, and Counted
	// has one permit more than the file says: hits are granted only if one is left after them, and hits that are not take what
	// there is.
	Quota bool
	// DetailedMetric and ValueToMetric are about the names of statistics.
	DetailedMetric, ValueToMetric bool
	// Metadata is for the client of a request that the limit admits: maps, lists, strings, numbers, booleans and nil. It is
	// nil if there is none.
	Metadata map[string]any
	// Source tells where the limit stands, such as "limits.yaml:12:5". It is "" for that of an override.
	Source string

	levels      []level // of its descriptor
	algorithm   Algorithm
	consistency policy.Consistency
	key         []part // what the key of its counter is made of
	grouped     bool   // its policy has other limits as well, so requests bring it
}
