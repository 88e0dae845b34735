package ratelimitconfig

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/config/yamlread"
)

// limitOf reads the limit of a descriptor, if it has one.
func (d *decoder) limitOf(m *yamlread.Object, child *node, s *scope) {
	var l Limit
	d.modes(m, &l)
	f, ok := get(m, keyRateLimit)
	if !ok {
		for _, name := range []string{keyShadowMode, keyQuotaMode, keyMetadata} {
			if idle, ok := get(m, name); ok {
				d.Warn(idle, "has no effect: the descriptor has no limit of its own", "move it to the descriptor with the limit")
			}
		}
		return
	}
	l.Domain, l.Path, l.Source, l.levels = s.domain, s.path, child.at, s.levels
	if m, ok := d.read(f, limitKind); ok && d.readLimit(m, &l) {
		child.limit = &l
		d.limits = append(d.limits, &l)
	}
}

// modes reads what a descriptor says about its limit.
func (d *decoder) modes(m *yamlread.Object, l *Limit) {
	var quota yamlread.Value
	l.Shadow, _ = d.flag(m, keyShadowMode)
	l.Quota, quota = d.flag(m, keyQuotaMode)
	l.DetailedMetric, _ = d.flag(m, keyDetailedMetric)
	l.ValueToMetric, _ = d.flag(m, keyValueToMetric)
	if d.o.Shadow {
		l.Shadow = true
	} else if l.Shadow && l.Quota {
		d.Warn(quota, "is never reached beside shadow_mode, so that no quota refuses the call", "remove one of them")
	}
	l.Quota = l.Quota || d.o.Quota
	l.Quota, l.ShadowQuota = l.Quota && !l.Shadow, l.Quota && l.Shadow
	if f, ok := get(m, keyMetadata); ok {
		l.Metadata = d.metadata(f)
	}
}

// readLimit reads a limit, and reports whether it can be used.
func (d *decoder) readLimit(m *yamlread.Object, l *Limit) bool {
	before := d.Mistakes.Count()
	l.Unlimited, _ = d.flag(m, keyUnlimited)
	if f, ok := get(m, keyName); ok {
		l.Name, _ = d.text(f)
	}
	d.replaces(m, l)
	if l.Unlimited {
		d.unlimited(m)
	} else {
		d.limited(m, l)
	}
	return d.Mistakes.Count() == before
}

// unlimited refuses what makes no sense for a limit that has none.
func (d *decoder) unlimited(m *yamlread.Object) {
	for _, name := range []string{keyUnit, keyRequests, keyMultiplier, keyAlgorithm, keyBurst, keyConsistency} {
		f, ok := get(m, name)
		if !ok {
			continue
		}
		// As with envoyproxy/ratelimit, which does not look at what is no unit.
		if name == keyRequests || name == keyUnit && !isUnit(f) {
			d.Warn(f, "has no effect beside unlimited: true", "remove one of them")
		} else {
			d.Wrong(f, "must not stand beside unlimited: true", "remove one of them")
		}
	}
}

func isUnit(v yamlread.Value) bool {
	if !v.IsScalar() {
		return true // nor anything else
	}
	_, ok := unitNamed(v.Node.Value)
	return ok
}

// limited reads how much is allowed, and how it is counted.
func (d *decoder) limited(m *yamlread.Object, l *Limit) {
	d.amount(m, l)
	l.algorithm = d.o.Algorithm
	if f, ok := get(m, keyAlgorithm); ok {
		if text, ok := d.text(f); ok && l.algorithm.UnmarshalText([]byte(text)) != nil {
			d.Wrong(f, "is not an algorithm: must be "+yamlread.OneOf(algorithmNames[:]), "remove it to have "+
				l.algorithm.String())
		}
	}
	burst := d.burst(m, l)
	l.consistency = d.o.Consistency
	if f, ok := get(m, keyConsistency); ok {
		text, ok := d.text(f)
		switch {
		case !ok:
		case l.consistency.UnmarshalText([]byte(text)) != nil:
			d.Wrong(f, "is not a consistency: must be local, coherent, leased or optimistic",
				"remove it to have "+d.o.Consistency.String())
		case d.o.NoStore && l.consistency.Shared():
			d.Wrong(f, "needs a store, and there is none: processes share a limit through one",
				"start weir serve --store URL, or write consistency: local")
		}
	}
	if l.Unit == UnitUnknown {
		return
	}
	if l.Quota {
		l.Counted = l.algorithm.quota(int64(l.RequestsPerUnit), l.Unit, l.UnitMultiplier, burst)
	} else {
		l.Counted = l.algorithm.limit(int64(l.RequestsPerUnit), l.Unit, l.UnitMultiplier, burst)
	}
	if err := l.Counted.Check(); err != nil {
		d.Wrong(m.Itself(), strings.TrimPrefix(err.Error(), "weir: "), "choose a smaller burst, or a larger limit")
	}
}

// amount reads how many requests are allowed in how long.
func (d *decoder) amount(m *yamlread.Object, l *Limit) {
	names := unitNames[Second:]
	if f, ok := get(m, keyUnit); !ok {
		d.missing(m, "has no unit", "write unit: "+yamlread.OneOf(names))
	} else if text, ok := d.text(f); ok {
		if l.Unit, ok = unitNamed(text); !ok {
			fix := "write unit: minute, for instance"
			if near := yamlread.Nearest(text, names); near != "" {
				fix = "did you mean " + strconv.Quote(near) + "?"
			}
			d.Wrong(f, "is not a unit: must be "+yamlread.OneOf(names), fix)
		}
	}
	if f, ok := get(m, keyRequests); !ok {
		d.missing(m, "has no requests_per_unit", "write requests_per_unit: 100, for instance, or 0 to refuse everything")
	} else if n, ok := d.number(f, 0, math.MaxUint32); ok {
		l.RequestsPerUnit = uint32(n)
		if l.Unit == Second && n > mostPerSecond {
			d.Warn(f, fmt.Sprintf("is counted as %d per second", mostPerSecond), "write unlimited: true if there is no limit")
		}
	}
	if f, ok := get(m, keyMultiplier); ok {
		n, _ := d.number(f, 1, l.Unit.mostMultiplier())
		l.UnitMultiplier = uint32(min(n, math.MaxUint32))
	}
}

// burst reads how many permits a bucket holds, 0 if that is not said.
func (d *decoder) burst(m *yamlread.Object, l *Limit) (n int64) {
	f, ok := get(m, keyBurst)
	switch {
	case !ok:
	case l.algorithm != TokenBucket:
		d.Wrong(f, "is for token buckets, and this is "+l.algorithm.String(), "remove it, or write algorithm: token_bucket")
	case l.RequestsPerUnit == 0:
		d.Wrong(f, "has no effect where requests_per_unit is 0", "remove one of them")
	default:
		n, _ = d.number(f, 1, mostBurst)
	}
	return n
}

// replaces reads the names of limits that this one replaces.
func (d *decoder) replaces(m *yamlread.Object, l *Limit) {
	f, ok := get(m, keyReplaces)
	if !ok {
		return
	}
	for _, item := range d.items(f, "names of limits", "- name: the name of another limit") {
		m, ok := d.read(item, replacesKind)
		if !ok {
			continue
		}
		f, ok := get(m, keyName)
		if !ok {
			d.missing(m, "has no name", "write - name: the name of another limit")
			continue
		}
		switch name, ok := d.text(f); {
		case !ok:
		case name == "":
			d.empty(f, "write the name of another limit")
		case name == l.Name:
			d.Wrong(f, "is the name of the limit itself", "write the name of another limit")
		case !slices.Contains(l.Replaces, name):
			l.Replaces = append(l.Replaces, name)
			d.replacing = append(d.replacing, replacing{d.Reader, l.Domain, f})
		}
	}
}

// replacing is a name in a list of replaces.
type replacing struct {
	file   *yamlread.Reader
	domain string
	name   yamlread.Value
}

// checkReplaces warns of names that no limit has.
func (d *decoder) checkReplaces() {
	type named struct{ domain, name string }
	names := make(map[named]bool)
	for _, l := range d.limits {
		names[named{l.Domain, l.Name}] = true
	}
	for _, r := range d.replacing {
		if !names[named{r.domain, r.name.Node.Value}] {
			r.file.Warn(r.name, "no limit of the domain has this name", "see how it is spelled")
		}
	}
}
