package ratelimitfields

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir"
)

// wholeNumber reads a number from 0 to 10^15 - 1 in decimal digits.
func wholeNumber(text string) (n int64, ok bool) {
	if text == "" || len(text) > 15 {
		return 0, false
	}
	for i := range len(text) {
		if !isDigit(text[i]) {
			return 0, false
		}
		n = n*10 + int64(text[i]-'0')
	}
	return n, true
}

// decimal reads a number such as 30 or 0.65 of a unit, rounded up to a nanosecond. What is longer than the longest duration
// is that.
func decimal(text string, unit time.Duration) (d time.Duration, ok bool) {
	whole, fraction, dotted := strings.Cut(text, ".")
	n, ok := wholeNumber(whole)
	if !ok || dotted && (fraction == "" || len(fraction) > 15) {
		return 0, false
	}
	if n > int64(math.MaxInt64)/int64(unit)-1 {
		return weir.Never, true
	}
	d = time.Duration(n) * unit
	if dotted {
		digits, ok := wholeNumber(fraction)
		if !ok {
			return 0, false
		}
		scale := math.Pow10(len(fraction))
		d += time.Duration(math.Ceil(float64(digits) / scale * float64(unit)))
	}
	return d, true
}

// secondsLong is n seconds, or the longest duration.
func secondsLong(n int64) time.Duration {
	if n > int64(math.MaxInt64/time.Second) {
		return weir.Never
	}
	return time.Duration(n) * time.Second
}

// Above which a number of seconds cannot be a wait, and must be a time since 1970: 2001 in seconds, in milliseconds and in
// microseconds.
const (
	unixSeconds      = 1_000_000_000
	unixMilliseconds = unixSeconds * 1000
	unixMicroseconds = unixMilliseconds * 1000
)

// untilReset reads a -Reset field: seconds, or such since 1970, perhaps in thousandths or millionths, "6m0s", or a date. It is 0
// for what is none of these.
func untilReset(text string, clock *serverClock) time.Duration {
	if whole, fraction, dotted := strings.Cut(text, "."); isNumber(whole) && (!dotted || isNumber(fraction)) {
		n, err := strconv.ParseInt(whole, 10, 64)
		switch {
		case err != nil:
			return 0
		case n >= unixMicroseconds:
			return clock.until(time.UnixMicro(n))
		case n >= unixMilliseconds:
			return clock.until(time.UnixMilli(n))
		case n >= unixSeconds:
			if dotted {
				n++
			}
			return clock.until(time.Unix(n, 0))
		}
		d, _ := decimal(text, time.Second)
		return d
	}
	if d, ok := goLike(text); ok {
		return d
	}
	for _, layout := range [...]string{time.RFC3339Nano, "2006-01-02 15:04:05Z07:00"} {
		if t, err := time.Parse(layout, text); err == nil {
			return clock.until(t)
		}
	}
	if t, err := http.ParseTime(text); err == nil {
		return clock.until(t)
	}
	return 0
}

func isNumber(text string) bool {
	for i := range len(text) {
		if !isDigit(text[i]) {
			return false
		}
	}
	return text != ""
}

// goLike reads a duration such as 6m0s, 2m59.56s, 20ms, or 1d2h.
func goLike(text string) (d time.Duration, ok bool) {
	if text == "" || len(text) > 40 || !isDigit(text[0]) {
		return 0, false
	}
	if days, rest, ok := strings.Cut(text, "d"); ok {
		n, ok := wholeNumber(days)
		if !ok || n >= int64(math.MaxInt64/(24*time.Hour)) {
			return 0, false
		}
		d = time.Duration(n) * 24 * time.Hour
		if text = rest; text == "" {
			return d, true
		}
	}
	rest, err := time.ParseDuration(text)
	if err != nil || rest < 0 || strings.ContainsAny(text, "+-") {
		return 0, false
	}
	return saturatingAdd(d, rest), true
}
