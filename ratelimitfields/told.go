package ratelimitfields

import (
	"bytes"
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Told is what a server tells its clients about its limits in the header of a response.
type Told struct {
	// RetryAfter is for how long no request should come, and HasRetryAfter reports whether the server has said so.
	RetryAfter    time.Duration
	HasRetryAfter bool
	// Limits are those in the response, with what remains of them. At most 16.
	Limits []ToldLimit
	// Cached is true if the response came out of a cache. Its fields were meant for an earlier request: there are no Limits, and
	// no RetryAfter.
	Cached bool
}

// ToldLimit is one limit as a server tells it.
type ToldLimit struct {
	// Name is that of the policy, such as "burst", or what the fields of a vendor are about, such as "requests" or
	// "input-tokens". It is "" in forms that have no names.
	Name string
	// Unit is what is counted. It is "tokens" if the name contains that.
	Unit Unit
	// Limit is the quota, 0 if it is not told, and Window the time for which it is, 0 if it is not told.
	Limit  int64
	Window time.Duration
	// Remaining is what remains.
	Remaining int64
	// Reset is the time until more remains, 0 if it is not told.
	Reset time.Duration
	// PartitionKey is the share of the server that the limit belongs to, nil if there is none.
	PartitionKey []byte
}

// Tokens is what the limits of language models count beside requests.
const Tokens Unit = "tokens"

// mostTold is how many limits of a response are read.
const mostTold = 16

// Parse reads what a response tells about limits. now is the time at which it came. It never fails, and its work is linear in the
// size of the header. It understands
//
//   - Retry-After, in seconds or as a date, and retry-after-ms;
//   - RateLimit and RateLimit-Policy, as drafts since -08 write them (a list of policies), and as -07 does (limit=, remaining=,
//     reset=);
//   - the trio -Limit, -Remaining and -Reset of RateLimit, X-RateLimit and X-Rate-Limit, and X-RateLimit-Reset-After. A reset is
//     in seconds from now, in seconds, milliseconds or microseconds since 1970, or a date;
//   - trios for several limits, such as X-RateLimit-Remaining-Requests and -Tokens with a reset like "6m0s", and
//     Anthropic-RateLimit-Input-Tokens-Remaining with a reset as in RFC 3339.
//
// Times of day are compared with the field Date, which is the server's own clock, and only without it with now. A value that is
// negative, too large or otherwise wrong for its field is ignored; a structured field with one mistake in it is ignored as a
// whole. If a response tells a limit in several forms, the first form above counts.
func Parse(h http.Header, now time.Time) Told {
	var told Told
	if age, ok := first(h, "Age"); ok {
		if n, ok := wholeNumber(age); !ok || n > 0 {
			return Told{Cached: true}
		}
	}
	clock := &serverClock{header: h, now: now}
	told.RetryAfter, told.HasRetryAfter = retryAfter(h, clock)
	told.Limits = structured(h)
	if len(told.Limits) == 0 {
		told.Limits = numbered(h)
	}
	if len(told.Limits) == 0 {
		told.Limits = trio(h, clock)
	}
	told.Limits = append(told.Limits, vendors(h, clock)...)
	if len(told.Limits) > mostTold {
		told.Limits = told.Limits[:mostTold:mostTold]
	}
	return told
}

func first(h http.Header, name string) (string, bool) {
	if values := h[name]; len(values) > 0 {
		return strings.Trim(values[0], " \t"), true
	}
	return "", false
}

// serverClock is the time of the server when it answered, rounded down to a second: what is told as a time of day is then
// not told too early by a client whose clock is wrong. It is read only if it is needed.
type serverClock struct {
	header http.Header
	now    time.Time
	read   bool
}

// until is the time until t, at least 0. Sub saturates.
func (c *serverClock) until(t time.Time) time.Duration {
	if !c.read {
		c.read = true
		if text, ok := first(c.header, "Date"); ok {
			if date, err := http.ParseTime(text); err == nil {
				c.now = date
			}
		}
	}
	return max(t.Sub(c.now), 0)
}

func retryAfter(h http.Header, clock *serverClock) (time.Duration, bool) {
	if text, ok := first(h, "Retry-After-Ms"); ok {
		if d, ok := decimal(text, time.Millisecond); ok {
			return d, true
		}
	}
	text, ok := first(h, retryAfterField)
	if !ok {
		return 0, false
	}
	if d, ok := decimal(text, time.Second); ok {
		return d, true
	}
	if date, err := http.ParseTime(text); err == nil {
		return clock.until(date), true
	}
	return 0, false
}

// structured reads RateLimit and RateLimit-Policy as lists of policies.
func structured(h http.Header) []ToldLimit {
	states, ok := readList(h[rateLimitField])
	if !ok {
		return nil
	}
	limits := make([]ToldLimit, 0, min(len(states), mostTold))
	for i := range states {
		l, valid := stateOf(&states[i])
		if !valid {
			return nil
		}
		limits = append(limits, l)
	}
	policies, ok := readList(h[policyField])
	if !ok {
		return limits
	}
	for i := range policies {
		if !addPolicy(limits, &policies[i]) {
			for i := range limits { // the field is ignored as a whole
				limits[i].Limit, limits[i].Window, limits[i].Unit = 0, 0, Requests
			}
			break
		}
	}
	return limits
}

// stateOf is an item of RateLimit: "burst";r=50;t=30.
func stateOf(item *fieldItem) (l ToldLimit, ok bool) {
	if item.value.kind != stringItem && item.value.kind != tokenItem {
		return l, false
	}
	l.Name, l.Unit = item.value.text, Requests
	var seconds int64
	if l.Remaining, ok = natural(item, "r", true); !ok {
		return l, false
	}
	if seconds, ok = natural(item, "t", false); !ok {
		return l, false
	}
	l.Reset = secondsLong(seconds)
	l.PartitionKey, ok = partitionOf(item)
	return l, ok
}

// addPolicy adds what an item of RateLimit-Policy says, "burst";q=100;w=60, to the limit that it speaks of. It is not ok if
// the item is none.
func addPolicy(limits []ToldLimit, item *fieldItem) (ok bool) {
	if item.value.kind != stringItem && item.value.kind != tokenItem {
		return false
	}
	quota, ok := natural(item, "q", true)
	if !ok {
		return false
	}
	window, ok := natural(item, "w", false)
	if _, has := item.parameter("w"); !ok || has && window == 0 {
		return false
	}
	unit := Requests
	if v, has := item.parameter("qu"); has {
		if v.kind != stringItem && v.kind != tokenItem {
			return false
		}
		unit = Unit(v.text)
	}
	key, ok := partitionOf(item)
	if !ok {
		return false
	}
	for i := range limits {
		l := &limits[i]
		if l.Name == item.value.text && (key == nil || l.PartitionKey == nil || bytes.Equal(key, l.PartitionKey)) {
			l.Limit, l.Window, l.Unit = quota, secondsLong(window), unit
		}
	}
	return true
}

// natural is an Integer from 0 up in a parameter, which may be missing unless it is required.
func natural(item *fieldItem, name string, required bool) (n int64, ok bool) {
	v, has := item.parameter(name)
	if !has {
		return 0, !required
	}
	return v.integer, v.kind == integerItem && v.integer >= 0
}

func partitionOf(item *fieldItem) (key []byte, ok bool) {
	v, has := item.parameter("pk")
	if !has {
		return nil, true
	}
	return []byte(v.text), v.kind == bytesItem
}

// numbered reads RateLimit as draft -07 has it: limit=100, remaining=50, reset=5. RateLimit-Policy is then like 100;w=60.
func numbered(h http.Header) []ToldLimit {
	members, ok := readDictionary(h[rateLimitField])
	if !ok {
		return nil
	}
	l := ToldLimit{Unit: Requests}
	remains := false
	for i := range members {
		m := &members[i]
		switch m.key {
		case "limit", "remaining", "reset":
			if m.value.kind != integerItem || m.value.integer < 0 {
				return nil
			}
		default:
			continue
		}
		switch m.key {
		case "limit":
			l.Limit = m.value.integer
		case "remaining":
			l.Remaining, remains = m.value.integer, true
		default:
			l.Reset = secondsLong(m.value.integer)
		}
	}
	if !remains {
		return nil
	}
	if policies, ok := readList(h[policyField]); ok {
		l.Window = windowOf(policies, l.Limit)
	}
	return []ToldLimit{l}
}

// windowOf is the window of the quota with this size in a list such as 10;w=1, 100;w=60; 0 if there is none.
func windowOf(quotas []fieldItem, size int64) time.Duration {
	for i := range quotas {
		if v := quotas[i].value; v.kind == integerItem && v.integer == size {
			if w, ok := natural(&quotas[i], "w", true); ok {
				return secondsLong(w)
			}
		}
	}
	return 0
}

// trios are the families of the trio. The first that tells what remains counts.
var trios = [...]struct{ limit, remaining, reset, resetAfter string }{
	{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset", ""},
	{xLimitField, xRemainingField, xResetField, "X-Ratelimit-Reset-After"},
	{"X-Rate-Limit-Limit", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset", ""},
}

func trio(h http.Header, clock *serverClock) []ToldLimit {
	for i := range trios {
		names := &trios[i]
		text, ok := first(h, names.remaining)
		if !ok {
			continue
		}
		l := ToldLimit{Unit: Requests}
		if l.Remaining, ok = wholeNumber(text); !ok {
			continue
		}
		l.Limit, l.Window = toldLimit(h[names.limit])
		if text, ok = first(h, names.resetAfter); ok {
			l.Reset, ok = decimal(text, time.Second)
		}
		if text, has := first(h, names.reset); has && !ok {
			l.Reset = untilReset(text, clock)
		}
		return []ToldLimit{l}
	}
	return nil
}

// toldLimit reads a -Limit field: a number, after which the quotas may follow, as in 100, 100;w=60.
func toldLimit(values []string) (limit int64, window time.Duration) {
	items, ok := readList(values)
	if !ok || items[0].value.kind != integerItem || items[0].value.integer < 0 {
		return 0, 0
	}
	limit = items[0].value.integer
	return limit, windowOf(items, limit)
}

const (
	xRemainingPrefix = xRemainingField + "-"
	anthropicPrefix  = "Anthropic-Ratelimit-"
	remainingSuffix  = "-Remaining"
)

// vendors reads the trios of which a response has several: X-RateLimit-Remaining-Tokens, Anthropic-RateLimit-Tokens-Remaining.
func vendors(h http.Header, clock *serverClock) (limits []ToldLimit) {
	for field, values := range h {
		if len(limits) > 16*mostTold { // no server has so many
			return nil
		}
		var name, limit, reset string
		switch {
		case strings.HasPrefix(field, xRemainingPrefix):
			name = field[len(xRemainingPrefix):]
			limit, reset = xLimitField+"-"+name, xResetField+"-"+name
		case strings.HasPrefix(field, anthropicPrefix) && strings.HasSuffix(field, remainingSuffix):
			name = strings.TrimSuffix(field[len(anthropicPrefix):], "Remaining")
			limit, reset = anthropicPrefix+name+"Limit", anthropicPrefix+name+"Reset"
			name = strings.TrimSuffix(name, "-")
		default:
			continue
		}
		if name == "" || len(name) > 64 || len(values) == 0 {
			continue
		}
		l := ToldLimit{Name: strings.ToLower(name), Unit: Requests}
		if strings.Contains(l.Name, "token") {
			l.Unit = Tokens
		}
		var ok bool
		if l.Remaining, ok = wholeNumber(strings.Trim(values[0], " \t")); !ok {
			continue
		}
		l.Limit, l.Window = toldLimit(h[limit])
		if text, has := first(h, reset); has {
			l.Reset = untilReset(text, clock)
		}
		limits = append(limits, l)
	}
	slices.SortFunc(limits, func(a, b ToldLimit) int { return cmp.Compare(a.Name, b.Name) }) // maps have no order
	return limits
}
