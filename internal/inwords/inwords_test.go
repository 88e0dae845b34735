package inwords_test

import (
	"math"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/inwords"
)

// TestDuration: a duration is told in words, in two units at most, and never too short.
func TestDuration(t *testing.T) {
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{
		0:                                    "0 s",
		1:                                    "0.001 s",
		time.Millisecond:                     "0.001 s",
		50 * time.Millisecond:                "0.05 s",
		400 * time.Millisecond:               "0.4 s",
		400*time.Millisecond + 1:             "0.401 s",
		999 * time.Millisecond:               "0.999 s",
		time.Second - 1:                      "1 second",
		time.Second:                          "1 second",
		time.Second + 1:                      "1.1 seconds",
		1500 * time.Millisecond:              "1.5 seconds",
		10*time.Second - 1:                   "10 seconds",
		12*time.Second + 1:                   "13 seconds",
		time.Minute - 1:                      "1 minute",
		time.Minute:                          "1 minute",
		2*time.Minute + 5*time.Second:        "2 minutes 5 seconds",
		2*time.Minute + 5*time.Second + 1:    "2 minutes 6 seconds",
		time.Hour - 1:                        "1 hour",
		time.Hour + time.Second:              "1 hour 1 minute",
		3*time.Hour + 30*time.Minute:         "3 hours 30 minutes",
		day - 1:                              "1 day",
		day + 1:                              "1 day 1 hour",
		713871 * time.Second:                 "8 days 7 hours",
		8*day + 6*time.Hour:                  "8 days 6 hours",
		8*day + 23*time.Hour + 1:             "9 days",
		3660 * day:                           "3660 days",
		-(2*time.Minute + 5*time.Second):     "-2 minutes 5 seconds",
		math.MaxInt64:                        "106751 days 23 hours",
		math.MinInt64:                        "-106751 days 23 hours",
		23*time.Hour + 59*time.Minute + 1:    "1 day",
		59*time.Minute + 59*time.Second:      "59 minutes 59 seconds",
		time.Hour + 59*time.Minute + 1:       "2 hours",
		time.Minute + 59*time.Second + 1:     "2 minutes",
		100*time.Millisecond + 9*time.Second: "9.1 seconds",
	} {
		if got := inwords.Duration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 90 * time.Second: "1m30s", time.Minute: "1m", 24 * time.Hour: "24h", time.Hour + time.Second: "1h0m1s",
		-time.Hour: "-1h", 1500 * time.Millisecond: "1.5s",
	} {
		if got := inwords.Short(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

// TestAfter: from a day on the moment is told as well, in UTC, with the year if it is another one.
func TestAfter(t *testing.T) {
	now := time.Date(2026, 11, 22, 18, 0, 0, 0, time.FixedZone("here", 0))
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{
		400 * time.Millisecond:            "0.4 s",
		2*time.Minute + 5*time.Second:     "2 minutes 5 seconds",
		day - time.Hour:                   "23 hours",
		day:                               "1 day (23 November 18:00 UTC)",
		8*day + 6*time.Hour:               "8 days 6 hours (1 December 00:00 UTC)",
		8*day + 6*time.Hour - 1:           "8 days 6 hours (1 December 00:00 UTC)",
		8*day + 6*time.Hour + time.Second: "8 days 7 hours (1 December 00:00 UTC)",
		39*day + 6*time.Hour:              "39 days 6 hours (1 January 2027 00:00 UTC)",
	} {
		if got := inwords.After(d, now); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	for n, want := range map[int64]time.Duration{90: 90 * time.Second, 1 << 40: math.MaxInt64} {
		if got := inwords.Seconds(n); got != want {
			t.Errorf("%d seconds are %v, want %v", n, got, want)
		}
	}
	if got := inwords.After(2*day, time.Time{}); got != "2 days" {
		t.Errorf("%s after an unknown time", got)
	}
	if got, want := inwords.After(2*day, now.In(time.FixedZone("", 3600))), "2 days (24 November 18:00 UTC)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
