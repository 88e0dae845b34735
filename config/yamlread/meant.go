package yamlread

import "strings"

// UnitsMeant are the words that people write for units of time.
var UnitsMeant = map[string]string{
	"ms": "ms", "msec": "ms", "millisecond": "ms", "milliseconds": "ms",
	"s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
	"m": "m", "min": "m", "mins": "m", "minute": "m", "minutes": "m",
	"h": "h", "hr": "h", "hrs": "h", "hour": "h", "hours": "h",
	"d": "d", "day": "d", "days": "d",
	"w": "w", "week": "w", "weeks": "w",
}

// DurationMeant is the duration that was meant by "15 minutes" or "1 hour", "" if that is not clear.
func DurationMeant(text string) string {
	text = strings.ToLower(strings.TrimSpace(text))
	digits := strings.TrimLeft(text, "0123456789")
	number, word := text[:len(text)-len(digits)], strings.TrimSpace(digits)
	unit, ok := UnitsMeant[word]
	if number == "" || !ok {
		return ""
	}
	if d, valid := ParseDuration(number + unit); !valid || d == 0 {
		return ""
	}
	return number + unit
}
