package config

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/config/yamlread"
)

// rateMeant is the rate that was meant by "10 per second", "100rps" or "5/15 minutes", "" if that is not clear.
func rateMeant(text string) string {
	permits, period := rateWords(text)
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
	permits, period, _ = strings.Cut(text, "/")
	permits = strings.TrimSpace(permits)
	for _, word := range []string{"requests", "request", "reqs", "req", "permits", "calls"} {
		permits = strings.TrimSpace(strings.TrimSuffix(permits, word))
	}
	return permits, strings.TrimSpace(period)
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
