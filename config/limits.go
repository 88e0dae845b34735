package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/policy"
)

const (
	mostLimits    = 8
	mostLimitName = 64
)

const (
	rateFix = "write 100/s, 8/min, 1000/24h or 0.5/s, for instance"
	rateIs  = "a rate, which is permits/period"
)

// limitSet are the limits of a policy, of its candidate, of a tier or of a key.
type limitSet struct {
	at yamlread.Value // where they stand

	limits []placedLimit
	ok     bool // all of them could be read
}

// placedLimit is a limit with its place.
type placedLimit struct {
	policy.Limit

	at, name yamlread.Value // name without a node if there is none

	permits  int64 // burst or permits, 0 if they are not written
	segments int   // as written, 0 if they are not
	ok       bool
}

// plain returns the limits as the engine has them.
func (s limitSet) plain() []policy.Limit {
	plain := make([]policy.Limit, 0, len(s.limits))
	for _, l := range s.limits {
		plain = append(plain, l.Limit)
	}
	return plain
}

// limitSet reads limit and burst, or limits. Whether there are any at all is for the caller to say.
func (d *decoder) limitSet(o *yamlread.Object) (set limitSet, given bool) {
	set = limitSet{at: o.Value, ok: true}
	short, hasShort := o.Get(keyLimit)
	long, hasLong := o.Get(keyLimits)
	burst, hasBurst := o.Get(keyBurst)
	switch {
	case hasShort && hasLong:
		d.Wrong(long, "limit and limits stand side by side: there must be one of them",
			"move limit into the list: - rate: ...")
		set.ok = false
		return set, true
	case hasShort:
		l := placedLimit{at: short}
		rate, okRate := d.rate(short)
		okBurst := true
		if hasBurst {
			l.permits, okBurst = permitCount.read(d, burst)
		}
		l.Limit.Limit = weir.TokenBucket(rate, l.permits)
		l.ok = okRate && okBurst && d.checkLimit(short, l.Limit.Limit)
		set.ok = l.ok
		set.limits = []placedLimit{l}
		return set, true
	case hasLong:
		if hasBurst {
			d.Wrong(burst, "burst belongs to limit: beside limits there must be none",
				"move it to the item of limits that it is for")
			set.ok = false
		}
		d.limitList(long, &set)
		return set, true
	case hasBurst:
		d.Wrong(burst, "burst belongs to limit, which is missing", "add limit: 100/s, for instance")
		set.ok = false
		return set, true
	}
	return set, false
}

// limitList reads the long form.
func (d *decoder) limitList(v yamlread.Value, set *limitSet) {
	const must = "a list of 1 to 8 limits"
	if meant := limitsMeant(itemMeant(v)); meant != "" {
		d.List(v, must, "write "+meant)
		set.ok = false
		return
	}
	items, ok := d.list(v, must)
	if !ok {
		set.ok = false
		return
	}
	if len(items) > mostLimits {
		d.Wrong(v, fmt.Sprintf("has %d limits: there must be 1 to %d", len(items), mostLimits),
			"make another policy of some of them")
		set.ok = false
		return
	}
	names := map[string]int{}
	for i, item := range items {
		l := d.limit(item)
		set.ok = set.ok && l.ok
		set.limits = append(set.limits, l)
		if l.Name == "" {
			continue
		}
		if first, twice := names[l.Name]; twice {
			d.Wrong(l.name, fmt.Sprintf("limits[%d] has this name already: names must differ within a policy", first),
				"choose another name")
			set.ok = false
		}
		names[l.Name] = i
	}
}

// rate reads a rate.
func (d *decoder) rate(v yamlread.Value) (weir.Rate, bool) {
	fix := rateFix
	if !v.IsScalar() {
		fix = rateMeant(v)
	}
	s, ok := d.Scalar(v, rateIs+" such as 100/s", fix)
	if !ok {
		return weir.Rate{}, false
	}
	r, err := weir.ParseRate(s.Text)
	switch {
	case err == nil:
		return r, true
	case s.FromEnv:
		d.Wrong(v, "is not a rate once the environment is put in: must be "+rateIs+
			", of 1 to 10^15 permits per 1ns to 3660 days", rateFix)
	case !strings.Contains(s.Text, "/"):
		d.Wrong(v, "must be "+rateIs, rateMeant(v))
	default:
		message := strings.TrimPrefix(err.Error(), "weir: ")
		message = strings.TrimPrefix(message, "rate "+strconv.Quote(s.Text)+": ")
		d.Wrong(v, "is not a rate: "+message, rateMeant(v))
	}
	return weir.Rate{}, false
}

// fits says which keys an algorithm has beside name and algorithm, and which of them it needs.
var fits = map[weir.Algorithm]struct{ needs, has []string }{
	weir.AlgorithmTokenBucket:    {needs: []string{keyRate}, has: []string{keyBurst}},
	weir.AlgorithmFixedWindow:    {needs: []string{keyRate}},
	weir.AlgorithmSlidingWindow:  {needs: []string{keyRate}, has: []string{"segments"}},
	weir.AlgorithmSlidingCounter: {needs: []string{keyRate}},
	weir.AlgorithmConcurrency:    {needs: []string{keyPermits}},
	weir.AlgorithmCalendarWindow: {
		needs: []string{keyPermits, keyEvery},
		has:   []string{"zone", keyMonth, keyDay, keyWeekday, keyHour, keyMinute},
	},
}

const tokenBucket = "token-bucket"

// algorithmHints are other names of the algorithms.
var algorithmHints = map[string]string{
	"bucket": tokenBucket, "leaky-bucket": tokenBucket, "gcra": tokenBucket, "tokens": tokenBucket,
	"window": "fixed-window", "fixed": "fixed-window", "sliding": "sliding-window", "sliding-log": "sliding-window",
	"counter": "sliding-counter", "concurrent": "concurrency", "semaphore": "concurrency",
	"calendar": "calendar-window",
}

func algorithmNames() []string {
	names := make([]string, 0, len(fits))
	for a := range weir.Algorithm(len(fits)) {
		names = append(names, a.String())
	}
	return names
}

// limit reads an item of limits.
func (d *decoder) limit(v yamlread.Value) placedLimit {
	l := placedLimit{at: v}
	before := d.Mistakes.Count()
	o, ok := fill(d, v, limitTable, &l)
	if !ok {
		return l
	}
	var (
		kind     weir.Algorithm
		rate     weir.Rate
		calendar algo.Calendar
		known    = true
	)
	if algorithm, given := o.Get(keyAlgorithm); given {
		var word string
		if word, known = d.Choice(algorithm, algorithmNames(), algorithmHints); known {
			kind = weir.Algorithm(slices.Index(algorithmNames(), word))
		}
	}
	if _, meant := o.Get("type"); meant { // which is a mistake, and says what fits
		known = false
	}
	if known {
		d.fit(o, kind)
	}
	if of, given := o.Get(keyRate); given {
		rate, _ = d.rate(of)
	}
	if !known || kind == weir.AlgorithmCalendarWindow {
		calendar = d.calendar(o)
	}
	l.Limit.Limit, _ = limits.Of(kind, rate, l.permits, l.segments, calendar)
	l.ok = !o.Failed && d.Mistakes.Count() == before && d.checkLimit(v, l.Limit.Limit)
	return l
}

func setPermits(l *placedLimit, n int64) { l.permits = n }

// limitName reads the name of a limit.
func (d *decoder) limitName(v yamlread.Value, l *placedLimit) {
	l.name = v
	l.Name, _ = d.Name(v, "a name of 1 to 64 printable ASCII characters without /", mostLimitName, "/")
}

// fit adds a mistake for each key that the algorithm needs and that is missing, and for each that it does not have.
func (d *decoder) fit(o *yamlread.Object, a weir.Algorithm) {
	needed := map[string]bool{keyName: true, keyAlgorithm: true}
	for _, key := range fits[a].needs {
		needed[key] = true
		if _, given := o.Get(key); given {
			continue
		}
		fix := "add " + key + ": 100/s, for instance"
		switch key {
		case keyPermits:
			fix = "add permits: 10, for instance"
		case keyEvery:
			fix = "add every: month, for instance"
		}
		o.Missing(key, "is missing: "+a.String()+" needs it", fix)
	}
	for _, key := range fits[a].has {
		needed[key] = true
	}
	for _, key := range o.Keys {
		if !slices.Contains(limitTable.Kind.Keys, key) || needed[key] {
			continue
		}
		field := o.Fields[key]
		fix := "remove it"
		switch {
		case key == keyBurst && a == weir.AlgorithmConcurrency:
			fix = `did you mean "permits"?`
		case key == keyBurst:
			fix = "remove it: a window holds the permits of its rate"
		case key == keyPermits && needed[keyBurst]:
			fix = `did you mean "burst"?`
		case key == keyRate && needed[keyPermits]:
			fix = "remove it: permits say how many there are"
		case key == "segments":
			fix = "remove it, or write algorithm: sliding-window"
		case ofCalendar(key):
			fix = "remove it, or write algorithm: calendar-window"
		}
		d.WrongAs(field.OfKey(), "", a.String()+" has no "+key, fix)
	}
}

// ofCalendar reports whether a key is for calendar windows only.
func ofCalendar(key string) bool {
	switch key {
	case keyEvery, "zone", keyMonth, keyDay, keyWeekday, keyHour, keyMinute:
		return true
	}
	return false
}

// checkLimit asks the limit itself, for what the keys one by one do not tell.
func (d *decoder) checkLimit(v yamlread.Value, l weir.Limit) bool {
	if l.Rate() == (weir.Rate{}) && l.Permits() == 0 {
		return true // its mistakes have been told
	}
	if err := l.Check(); err != nil {
		message := strings.TrimPrefix(err.Error(), "weir: ")
		if d.showsEnvironment(v.Path) {
			message = "cannot be used once the environment is put in"
		}
		d.Wrong(v, message, "choose a smaller burst, or fewer permits in a shorter period")
		return false
	}
	return true
}

// showsEnvironment reports whether a value at or below a path, or its short form beside it, came from the environment.
func (d *decoder) showsEnvironment(path string) bool {
	if _, env := d.Shown[path]; env {
		return true
	}
	path = strings.TrimSuffix(path, ".limit")
	for shown := range d.Shown {
		if strings.HasPrefix(shown, path+".") {
			return true
		}
	}
	return false
}
