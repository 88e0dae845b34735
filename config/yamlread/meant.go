package yamlread

import (
	"regexp"
	"strconv"
	"strings"
)

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

// BooleanMeant is true or false, as a word that people write for it means, "" if it is none.
func BooleanMeant(text string) string {
	switch strings.ToLower(text) {
	case "yes", "on", "y", "true":
		return "true"
	case "no", "off", "n", "false":
		return "false"
	}
	return ""
}

var (
	grouped = regexp.MustCompile(`^[1-9]\d{0,2}(,\d{3})+$`)
	scaled  = regexp.MustCompile(`^([1-9]\d*)(?:k|m|e\+?(\d{1,2}))$`)
)

// NumberMeant is the whole number that was meant by "1k", "1e6" or "1,000", "" if it is none of these.
func NumberMeant(text string) string {
	text = strings.ToLower(strings.TrimSpace(text))
	if grouped.MatchString(text) {
		return strings.ReplaceAll(text, ",", "")
	}
	found := scaled.FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	zeros, _ := strconv.Atoi(found[2])
	switch text[len(text)-1] {
	case 'k':
		zeros = 3
	case 'm':
		zeros = 6
	}
	return found[1] + strings.Repeat("0", zeros)
}
