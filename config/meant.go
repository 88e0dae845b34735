package config

import (
	"strings"

	"github.com/weirhq/weir"
)

// unitsMeant are the words that people write for units of time.
var unitsMeant = map[string]string{
	"ms": "ms", "msec": "ms", "millisecond": "ms", "milliseconds": "ms",
	"s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
	"m": "m", "min": "m", "mins": "m", "minute": "m", "minutes": "m",
	"h": "h", "hr": "h", "hrs": "h", "hour": "h", "hours": "h",
	"d": "d", "day": "d", "days": "d",
	"w": "w", "week": "w", "weeks": "w",
}

// durationMeant is the duration that somebody had in mind who wrote "15 minutes" or "1 hour", "" if that is not clear.
func durationMeant(text string) string {
	text = strings.ToLower(strings.TrimSpace(text))
	digits := strings.TrimLeft(text, "0123456789")
	number, word := text[:len(text)-len(digits)], strings.TrimSpace(digits)
	unit, ok := unitsMeant[word]
	if number == "" || !ok {
		return ""
	}
	if d, valid := parseDuration(number + unit); !valid || d == 0 {
		return ""
	}
	return number + unit
}

// rateMeant is the rate that somebody had in mind who wrote "10 per second", "100rps" or "5/15 minutes", "" if that is not clear.
func rateMeant(text string) string {
	text = strings.ToLower(strings.TrimSpace(text))
	for short, unit := range map[string]string{"rps": "second", "qps": "second", "rpm": "minute", "qpm": "minute"} {
		if number, ok := strings.CutSuffix(text, short); ok {
			text = number + "/" + unit
		}
	}
	for _, word := range []string{" per ", " in ", " every ", " a ", " an "} {
		text = strings.Replace(text, word, "/", 1)
	}
	permits, period, ok := strings.Cut(text, "/")
	if !ok {
		return ""
	}
	permits = strings.TrimSpace(permits)
	for _, word := range []string{"requests", "request", "reqs", "req", "permits", "calls"} {
		permits = strings.TrimSpace(strings.TrimSuffix(permits, word))
	}
	period = strings.TrimSpace(period)
	if unit, isUnit := unitsMeant[period]; isUnit {
		period = unit
	} else if period = durationMeant(period); period == "" {
		return ""
	}
	if period == "m" {
		period = "min"
	}
	meant := permits + "/" + period
	if _, err := weir.ParseRate(meant); err != nil {
		return ""
	}
	return meant
}
