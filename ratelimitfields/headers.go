package ratelimitfields

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir"
)

// Fields are the header fields in which limits are told to clients. Combine them with |.
type Fields uint8

const (
	// RateLimit11 is the pair RateLimit and RateLimit-Policy in the syntax of draft-ietf-httpapi-ratelimit-headers-11,
	// which is that of the drafts since -08. A draft that changes the syntax becomes a constant of its own. It is the
	// default.
	RateLimit11 Fields = 1 << iota
	// XRateLimit is the trio X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, the last in seconds from now. The
	// trio has one limit only: the first.
	XRateLimit
	// XRateLimitUnix is XRateLimit, with X-RateLimit-Reset in seconds since 1970. They exclude each other.
	XRateLimitUnix
	// NoFields writes only Retry-After, and keeps the numbers, and the names of policies, out of bodies: where clients must not
	// know names. Use it alone.
	NoFields

	allFields = RateLimit11 | XRateLimit | XRateLimitUnix | NoFields
)

// Headers writes limits into header fields. The zero value writes those of the current draft. It must not be changed while it is
// in use, and is then safe for concurrent use.
//
// A limit is written as r, what remains, and t, the seconds in which a client can use no more than r:
//
//   - On an allowed request, t is ResetAfter, rounded up. A client that spreads r over t, or waits for t once r is 0, is not
//     refused unless others use the same limit. t is left out if nothing has been used, and where permits do not come back with
//     time.
//   - On a refused request, Retry-After is RetryAfter, rounded up, and at least 1. Clients must obey it rather than t, and it
//     must not come before t ends. So t is the same, and that of limits which did not refuse is at most that: RetryAfter is the
//     wait for some permits, ResetAfter that for all of them.
//   - Where no wait helps ([weir.Never]), or the wait is not known (a RetryAfter of 0, which a [weir.Concurrency] returns), there
//     is no Retry-After.
type Headers struct {
	// Fields are the fields to write. Default: RateLimit11.
	Fields Fields
	// MaxRemaining is the max r, so that a client is not invited to use a large limit at once: from 1. Default: 0, no bound.
	MaxRemaining int64
	// MaxWindow is the max t before Jitter: from 1 s, in whole seconds. Where t is longer, r becomes the share that falls into
	// MaxWindow if what remains is spread evenly, and at least 1 if anything remains. With a minute, r=900;t=36000 becomes
	// r=1;t=60. Of r=0 t alone is shorter: a client that comes back then is told anew. Retry-After is not affected. Default: 0,
	// no bound.
	MaxWindow time.Duration
	// Jitter is the max time that is added, at random, to t and to Retry-After, so that clients which were refused together do
	// not come back together: from 0 to 24 h. One response adds the same to both. Default: 0.
	Jitter time.Duration
	// Random is where jitter comes from: numbers from 0 up to, not including, 1. It must be safe for concurrent use.
	// Default: rand.Float64 of math/rand/v2.
	Random func() float64
}

// State is the state of one of several [Policies]: an item of the field RateLimit.
type State struct {
	// Policy is the place of the policy in Policies, from 0.
	Policy int
	// Remaining is what remains. A negative number is written as 0.
	Remaining int64
	// Reset is the time until everything is back. Default: 0, which is left out.
	Reset time.Duration
	// PartitionKey is the share of the server that the request belongs to; nil for that of the policy. A key of more than 1024
	// bytes is left out. It is sent to the client: it must not contain anything secret.
	PartitionKey []byte
}

// Check returns an error that names the field that cannot be used, or nil.
func (h *Headers) Check() error {
	switch f := h.Fields; {
	case f > allFields, f&NoFields != 0 && f != NoFields, f&XRateLimit != 0 && f&XRateLimitUnix != 0:
		return optionError("Headers.Fields", fmt.Sprintf("%#b", f),
			"a combination of RateLimit11 and XRateLimit or XRateLimitUnix, or NoFields")
	case h.MaxRemaining < 0:
		return optionError("Headers.MaxRemaining", fmt.Sprint(h.MaxRemaining), "from 1, or 0 for no bound")
	case h.MaxWindow < 0, h.MaxWindow%time.Second != 0:
		return optionError("Headers.MaxWindow", h.MaxWindow.String(), "from 1s in whole seconds, or 0 for no bound")
	case h.Jitter < 0, h.Jitter > 24*time.Hour:
		return optionError("Headers.Jitter", h.Jitter.String(), "from 0 to 24h")
	}
	return nil
}

func (h *Headers) fields() Fields {
	if h.Fields == 0 {
		return RateLimit11
	}
	return h.Fields
}

// SetAdmitted writes the state of limits into the header of the response to an allowed request. The first state is that of the
// limit with the least room.
//
// If dst has such fields already, because a request passes several limits one after the other, the items are added to them; of
// the trio, the one with less remaining stays. SetAdmitted allocates one string and one slice, and what the map needs.
func (h *Headers) SetAdmitted(dst http.Header, policies *Policies, states ...State) {
	h.set(dst, policies, states, false, 0)
}

// SetRefused writes the state of limits and Retry-After into the header of the response to a refused request. The first state is
// that of the limit that refused it with the longest wait, retryAfter. It returns the seconds of Retry-After, 0 if it is left
// out. The fields that an earlier limit has set are kept as by SetAdmitted, but the trio and Retry-After are replaced, and no
// window ends after Retry-After.
func (h *Headers) SetRefused(dst http.Header, policies *Policies, retryAfter time.Duration, states ...State) (seconds int64) {
	return h.set(dst, policies, states, true, retryAfter)
}

// The names of the fields as the keys of an http.Header.
const (
	rateLimitField  = "Ratelimit"
	policyField     = "Ratelimit-Policy"
	retryAfterField = "Retry-After"
	xLimitField     = "X-Ratelimit-Limit"
	xRemainingField = "X-Ratelimit-Remaining"
	xResetField     = "X-Ratelimit-Reset"
)

// Written are the fields of one response. The zero value has none; it can be used again and again, and then allocates nothing.
type Written struct {
	buf   []byte // the values, one behind the other
	parts fieldParts
}

// fieldParts say which parts of a buffer are the values of which fields.
type fieldParts struct {
	keys   [6]string
	ends   [6]int
	count  int
	shared string // the value of RateLimit-Policy where it is always the same, so that it needs no copy
}

// Len returns how many fields there are.
func (w *Written) Len() int { return w.parts.length() }

func (f *fieldParts) length() int {
	if f.shared != "" {
		return f.count + 1
	}
	return f.count
}

// Name returns the name of a field, from 0 to Len, in canonical form.
func (w *Written) Name(i int) string { return w.parts.name(i) }

func (f *fieldParts) name(i int) string {
	if i == f.count {
		return policyField
	}
	return f.keys[i]
}

// AppendValue appends the value of a field, from 0 to Len.
func (w *Written) AppendValue(dst []byte, i int) []byte {
	f := &w.parts
	if i == f.count {
		return append(dst, f.shared...)
	}
	start := 0
	if i > 0 {
		start = f.ends[i-1]
	}
	return append(dst, w.buf[start:f.ends[i]]...)
}

// Reset forgets the fields.
func (w *Written) Reset() { w.buf, w.parts.count, w.parts.shared = w.buf[:0], 0, "" }

func (f *fieldParts) add(key string, end int) {
	f.keys[f.count], f.ends[f.count] = key, end
	f.count++
}

// WriteAdmitted writes what SetAdmitted does for a header without such fields.
func (h *Headers) WriteAdmitted(to *Written, policies *Policies, states ...State) {
	to.Reset()
	to.buf, _ = h.write(to.buf, &to.parts, nil, policies, states, false, 0)
}

// WriteRefused writes what SetRefused does for a header without such fields.
func (h *Headers) WriteRefused(to *Written, policies *Policies, retryAfter time.Duration, states ...State) (seconds int64) {
	to.Reset()
	to.buf, seconds = h.write(to.buf, &to.parts, nil, policies, states, true, retryAfter)
	return seconds
}

func (h *Headers) set(
	dst http.Header, policies *Policies, states []State, refused bool, retryAfter time.Duration,
) (seconds int64) {
	var (
		scratch [320]byte
		parts   fieldParts
	)
	buf, seconds := h.write(scratch[:0], &parts, dst, policies, states, refused, retryAfter)
	if before := dst[rateLimitField]; seconds > 0 && len(before) > 0 {
		within := make([]string, len(before)) // the values may be those of other headers as well
		for i := range before {
			within[i] = withinWindow(before[i], seconds)
		}
		dst[rateLimitField] = within
	}
	if parts.count > 0 {
		parts.store(dst, string(buf))
	}
	return seconds
}

// write appends the values of the fields that are to be set in dst, and adds their parts to f.
func (h *Headers) write(
	buf []byte, f *fieldParts, dst http.Header, policies *Policies, states []State, refused bool, retryAfter time.Duration,
) (values []byte, seconds int64) {
	jitter := h.jitter()
	known := refused && retryAfter > 0 && retryAfter != weir.Never
	if known {
		seconds = ceilSeconds(saturatingAdd(retryAfter, jitter))
	} else {
		retryAfter = 0
	}
	fields := h.fields()
	if fields&RateLimit11 != 0 && len(states) > 0 {
		for i := range states {
			if i > 0 {
				buf = append(buf, ", "...)
			}
			buf = h.appendState(buf, policies, states, i, retryAfter, jitter)
		}
		f.add(rateLimitField, len(buf))
		if hasPartitionKey(states) || policies.field == "" {
			buf = policies.appendField(buf, states)
			f.add(policyField, len(buf))
		} else {
			f.shared = policies.field
		}
	}
	if known {
		buf = appendInteger(buf, seconds)
		f.add(retryAfterField, len(buf))
	}
	if fields&(XRateLimit|XRateLimitUnix) != 0 && len(states) > 0 {
		remaining, reset := h.told(states[0], 0, retryAfter, jitter)
		if refused || !tellsLess(dst, remaining) {
			buf = appendInteger(buf, policies.items[states[0].Policy].Quota)
			f.add(xLimitField, len(buf))
			buf = appendInteger(buf, remaining)
			f.add(xRemainingField, len(buf))
			if fields&XRateLimitUnix != 0 {
				reset = ceilSeconds(time.Duration(time.Now().UnixNano())) + reset
			}
			buf = appendInteger(buf, reset)
			f.add(xResetField, len(buf))
		}
	}
	return buf, seconds
}

// withinWindow is a value of RateLimit whose items have no window of more seconds, as Retry-After must not come before the end of
// one.
func withinWindow(value string, seconds int64) string {
	const window = ";t="
	quoted := false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == ';' && !quoted && strings.HasPrefix(value[i:], window):
			first := i + len(window)
			end := first
			for end < len(value) && value[end] >= '0' && value[end] <= '9' {
				end++
			}
			if t, err := strconv.ParseInt(value[first:end], 10, 64); err == nil && t > seconds {
				value = value[:first] + strconv.FormatInt(seconds, 10) + value[end:]
			}
		}
	}
	return value
}

// store sets the fields in dst, whose values are parts of one string.
func (f *fieldParts) store(dst http.Header, all string) {
	slots := make([]string, f.length())
	start := 0
	for i := range slots {
		if i == f.count {
			slots[i] = f.shared
		} else {
			slots[i] = all[start:f.ends[i]]
			start = f.ends[i]
		}
		switch key := f.name(i); key {
		case rateLimitField, policyField:
			if old := dst[key]; len(old) > 0 {
				dst[key] = append(old, slots[i])
				continue
			}
			fallthrough
		default:
			dst[key] = slots[i : i+1 : i+1]
		}
	}
}

func hasPartitionKey(states []State) bool {
	for i := range states {
		if states[i].PartitionKey != nil {
			return true
		}
	}
	return false
}

// appendState appends the item of states[i].
func (h *Headers) appendState(
	dst []byte, policies *Policies, states []State, i int, retryAfter, jitter time.Duration,
) []byte {
	policy := states[i].Policy
	dst = append(dst, policies.items[policy].name...)
	remaining, window := h.told(states[i], i, retryAfter, jitter)
	dst = append(dst, ";r="...)
	dst = appendInteger(dst, remaining)
	if window > 0 {
		dst = append(dst, ";t="...)
		dst = appendInteger(dst, window)
	}
	return appendPartitionKey(dst, policies.partitionKey(policy, states))
}

// told is what clients are told of a state, the place of which is i. A retryAfter of 0 means that there is none.
func (h *Headers) told(s State, i int, retryAfter, jitter time.Duration) (remaining, seconds int64) {
	window := max(s.Reset, 0)
	switch {
	case retryAfter > 0 && i == 0:
		window = retryAfter
	case retryAfter > 0:
		window = min(window, retryAfter)
	}
	remaining = held(s.Remaining)
	if h.MaxWindow > 0 && window > h.MaxWindow {
		remaining = share(remaining, ceilSeconds(h.MaxWindow), ceilSeconds(window))
		window = h.MaxWindow
	}
	if h.MaxRemaining > 0 {
		remaining = min(remaining, h.MaxRemaining)
	}
	if window > 0 {
		window = saturatingAdd(window, jitter)
	}
	return remaining, ceilSeconds(window)
}

// share is n x part / whole, rounded down, and at least 1 if n is; part is less than whole.
func share(n, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(part))
	quotient, _ := bits.Div64(hi, lo, uint64(whole))
	return max(int64(quotient), min(n, 1))
}

// tellsLess reports whether dst has a trio with less than remaining.
func tellsLess(dst http.Header, remaining int64) bool {
	old := dst[xRemainingField]
	if len(old) == 0 {
		return false
	}
	n, err := strconv.ParseInt(old[0], 10, 64)
	return err == nil && n < remaining
}

func (h *Headers) jitter() time.Duration {
	if h.Jitter == 0 {
		return 0
	}
	random := rand.Float64
	if h.Random != nil {
		random = h.Random
	}
	return min(max(time.Duration(random()*float64(h.Jitter)), 0), h.Jitter)
}

func saturatingAdd(a, b time.Duration) time.Duration {
	if sum := a + b; sum >= a {
		return sum
	}
	return weir.Never
}

// ceilSeconds is d in seconds, rounded up.
func ceilSeconds(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return seconds
}
