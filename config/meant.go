package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/internal/limits"
)

// RateMeant is the rate that was meant by a text that is none, such as "10 per second", "100rps", "1k/s", "10-M" or
// "5/15 minutes", "" if that is not clear.
func RateMeant(text string) string {
	permits, period := rateWords(text)
	if number := yamlread.NumberMeant(permits); number != "" {
		permits = number
	}
	if unit, isUnit := yamlread.UnitsMeant[period]; isUnit {
		period = unit
	} else if period = yamlread.DurationMeant(period); period == "" {
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

// calendarMeant is the limit that was meant by "10000/month", which is no rate: a month has no fixed length. "" if it is none.
func calendarMeant(text string) string {
	permits, period := rateWords(text)
	period = strings.TrimSuffix(strings.TrimSuffix(period, "s"), "ly")
	n, isNumber := yamlread.Integer(permits)
	if !isNumber || n < 1 || period != "month" && period != "quarter" && period != "year" {
		return ""
	}
	return fmt.Sprintf("limits: [{algorithm: calendar-window, permits: %d, every: %s}]", n, period)
}

// hyphenRate is a rate of ulule/limiter: 10-S, 1000-M.
var hyphenRate = regexp.MustCompile(`^(\d+)-([smhd])$`)

// rateWords are the permits and the period of a rate in words; there is no period if it is none.
func rateWords(text string) (permits, period string) {
	text = strings.ToLower(strings.TrimSpace(text))
	for short, unit := range map[string]string{"rps": "second", "qps": "second", "rpm": "minute", "qpm": "minute"} {
		if number, ok := strings.CutSuffix(text, short); ok {
			text = number + "/" + unit
		}
	}
	for _, word := range []string{" per ", " in ", " every ", " a ", " an "} {
		text = strings.Replace(text, word, "/", 1)
	}
	text = hyphenRate.ReplaceAllString(text, "$1/$2")
	permits, period, _ = strings.Cut(text, "/")
	permits = strings.TrimSpace(permits)
	for _, word := range []string{"requests", "request", "reqs", "req", "permits", "calls", "r"} {
		permits = strings.TrimSpace(strings.TrimSuffix(permits, word))
	}
	return permits, strings.TrimSpace(period)
}

// rateMeant is what to do about a value that is no rate.
func rateMeant(v yamlread.Value) string {
	text, item := v.Node.Value, itemMeant(v)
	permits, _, _ := strings.Cut(text, "/")
	n, isNumber := yamlread.Integer(text)
	meant := cmp.Or(RateMeant(text), calendarMeant(text))
	switch {
	case isNumber && n > 0 && n <= 1_000_000_000:
		meant = fmt.Sprintf("%d/s or %d/min, for instance", n, n)
	case permits != "" && strings.Trim(permits, "0.") == "":
		meant = "deny: true in a rule to refuse all of its requests"
	case meant != "" || item == nil:
	case v.Key.Value == keyRate:
		meant = strings.Join(item, " and ")
	default:
		meant = strings.ReplaceAll(limitsMeant(item), ", "+keyBurst, " and "+keyBurst)
	}
	if meant == "" {
		return rateFix
	}
	return "write " + meant
}

const (
	periodWord = "period"
	windowWord = "window"
)

// limitWords are keys by which other programs say how many permits there are, in which period, or how many in the period of the
// word.
var limitWords = map[string]string{
	keyPermits: keyPermits, keyRate: keyPermits, keyLimit: keyPermits, "requests": keyPermits, "requests_per_unit": keyPermits,
	"max": keyPermits, "max_requests": keyPermits, "average": keyPermits, "count": keyPermits, "points": keyPermits,
	periodWord: periodWord, windowWord: periodWord, "unit": periodWord, "duration": periodWord, "interval": periodWord,
	"per": periodWord,
	"rps": "s", "qps": "s", "rpm": keyMinute, "qpm": keyMinute,
}

// itemMeant are the keys of the item of limits that a text or a mapping stands for, in the words of another program, or in those
// of weir at another place: nil if that is not clear.
func itemMeant(v yamlread.Value) []string {
	if v.IsList() {
		return nil
	}
	if v.IsScalar() {
		text := v.Node.Value
		if _, err := weir.ParseRate(text); err == nil {
			return []string{keyRate + ": " + text}
		} else if meant := RateMeant(text); meant != "" {
			return []string{keyRate + ": " + meant}
		}
		l, _ := weir.ParseLimit(text)
		return itemOf(l)
	}
	written := map[string]string{}
	for i := 0; i+1 < len(v.Node.Content); i += 2 {
		key, value := v.Node.Content[i].Value, v.Node.Content[i+1].Value
		written[key] = value
		switch word := limitWords[key]; word {
		case "":
		case keyPermits, periodWord:
			written[word] = value
		default:
			written[keyPermits], written[periodWord] = value, word
		}
	}
	algorithm := cmp.Or(written[keyAlgorithm], written["type"], tokenBucket)
	kind := weir.Algorithm(slices.Index(algorithmNames(), cmp.Or(algorithmHints[algorithm], algorithm)))
	segments, _ := yamlread.Integer(written["segments"])
	permits, _ := yamlread.Integer(written[keyBurst])
	text := written[keyPermits]
	if kind == weir.AlgorithmConcurrency {
		permits, _ = yamlread.Integer(text)
	}
	if period := written[periodWord]; period != "" {
		text += "/" + period
		if _, isNumber := yamlread.Integer(period); isNumber {
			text += "s"
		}
	}
	rate, _ := weir.ParseRate(cmp.Or(RateMeant(text), text))
	l, _ := limits.Of(kind, rate, permits, int(segments), algo.Calendar{})
	return itemOf(l)
}

// itemOf are the keys of the item of limits that is a limit, nil for one that cannot be used or has too many.
func itemOf(l weir.Limit) []string {
	if l.Check() != nil {
		return nil
	}
	algorithm, permits := keyAlgorithm+": "+l.Algorithm().String(), fmt.Sprintf("%s: %d", keyPermits, l.Permits())
	rate := keyRate + ": " + l.Rate().String()
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		if l.Permits() == l.Rate().Permits {
			return []string{rate}
		}
		return []string{rate, fmt.Sprintf("%s: %d", keyBurst, l.Permits())}
	case weir.AlgorithmConcurrency:
		return []string{algorithm, permits}
	case weir.AlgorithmFixedWindow, weir.AlgorithmSlidingCounter:
		return []string{algorithm, rate}
	case weir.AlgorithmSlidingWindow:
		return []string{algorithm, rate, fmt.Sprintf("segments: %d", l.Segments())}
	case weir.AlgorithmCalendarWindow: // where its windows begin is more than a line
	}
	return nil
}

// limitsMeant is what to write in a policy for such an item, "" for none: limit and burst, or limits.
func limitsMeant(item []string) string {
	if len(item) == 0 {
		return ""
	}
	all := strings.Join(item, ", ")
	if rate, short := strings.CutPrefix(all, keyRate); short {
		return keyLimit + rate
	}
	return keyLimits + ": [{" + all + "}]"
}

// policyMeant is what to write for a policy, or another choice of limits, that is only a limit; and for keys of it that say how
// many permits there are in how long.
func policyMeant(v yamlread.Value, key string) string {
	if key != "" && key != keyAlgorithm && limitWords[key] == "" {
		return ""
	}
	meant := limitsMeant(itemMeant(v))
	if key == "" && meant != "" && v.Key != nil {
		return yamlread.Shorten(v.Key.Value) + ": {" + meant + "}"
	}
	return meant
}

// limitMeant is the same for an item of limits.
func limitMeant(v yamlread.Value, key string) string {
	if key != "" && limitWords[key] == "" {
		return ""
	}
	item := itemMeant(v)
	if key == "" && item != nil {
		return "{" + strings.Join(item, ", ") + "}"
	}
	for _, part := range item {
		if name, _, _ := strings.Cut(part, ":"); name == keyPermits || name == keyRate && key != keyLimit {
			return part
		}
	}
	return ""
}

// nginxMeant are variables of nginx.
var nginxMeant = map[string]string{
	"$binary_remote_addr": nameClientIP, "$remote_addr": nameClientIP, "$host": nameHost, "$uri": namePath,
	"$request_method": nameMethod,
}

var headerWord = regexp.MustCompile("^headers?[:.]([!#$%&'*+.^_`|~0-9A-Za-z-]+)$")

// keyMeant is the key that the words of --by stand for, of which an expression is none: "" if the text is something else.
func keyMeant(text string) string {
	var meant []string
	words := strings.Split(text, ",")
	for _, word := range words {
		switch word = strings.TrimSpace(word); {
		case word == "path" || word == "method" || word == "host":
			word = "request." + word
		case nginxMeant[word] != "":
			word = nginxMeant[word]
		case word == "none" && len(words) == 1:
			return `'"all"'`
		case word == nameClientNet+":24/64":
			word = nameClientNet
		case headerWord.MatchString(word):
			word = fmt.Sprintf("request.headers[%q]", strings.ToLower(headerWord.FindStringSubmatch(word)[1]))
			if len(words) > 1 {
				word = "'" + strings.ReplaceAll(word, "'", "''") + "'" // brackets end a list of YAML
			}
		case word == nameClient || word == nameClientIP || word == nameClientNet:
			if len(words) == 1 {
				return ""
			}
		default:
			return ""
		}
		meant = append(meant, word)
	}
	if len(meant) == 1 {
		return meant[0]
	}
	return "[" + strings.Join(meant, ", ") + "]"
}
