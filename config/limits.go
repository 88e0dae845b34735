package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
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
	value // where they stand

	limits []placedLimit
	ok     bool // all of them could be read
}

// placedLimit is a limit with its place.
type placedLimit struct {
	value
	policy.Limit

	permits  bool // burst or permits are written
	segments int  // as written, 0 if they are not
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
func (d *decoder) limitSet(o *object) (set limitSet, given bool) {
	set = limitSet{value: o.value, ok: true}
	short, hasShort := o.get(keyLimit)
	long, hasLong := o.get(keyLimits)
	burst, hasBurst := o.get(keyBurst)
	switch {
	case hasShort && hasLong:
		d.wrong(long, "limit and limits stand side by side: there must be one of them",
			"move limit into the list: - rate: ...")
		set.ok = false
		return set, true
	case hasShort:
		l := placedLimit{value: short}
		rate, okRate := d.rate(short)
		permits, okBurst := int64(0), true
		l.permits = hasBurst
		if hasBurst {
			permits, okBurst = d.number(burst, 1, algo.MaxPermits, "a number of permits")
		}
		l.Limit.Limit = weir.TokenBucket(rate, permits)
		l.ok = okRate && okBurst && d.checkLimit(short, l.Limit.Limit)
		set.ok = l.ok
		set.limits = []placedLimit{l}
		return set, true
	case hasLong:
		if hasBurst {
			d.wrong(burst, "burst belongs to limit: beside limits there must be none",
				"move it to the item of limits that it is for")
			set.ok = false
		}
		d.limitList(long, &set)
		return set, true
	case hasBurst:
		d.wrong(burst, "burst belongs to limit, which is missing", "add limit: 100/s, for instance")
		set.ok = false
		return set, true
	}
	return set, false
}

// limitList reads the long form.
func (d *decoder) limitList(v value, set *limitSet) {
	items, ok := d.list(v, false, "a list of 1 to 8 limits")
	if !ok {
		set.ok = false
		return
	}
	if len(items) > mostLimits {
		d.wrong(v, fmt.Sprintf("has %d limits: there must be 1 to %d", len(items), mostLimits),
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
			d.wrong(l.nameOf(d), fmt.Sprintf("limits[%d] has this name already: names must differ within a policy", first),
				"choose another name")
			set.ok = false
		}
		names[l.Name] = i
	}
}

// nameOf is the value of its name.
func (l placedLimit) nameOf(d *decoder) value {
	if o, ok := d.mappingOf(l.value); ok {
		if name, ok := o.get(keyName); ok {
			return name
		}
	}
	return l.value
}

// mappingOf reads a mapping that was read before, without adding its mistakes once more.
func (d *decoder) mappingOf(v value) (*object, bool) {
	quiet := &decoder{source: d.source, env: d.env, shown: map[string]string{}, budget: mostAliased}
	return quiet.mapping(v, "")
}

// rate reads a rate.
func (d *decoder) rate(v value) (weir.Rate, bool) {
	s, ok := d.scalar(v, rateIs+" such as 100/s", rateFix)
	if !ok {
		return weir.Rate{}, false
	}
	r, err := weir.ParseRate(s.text)
	switch {
	case err == nil:
		return r, true
	case s.env:
		d.wrong(v, "is not a rate once the environment is put in: must be "+rateIs+
			", of 1 to 10^15 permits per 1ns to 3660 days", rateFix)
	case !strings.Contains(s.text, "/"):
		fix := rateFix
		if n, isNumber := integer(s.text); isNumber && n > 0 && n <= 1_000_000_000 {
			fix = fmt.Sprintf("write %d/s or %d/min, for instance", n, n)
		} else if meant := rateMeant(s.text); meant != "" {
			fix = "write " + meant
		}
		d.wrong(v, "must be "+rateIs, fix)
	default:
		message := strings.TrimPrefix(err.Error(), "weir: ")
		message = strings.TrimPrefix(message, "rate "+strconv.Quote(s.text)+": ")
		fix := rateFix
		if meant := rateMeant(s.text); meant != "" {
			fix = "write " + meant
		}
		d.wrong(v, "is not a rate: "+message, fix)
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
func (d *decoder) limit(v value) placedLimit {
	l := placedLimit{value: v}
	o, ok := d.object(v, limitKind)
	if !ok {
		return l
	}
	l.ok = !o.failed
	and := func(ok bool) { l.ok = l.ok && ok }
	if name, given := o.get(keyName); given {
		l.Name, ok = d.name(name, "a name of 1 to 64 printable ASCII characters without /", mostLimitName, "/")
		and(ok)
	}
	var (
		kind     weir.Algorithm
		rate     weir.Rate
		permits  int64
		calendar algo.Calendar
		known    = true
	)
	if algorithm, given := o.get("algorithm"); given {
		var word string
		if word, known = d.choice(algorithm, algorithmNames(), algorithmHints); known {
			kind = weir.Algorithm(slices.Index(algorithmNames(), word))
		}
	}
	and(known)
	if known {
		and(d.fit(o, kind))
	}
	if of, given := o.get(keyRate); given {
		rate, ok = d.rate(of)
		and(ok)
	}
	for _, key := range []string{keyBurst, keyPermits} {
		if n, given := o.get(key); given {
			permits, ok = d.number(n, 1, algo.MaxPermits, "a number of permits")
			l.permits = true
			and(ok)
		}
	}
	if of, given := o.get("segments"); given {
		n, valid := d.number(of, 1, algo.MaxSegments, "a number of segments")
		l.segments = int(n)
		and(valid)
	}
	if !known || kind == weir.AlgorithmCalendarWindow {
		calendar, ok = d.calendar(o)
		and(ok)
	}
	l.Limit.Limit, _ = limits.Of(kind, rate, permits, l.segments, calendar)
	l.ok = l.ok && d.checkLimit(v, l.Limit.Limit)
	return l
}

// fit adds a mistake for each key that the algorithm needs and that is missing, and for each that it does not have.
func (d *decoder) fit(o *object, a weir.Algorithm) bool {
	ok := true
	needed := map[string]bool{keyName: true, "algorithm": true}
	for _, key := range fits[a].needs {
		needed[key] = true
		if _, given := o.get(key); given {
			continue
		}
		fix := "add " + key + ": 100/s, for instance"
		switch key {
		case keyPermits:
			fix = "add permits: 10, for instance"
		case keyEvery:
			fix = "add every: month, for instance"
		}
		o.missing(key, "is missing: "+a.String()+" needs it", fix)
		ok = false
	}
	for _, key := range fits[a].has {
		needed[key] = true
	}
	for _, key := range o.keys {
		if _, known := limitKind.keys[key]; !known || needed[key] {
			continue
		}
		field := o.fields[key]
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
		case limitKind.calendar(key):
			fix = "remove it, or write algorithm: calendar-window"
		}
		m := d.about(value{field.key, field.path, field.key}, a.String()+" has no "+key, fix)
		m.Value = ""
		d.add(m)
		ok = false
	}
	return ok
}

// calendar reports whether a key is for calendar windows only.
func (k kind) calendar(key string) bool {
	switch key {
	case keyEvery, "zone", keyMonth, keyDay, keyWeekday, keyHour, keyMinute:
		return true
	}
	return false
}

// checkLimit asks the limit itself, for what the keys one by one do not tell.
func (d *decoder) checkLimit(v value, l weir.Limit) bool {
	if l.Rate() == (weir.Rate{}) && l.Permits() == 0 {
		return true // its mistakes have been told
	}
	if err := l.Check(); err != nil {
		message := strings.TrimPrefix(err.Error(), "weir: ")
		if d.showsEnvironment(v.path) {
			message = "cannot be used once the environment is put in"
		}
		d.wrong(v, message, "choose a smaller burst, or fewer permits in a shorter period")
		return false
	}
	return true
}

// showsEnvironment reports whether a value at or below a path, or its short form beside it, came from the environment.
func (d *decoder) showsEnvironment(path string) bool {
	if _, env := d.shown[path]; env {
		return true
	}
	path = strings.TrimSuffix(path, ".limit")
	for shown := range d.shown {
		if strings.HasPrefix(shown, path+".") {
			return true
		}
	}
	return false
}

// name reads a name.
func (d *decoder) name(v value, must string, most int, except string) (string, bool) {
	s, ok := d.text(v, must, "write a short name")
	if !ok {
		return "", false
	}
	if !isName(s.text, most, except) {
		d.wrong(v, "must be "+must, "use letters, digits and hyphens")
		return "", false
	}
	return s.text, true
}
