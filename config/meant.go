package config

import (
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/config/yamlread"
)

// rateMeant is the rate that was meant by "10 per second", "100rps" or "5/15 minutes", "" if that is not clear.
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
