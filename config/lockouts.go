package config

import (
	"fmt"
	"math/big"
	"strings"
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
	// Requests is how many evenly spaced requests of cost 1 within Within lead to a lockout, once the burst is used up. It is
	// 0 if that cannot be told: all limits are of concurrency, or a number came from the environment.
	Requests int64 `json:"requests"`
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
	requests := new(big.Int)
	for _, l := range limits {
		hidden = hidden || f.shows(l.at.Path)
		if n := lockingRequests(&l.Limit.Limit, o); n != nil && (requests.Sign() == 0 || n.Cmp(requests) < 0) {
			requests = n
		}
	}
	in := "in each process, "
	if !p.Shared() {
		in = ""
	}
	switch {
	case hidden || r.Within == 0:
		r.Text = "locked out for " + length + notShown
	case requests.Sign() == 0:
		r.Text = fmt.Sprintf("%slocked out for %s by %s within %s, which depends on how long its requests take",
			in, length, plural(o.Refusals, "refusal"), yamlread.ShortDuration(o.Within))
	default:
		r.Requests = requests.Int64()
		r.Text = fmt.Sprintf("%slocked out for %s from about %s on (%s requests within %s)",
			in, length, spellPace(requests, o.Within), yamlread.Count(r.Requests), yamlread.ShortDuration(o.Within))
		if p.Cost != nil {
			r.Text += ", if each costs 1"
		}
	}
	return r
}

// lockingRequests returns how many evenly spaced requests within o.Within lead to a lockout by a limit, nil if that depends on
// how long they take.
//
// Of a token bucket, and of a sliding counter, permits come evenly: what they do not allow is refused. A window of length P
// with L permits allows L at its beginning and refuses the rest. Of a window of the lockout with the length W, k = W/P whole
// ones and a part are seen, so that n requests within W lead to N refusals as soon as (n - k*L) >= N, and as soon as the
// windows that are seen have N refusals: n/W*(k+1)*P - (k+1)*L >= N.
//
// Refusals in a row are those between two permits, or those of one window.
func lockingRequests(l *weir.Limit, o *policy.Lockout) *big.Int {
	var permits, period int64
	switch l.Algorithm() {
	case weir.AlgorithmConcurrency:
		return nil
	case weir.AlgorithmCalendarWindow:
		permits, period = l.Permits(), int64(longestOf(l.Calendar().Unit))
	default:
		permits, period = l.Rate().Permits, int64(l.Rate().Period)
	}
	n, w, p, c := big.NewInt(int64(o.Refusals)), big.NewInt(int64(o.Within)), big.NewInt(period), big.NewInt(permits)
	even := l.Algorithm() == weir.AlgorithmTokenBucket || l.Algorithm() == weir.AlgorithmSlidingCounter
	mul := func(a, b *big.Int) *big.Int { return new(big.Int).Mul(a, b) }
	add := func(a, b *big.Int) *big.Int { return new(big.Int).Add(a, b) }
	up := func(a, b *big.Int) *big.Int { // rounded up
		q, rest := new(big.Int).QuoRem(a, b, new(big.Int))
		if rest.Sign() > 0 {
			q.Add(q, big.NewInt(1))
		}
		return q
	}
	later := func(a, b *big.Int) *big.Int {
		if a.Cmp(b) > 0 {
			return a
		}
		return b
	}
	switch {
	case even && o.InARow: // N refusals between two permits
		return later(n, up(mul(mul(c, add(n, big.NewInt(1))), w), p))
	case even:
		return add(n, new(big.Int).Quo(mul(c, w), p))
	case o.InARow:
		return later(n, up(mul(add(n, c), w), p))
	default:
		k := new(big.Int).Quo(w, p)
		more := add(k, big.NewInt(1))
		return later(add(n, mul(k, c)), up(mul(add(n, mul(more, c)), w), mul(more, p)))
	}
}

// longestOf returns the length of the longest unit of a calendar.
func longestOf(u algo.CalendarUnit) time.Duration {
	const day = 24 * time.Hour
	return map[algo.CalendarUnit]time.Duration{
		algo.CalendarMinute: time.Minute, algo.CalendarHour: time.Hour, algo.CalendarDay: day, algo.CalendarWeek: 7 * day,
		algo.CalendarMonth: 31 * day, algo.CalendarQuarter: 92 * day, algo.CalendarYear: 366 * day,
	}[u]
}

// spellPace returns n within a duration as a rate, with two decimals, rounded up: "10.34/s".
func spellPace(n *big.Int, within time.Duration) string {
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{time.Second, "s"}, {time.Minute, "min"}, {time.Hour, "h"}, {24 * time.Hour, "day"}} {
		hundredths := new(big.Int).Mul(n, big.NewInt(100*int64(unit.length)))
		hundredths.Add(hundredths, big.NewInt(int64(within)-1)).Quo(hundredths, big.NewInt(int64(within)))
		if hundredths.Cmp(big.NewInt(100)) >= 0 || unit.name == "day" {
			whole, part := new(big.Int).QuoRem(hundredths, big.NewInt(100), new(big.Int))
			text := strings.TrimRight(fmt.Sprintf("%d.%02d", whole, part), "0")
			return strings.TrimSuffix(text, ".") + "/" + unit.name
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
