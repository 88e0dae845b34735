package ratelimitconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/internal/limits"
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
	// allowed. It is for UnitMultiplier units, where 0 stands for 1.
	RequestsPerUnit uint32
	Unit            Unit
	UnitMultiplier  uint32
	Name            string
	// Counted is how it is counted. It is the zero Limit if it is Unlimited.
	Counted weir.Limit
	// Replaces are the names of limits that do not hold in a request which this one applies to.
	Replaces []string
	// Unlimited tells that everything passes, and nothing is counted.
	Unlimited bool
	// Shadow tells that nothing is refused: the mode of the policy is policy.ModeShadow.
	Shadow bool
	// Quota tells that a request is refused only if all its quotas are. Each has to be asked apart from all others, and Counted
	// has one permit more than the file says: hits are allowed only if one is left after them, and hits that are not take what
	// there is.
	Quota bool
	// ShadowQuota tells that it is a quota of shadow mode, which no request reaches. Then Quota is not set.
	ShadowQuota bool
	// DetailedMetric and ValueToMetric are about the names of statistics.
	DetailedMetric, ValueToMetric bool
	// Metadata is for the client of a request that the limit allows: maps, lists, strings, numbers, booleans and nil. It is nil
	// if there is none.
	Metadata map[string]any
	// Source tells where the limit stands, such as "limits.yaml:12:5". It is "" for that of an override.
	Source string

	levels      []level // of its descriptor
	algorithm   Algorithm
	consistency policy.Consistency
	key         []part // what the key of its counter is made of
	grouped     bool   // its policy has other limits as well, so requests bring it
}

// Algorithm is how limits are counted.
type Algorithm uint8

// The algorithms.
const (
	// FixedWindow counts as envoyproxy/ratelimit does: in windows that begin with each minute, hour or day of UTC, each week on
	// Thursday 00:00, as the first day of 1970 was one, and each month and year, which are those of the calendar and not 30 and
	// 365 days. Windows of a second, and of several units, begin at any time.
	FixedWindow Algorithm = iota
	// TokenBucket lets permits come back evenly.
	TokenBucket
	// SlidingWindow counts the last unit of time, in ten segments.
	SlidingWindow
	// SlidingCounter counts it by two counters.
	SlidingCounter

	algorithms
)

var algorithmNames = [algorithms]string{"fixed_window", "token_bucket", "sliding_window", "sliding_counter"}

// String is the name as a file has it, such as "fixed_window".
func (a Algorithm) String() string {
	if a < algorithms {
		return algorithmNames[a]
	}
	return fmt.Sprintf("Algorithm(%d)", uint8(a))
}

// MarshalText is String.
func (a Algorithm) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText is the inverse of MarshalText. It reads "-" for "_" as well.
func (a *Algorithm) UnmarshalText(text []byte) error {
	if i := slices.Index(algorithmNames[:], strings.ReplaceAll(string(text), "-", "_")); i >= 0 {
		*a = Algorithm(i)
		return nil
	}
	return fmt.Errorf("weir: unknown algorithm %.40q: must be %s", text, yamlread.OneOf(algorithmNames[:]))
}

// mostPerSecond is the fastest rate there is: larger limits are counted as this one.
const mostPerSecond = 1_000_000_000

// plain reports whether the windows of limits have no place in the calendar.
func (a Algorithm) plain(unit Unit, multiplier uint32) bool {
	return a == FixedWindow && (unit == Second || multiplier > 1)
}

// mostMultiplier is how many units a limit may be for.
func (u Unit) mostMultiplier() int64 { return int64(algo.MaxPeriod / max(u.Duration(), 1)) }

// quota is limit for a quota. It has one permit more than the file says, which is never allowed: a request for more than the
// others is refused and takes what is left, so that the last one reports whether the quota was reached or exceeded.
func (a Algorithm) quota(n int64, unit Unit, multiplier uint32, burst int64) weir.Limit {
	if a != TokenBucket {
		return a.limit(n+1, unit, multiplier, burst)
	}
	l := a.limit(n, unit, multiplier, burst)
	if burst == 0 {
		burst = n
	}
	return limits.WithPermits(l, burst+1)
}

// limit is n requests per so many units, where 0 units are one. If n is 0, it is counted as one: see Match.Cost.
func (a Algorithm) limit(n int64, unit Unit, multiplier uint32, burst int64) weir.Limit {
	permits := max(n, 1)
	units := min(max(int64(multiplier), 1), unit.mostMultiplier())
	rate := weir.Rate{Permits: permits, Period: unit.Duration() * time.Duration(units)}
	if unit == Second {
		rate.Permits = min(permits, mostPerSecond*units)
	}
	switch a {
	case TokenBucket:
		return weir.TokenBucket(rate, burst)
	case SlidingWindow:
		return weir.SlidingWindow(rate, 0)
	case SlidingCounter:
		return weir.SlidingCounter(rate)
	case FixedWindow, algorithms:
	}
	if a.plain(unit, multiplier) {
		return weir.FixedWindow(rate)
	}
	calendar := algo.Calendar{Unit: calendarUnits[unit]}
	if unit == Week {
		calendar.Weekday = isoThursday
	}
	return weir.CalendarWindow(permits, calendar)
}

const isoThursday = int(time.Thursday)

var calendarUnits = [units]algo.CalendarUnit{
	Minute: algo.CalendarMinute, Hour: algo.CalendarHour, Day: algo.CalendarDay, Week: algo.CalendarWeek,
	Month: algo.CalendarMonth, Year: algo.CalendarYear,
}
