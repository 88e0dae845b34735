package config

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/policy"
)

// LockoutRate is from which rate on a lockout locks a key out.
type LockoutRate struct {
	// Policy names the policy. Of is the tier or the key that it is for, such as "tier gold", "" for the limits of the policy.
	Policy string `json:"policy"`
	Of     string `json:"of,omitempty"`
	// Rate is how many evenly spaced requests of cost 1 per second it takes, about, once the burst is used up. It is 0 if that
	// cannot be told: all limits are of concurrency, or a number came from the environment.
	Rate float64 `json:"requests_per_second"`
	// Within is the window in which refusals count, in seconds; 0 if it came from the environment.
	Within float64 `json:"within"`
	// Text is that in words.
	Text string `json:"text"`
}

// LockoutRates returns that of each policy that locks out, in their order. Of tiers and keys there are 20 for a policy.
func (f *File) LockoutRates() []LockoutRate {
	var all []LockoutRate
	for _, p := range f.policies {
		if p.Lockout == nil || p.Mode != policy.ModeEnforce {
			continue
		}
		p.each(func(of string, limits []placedLimit) {
			r := f.lockoutRate(p, limits)
			r.Policy, r.Of = p.Name, of
			all = append(all, r)
		})
	}
	return all
}

// lockoutRate returns that of the limits of a policy.
func (f *File) lockoutRate(p *placedPolicy, limits []placedLimit) (r LockoutRate) {
	o, path := p.Lockout, p.at.Path+".lockout"
	length := f.show(path+".for", yamlread.ShortDuration(o.For))
	hidden := f.shows(path + ".refusals")
	if !f.shows(path + ".within") {
		r.Within = o.Within.Seconds()
	}
	rate := math.Inf(1)
	for _, l := range limits {
		hidden = hidden || f.shows(l.at.Path)
		rate = min(rate, lockingRate(&l.Limit.Limit, o))
	}
	refusals := plural(o.Refusals, "refusal")
	if o.InARow {
		refusals += " in a row"
	}
	in := "in each process, "
	if !p.Shared() {
		in = ""
	}
	switch {
	case hidden || r.Within == 0:
		r.Text = "locked out for " + length + notShown
	case math.IsInf(rate, 1):
		r.Text = fmt.Sprintf("%slocked out for %s by %s within %s, which depends on how long its requests take",
			in, length, refusals, yamlread.ShortDuration(o.Within))
	default:
		r.Rate = rate
		r.Text = fmt.Sprintf("%slocked out for %s from about %s on (%s within %s)",
			in, length, spellPace(rate), refusals, yamlread.ShortDuration(o.Within))
		if p.Cost != nil {
			r.Text += ", if each costs 1"
		}
	}
	return r
}

// lockingRate returns how many evenly spaced requests per second lead to a lockout by a limit; infinity if that depends on how
// long they take.
func lockingRate(l *weir.Limit, o *policy.Lockout) float64 {
	permits, period := float64(l.Permits()), l.Rate().Period.Seconds()
	switch l.Algorithm() {
	case weir.AlgorithmConcurrency:
		return math.Inf(1)
	case weir.AlgorithmCalendarWindow:
		return windowRate(permits, longestOf(l.Calendar().Unit).Seconds(), o)
	case weir.AlgorithmTokenBucket:
		between := period / float64(l.Rate().Permits)
		if permits == 1 {
			return lossyRate(between, o)
		}
		return windowRate(1, between, o)
	case weir.AlgorithmFixedWindow, weir.AlgorithmSlidingWindow:
	case weir.AlgorithmSlidingCounter: // its first window is a fixed one, and one permit less comes evenly in each of the others
		return min(windowRate(permits, period, o), windowRate(1, period/max(permits-1, 0.5), o))
	}
	return windowRate(permits, period, o)
}

// windowRate returns the rate that leads to a lockout by a limit of which the permits come all at once, at the beginning of each
// period. Of a token bucket one comes at a time.
//
// The first requests of a period are allowed, and the rest is refused. K periods with N refusals, at the rate r, have more than
// K*permits + N-1 requests: r > (permits + (N-1)/K) / period. Those from the first refusal to the last, with the allowed ones of
// K-1 periods between them, are within w: r >= (N-1 + (K-1)*permits) / w. The first falls with K, and the second rises: the
// lowest rate with both is where they meet. Refusals in a row are those of one period.
func windowRate(permits, period float64, o *policy.Lockout) float64 {
	more, within := float64(o.Refusals-1), o.Within.Seconds()
	rate := func(k float64) float64 {
		return max((permits+more/k)/period, (more+(k-1)*permits)/within)
	}
	if o.InARow {
		return rate(1)
	}
	// period*permits*K² + b*K - within*more = 0
	b := period*(more-permits) - within*permits
	root := math.Sqrt(b*b + 4*period*permits*within*more)
	meet := (root - b) / (2 * period * permits)
	if b > 0 {
		meet = 2 * within * more / (root + b)
	}
	return min(rate(max(1, math.Floor(meet))), rate(max(1, math.Ceil(meet))))
}

// lossyRate is windowRate of a bucket of one permit, which loses what comes while it is full: one request in m is allowed, where
// m requests take at least the time between two permits, and m-1 take less. So N refusals are those of N + (N-1)/(m-1) requests,
// rounded down, which are within w. Refusals in a row are those between two permits: m-1 >= N.
func lossyRate(between float64, o *policy.Lockout) float64 {
	more, within := float64(o.Refusals-1), o.Within.Seconds()
	if o.InARow {
		return windowRate(1, between, o)
	}
	needed := func(refused float64) float64 { return (more + math.Floor(more/refused)) / within }
	low, high := 1.0, max(more, math.Ceil(between*more/within))+1 // m-1
	if high > 1<<50 {
		return more / within // the first refusals come long before the second permit
	}
	for low < high {
		if at := math.Floor((low + high) / 2); needed(at) <= (at+1)/between {
			high = at
		} else {
			low = at + 1
		}
	}
	return max(low/between, needed(low))
}

// longestOf returns the length of the longest unit of a calendar.
func longestOf(u algo.CalendarUnit) time.Duration {
	const day = 24 * time.Hour
	return map[algo.CalendarUnit]time.Duration{
		algo.CalendarMinute: time.Minute, algo.CalendarHour: time.Hour, algo.CalendarDay: day, algo.CalendarWeek: 7 * day,
		algo.CalendarMonth: 31 * day, algo.CalendarQuarter: 92 * day, algo.CalendarYear: 366 * day,
	}[u]
}

// spellPace returns a rate per second in the shortest unit in which it is at least 1, with two decimals, rounded up: "10.34/s".
func spellPace(rate float64) string {
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{time.Second, "s"}, {time.Minute, "min"}, {time.Hour, "h"}, {24 * time.Hour, "day"}} {
		hundredths := math.Ceil(rate*unit.length.Seconds()*100 - 1e-6)
		if hundredths >= 100 || unit.name == "day" {
			return strconv.FormatFloat(hundredths/100, 'f', -1, 64) + "/" + unit.name
		}
	}
	return ""
}

// String is what is said of a lockout, behind the name of what it is for.
func (r LockoutRate) String() string {
	of := ""
	if r.Of != "" {
		of = ", " + r.Of
	}
	return r.Policy + of + ": " + r.Text
}
