// Package inwords writes durations and counts for people.
package inwords

import (
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// units are those of a duration with the one below it, the longest first.
var units = [...]struct {
	length, below time.Duration
	noun, then    string
}{
	{day, time.Hour, "day", "hour"},
	{time.Hour, time.Minute, "hour", "minute"},
	{time.Minute, time.Second, "minute", "second"},
}

// Duration is d in its two longest units: "8 days 6 hours", "2 minutes 5 seconds", "12 seconds", and "1.5 seconds" or "0.4 s"
// where whole seconds tell too little. It is rounded up, so that what happens after d has happened by then.
func Duration(d time.Duration) string { return string(AppendDuration(nil, d)) }

// AppendDuration appends Duration(d) to b.
func AppendDuration(b []byte, d time.Duration) []byte {
	if d < 0 {
		b, d = append(b, '-'), -max(d, -1<<63+1)
	}
	switch {
	case d < time.Second && up(d, time.Millisecond) < time.Second:
		return append(appendSeconds(b, up(d, time.Millisecond)), " s"...)
	case d < 10*time.Second:
		d = up(d, 100*time.Millisecond)
		if b = appendSeconds(b, d); d == time.Second {
			return append(b, " second"...)
		}
		return append(b, " seconds"...)
	}
	d = up(d, time.Second)
	for i := range units {
		u := &units[i]
		if d < u.length {
			continue
		}
		if d = up(d, u.below); i > 0 && d >= units[i-1].length { // which is whole then
			u = &units[i-1]
		}
		b = appendCount(b, int64(d/u.length), u.noun)
		if rest := d % u.length; rest > 0 {
			b = appendCount(append(b, ' '), int64(rest/u.below), u.then)
		}
		return b
	}
	return appendCount(b, int64(d/time.Second), "second")
}

// After is Duration(d) and, from a day on, the moment that is d after now: "8 days 6 hours (1 December 00:00 UTC)". It is
// Duration alone if now is zero, as it is not known.
func After(d time.Duration, now time.Time) string { return string(AppendAfter(nil, d, now)) }

// AppendAfter appends After(d, now) to b.
func AppendAfter(b []byte, d time.Duration, now time.Time) []byte {
	b = AppendDuration(b, d)
	if d < day || now.IsZero() {
		return b
	}
	now = now.UTC()
	at, layout := now.Add(d).Round(time.Minute), " (2 January 15:04 UTC)"
	if at.Year() != now.Year() {
		layout = " (2 January 2006 15:04 UTC)"
	}
	return at.AppendFormat(b, layout)
}

// Short is d.String() without units that are zero: 24h, not 24h0m0s.
func Short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Seconds is n seconds, or the longest duration if there are more.
func Seconds(n int64) time.Duration {
	const most = 1<<63 - 1
	if n > int64(most/time.Second) {
		return most
	}
	return time.Duration(n) * time.Second
}

// up is d rounded up to a multiple of unit, if there is one.
func up(d, unit time.Duration) time.Duration {
	if rest := d % unit; rest > 0 && d <= 1<<63-1-unit {
		d += unit - rest
	}
	return d
}

func appendSeconds(b []byte, d time.Duration) []byte {
	return strconv.AppendFloat(b, d.Seconds(), 'f', -1, 64)
}

// Permits is "1 permit" or "3 permits".
func Permits(n int64) string { return string(appendCount(nil, n, "permit")) }

func appendCount(b []byte, n int64, noun string) []byte {
	b = append(append(strconv.AppendInt(b, n, 10), ' '), noun...)
	if n != 1 {
		b = append(b, 's')
	}
	return b
}
