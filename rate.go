package weir

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/inwords"
)

// Rate is a number of permits per period of time: 10 per second, 8 per minute, 1000 per 24 hours. Rates are kept as the
// two integers that were given, so 1 per 3 seconds is exact.
//
// A rate is valid with 1 to 10^15 permits per 1 ns to 3660 days, and at most 10^9 permits a second. The zero Rate is
// not valid.
type Rate struct {
	Permits int64
	Period  time.Duration
}

// Per is n permits per period.
func Per(n int64, period time.Duration) Rate { return Rate{n, period} }

// PerSecond is n permits per second.
func PerSecond(n int64) Rate { return Rate{n, time.Second} }

// PerMinute is n permits per minute.
func PerMinute(n int64) Rate { return Rate{n, time.Minute} }

// PerHour is n permits per hour.
func PerHour(n int64) Rate { return Rate{n, time.Hour} }

// PerDay is n permits per 24 hours.
func PerDay(n int64) Rate { return Rate{n, 24 * time.Hour} }

// Check returns an error that names what is out of range in r, or nil.
func (r Rate) Check() error {
	if value, accepted := r.flaw(); accepted != "" {
		return fmt.Errorf("weir: rate of %s: must be %s", value, accepted)
	}
	return nil
}

// flaw is what is wrong with r, and what would be accepted; nothing is wrong if that is "".
func (r Rate) flaw() (value, accepted string) {
	value = fmt.Sprintf("%s per %v", inwords.Permits(r.Permits), r.Period)
	switch {
	case r.Permits < 1 || r.Permits > algo.MaxPermits:
		return value, "from 1 to 10^15 permits"
	case r.Period < 1 || r.Period > algo.MaxPeriod:
		return value, "per 1ns to 87840h (3660 days)"
	case r.Permits > int64(r.Period):
		return value, "at most 1000000000 permits per second"
	}
	return "", ""
}

// option is the error of an option of this name that holds r, or nil.
func (r Rate) option(name string) error {
	if value, accepted := r.flaw(); accepted != "" {
		return &OptionError{name, value, accepted}
	}
	return nil
}

var units = map[string]time.Duration{
	"ns": time.Nanosecond, "us": time.Microsecond, "µs": time.Microsecond, "μs": time.Microsecond,
	"ms": time.Millisecond,
	"s":  time.Second, "sec": time.Second, "second": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute,
	"h": time.Hour, "hour": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour,
	"w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour,
}

var errRateSyntax = errors.New(`must be permits/period such as 10/s, 8/min, 1000/24h or 0.5/s`)

// ParseRate reads permits/period. Permits are an integer or a decimal number with at most 9 decimals (0.5/s is 1 per 2
// s, which must be a valid rate in its lowest terms), with single underscores between digits of the integer part if you
// like. The period is a unit (ns, us, ms, s, sec, second, m, min, minute, h, hour, d, day, w, week), an integer with a
// unit (24h, 7d), or a duration as time.ParseDuration reads it (1m30s).
func ParseRate(s string) (Rate, error) {
	permits, period, ok := strings.Cut(s, "/")
	if !ok {
		return Rate{}, fmt.Errorf("weir: rate %.40q: %w", s, errRateSyntax)
	}
	n, scale, err := parsePermits(strings.TrimSpace(permits))
	if err != nil {
		return Rate{}, fmt.Errorf("weir: rate %.40q: permits: %w", s, err)
	}
	d, err := parsePeriod(strings.TrimSpace(period))
	if err != nil {
		return Rate{}, fmt.Errorf("weir: rate %.40q: period: %w", s, err)
	}
	if scale > 1 { // 0.5/s is 5 per 10 s; lowest terms keep the period small
		if n < 1 {
			return Rate{}, fmt.Errorf("weir: rate %.40q: must be more than 0", s)
		}
		for _, prime := range []int64{2, 5} {
			for n%prime == 0 && scale%prime == 0 {
				n, scale = n/prime, scale/prime
			}
		}
		if int64(d) > math.MaxInt64/scale {
			return Rate{}, fmt.Errorf("weir: rate %.40q: less than 1 per 87840h (3660 days)", s)
		}
		d *= time.Duration(scale)
	}
	r := Rate{n, d}
	if value, accepted := r.flaw(); accepted != "" {
		if scale > 1 { // say where these numbers come from
			return Rate{}, fmt.Errorf("weir: rate %.40q: in whole numbers %s: must be %s", s, value, accepted)
		}
		return Rate{}, r.Check()
	}
	return r, nil
}

// parsePermits returns the number times scale, a power of ten.
func parsePermits(s string) (n, scale int64, err error) {
	whole, part, decimals := strings.Cut(s, ".")
	if len(part) > 9 || decimals && part == "" {
		return 0, 0, errors.New("must have from 1 to 9 decimals, or no point")
	}
	digits := strings.ReplaceAll(whole, "_", "")
	if digits == "" || strings.HasPrefix(whole, "_") || strings.HasSuffix(whole, "_") || strings.Contains(whole, "__") {
		return 0, 0, errRateSyntax
	}
	v, err := strconv.ParseUint(digits+part, 10, 63)
	if err != nil {
		return 0, 0, errors.New("must be a number above 0, up to 10^15")
	}
	scale = 1
	for range part {
		scale *= 10
	}
	return int64(v), scale, nil
}

func parsePeriod(s string) (time.Duration, error) {
	if d, ok := units[s]; ok {
		return d, nil
	}
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	if unit, ok := units[s[i:]]; ok && i > 0 {
		n, err := strconv.ParseInt(s[:i], 10, 64)
		if err != nil || n < 1 || n > int64(algo.MaxPeriod/unit) {
			return 0, errors.New("must be from 1ns to 87840h (3660 days)")
		}
		return time.Duration(n) * unit, nil
	}
	d, err := time.ParseDuration(s)
	switch {
	case s == "month" || s == "quarter" || s == "year":
		return 0, fmt.Errorf("a %s has no fixed length: must be one such as 30d, or a calendar window", s)
	case err != nil:
		return 0, errors.New("must be a unit (s, min, h, day, ...), a number with a unit (24h), or a duration (1m30s)")
	}
	return d, nil
}

// String is a form that ParseRate reads back to the same two integers: "10/s", "8/min", "1000/day", "5/1m30s".
func (r Rate) String() string {
	for _, u := range [...]struct {
		d    time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}} {
		if r.Period == u.d {
			return strconv.FormatInt(r.Permits, 10) + "/" + u.name
		}
	}
	return strconv.FormatInt(r.Permits, 10) + "/" + inwords.Short(r.Period)
}

// MarshalText is String for a valid rate.
func (r Rate) MarshalText() ([]byte, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	return []byte(r.String()), nil
}

// UnmarshalText is ParseRate.
func (r *Rate) UnmarshalText(text []byte) error {
	parsed, err := ParseRate(string(text))
	if err != nil {
		return err
	}
	*r = parsed
	return nil
}
