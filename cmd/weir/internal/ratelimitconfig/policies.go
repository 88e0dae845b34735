package ratelimitconfig

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

// alike is what limits have in common that one policy can count.
type alike struct {
	algorithm     Algorithm
	plain         bool // a window of which there is none in the calendar
	shadow, quota bool
	consistency   policy.Consistency
}

func (l *Limit) alike() alike {
	return alike{l.algorithm, l.algorithm.plain(l.Unit, l.UnitMultiplier), l.Shadow, l.Quota, l.consistency}
}

// String tells kinds apart: "fixed_window:plain:shadow:coherent".
func (a alike) String() string {
	words := []string{a.algorithm.String()}
	if a.plain {
		words = append(words, "plain")
	}
	if a.shadow {
		words = append(words, "shadow")
	}
	if a.quota {
		words = append(words, "quota")
	}
	if a.consistency.Shared() {
		words = append(words, a.consistency.String())
	}
	return strings.Join(words, ":")
}

// fewKeys is how many keys a policy tracks that needs one only: as few as make no difference to its size.
const fewKeys = 1024

// addPolicies makes the policies of the limits.
func (d *decoder) addPolicies(c *Config) {
	if len(c.domains) == 0 {
		return
	}
	names := &namer{taken: d.o.Taken, used: make(map[string]bool)}
	var counted []*Limit
	for _, l := range d.limits {
		if !l.Unlimited {
			counted = append(counted, l)
		}
	}
	if len(counted) <= d.o.Policies {
		for _, l := range counted {
			d.ownPolicy(c, names, l)
		}
	} else {
		d.sharedPolicies(c, names, counted)
	}
	d.overridePolicies(c, names)
}

// ownPolicy is the policy of one limit.
func (d *decoder) ownPolicy(c *Config, names *namer, l *Limit) {
	l.key = keyOfOwn(l.levels)
	p := d.policy(names.name(l.Path, l.identity()), l.alike())
	p.Source = l.Source
	p.Limits = []policy.Limit{{Limit: l.Counted}}
	if len(l.key) == 0 {
		p.Key, p.MaxKeys = nil, fewKeys
		if d.o.MaxKeys > 0 {
			p.MaxKeys = min(p.MaxKeys, d.o.MaxKeys)
		}
	}
	l.countedBy(p.Name)
	c.Policies = append(c.Policies, p)
}

// sharedPolicies are policies of many limits, which requests bring.
func (d *decoder) sharedPolicies(c *Config, names *namer, counted []*Limit) {
	type group struct {
		domain string
		alike  alike
	}
	of := func(l *Limit) group { return group{l.Domain, l.alike()} }
	groups := make(map[group]string)
	for _, l := range counted {
		groups[of(l)] = ""
	}
	if len(groups) > d.o.Policies {
		of = func(l *Limit) group { return group{alike: l.alike()} }
		clear(groups)
	}
	for _, l := range counted {
		g := of(l)
		if groups[g] == "" {
			title := g.domain
			if title == "" {
				title = "ratelimit"
			}
			title += ":" + g.alike.String()
			p := d.policy(names.name(title, title), g.alike)
			p.Limits = []policy.Limit{{Limit: g.alike.one(), Name: "limit"}}
			p.LimitBy = policy.NamedLimit()
			groups[g] = p.Name
			c.Policies = append(c.Policies, p)
		}
		l.key, l.grouped = keyOfGroup(l.Domain, l.levels), true
		l.countedBy(groups[g])
	}
}

// one is one permit in a while: what holds where a request brings no limit.
func (a alike) one() weir.Limit {
	if a.plain {
		return a.algorithm.limit(1, Second, 1, 0)
	}
	return a.algorithm.limit(1, Minute, 1, 0)
}

// overrides are the policies of limits that descriptors bring themselves.
type overrides struct {
	algorithm    Algorithm
	shadow       bool
	plain, other policyName
}

type policyName struct {
	text  string
	bytes []byte
}

// overridePolicies are those for overrides, in all domains.
func (d *decoder) overridePolicies(c *Config, names *namer) {
	a := alike{algorithm: d.o.Algorithm, shadow: d.o.Shadow, consistency: d.o.Consistency}
	add := func() policyName {
		title := "override:" + a.String()
		p := d.policy(names.name(title, title), a)
		p.Limits = []policy.Limit{{Limit: a.one(), Name: "limit"}}
		p.LimitBy = policy.NamedLimit()
		c.Policies = append(c.Policies, p)
		return policyName{p.Name, []byte(p.Name)}
	}
	c.overrides = overrides{algorithm: a.algorithm, shadow: a.shadow, other: add()}
	c.overrides.plain = c.overrides.other
	if a.algorithm == FixedWindow {
		a.plain = true
		c.overrides.plain = add()
	}
}

// policy is one without limits.
func (d *decoder) policy(name string, a alike) policy.Policy {
	p := policy.Policy{Name: name, Key: policy.NamedKey(), MaxKeys: d.o.MaxKeys, Consistency: a.consistency, Fail: d.o.Fail}
	if a.shadow {
		p.Mode = policy.ModeShadow
	}
	if p.Fail == policy.FailLocal && !p.Consistency.Shared() {
		p.Fail = policy.FailClosed // nothing can fail
	}
	return p
}

func (l *Limit) countedBy(name string) { l.Policy, l.PolicyBytes = name, []byte(name) }

// identity tells descriptors apart whose paths are the same.
func (l *Limit) identity() string {
	text := escaped(nil, l.Domain, inValue)
	for _, level := range l.levels {
		text = escaped(append(text, '|'), level.key, inKey)
		text = escaped(append(text, '='), level.value, inValue)
		if level.vary {
			text = append(text, '*', '*')
		}
	}
	return string(text)
}

const longestName = 128

// namer makes names of policies.
type namer struct {
	taken func(string) bool
	used  map[string]bool
}

// name is a text as the name of a policy, or what is left of it: characters that names cannot have become "_". A name that
// was changed, or is used already, has the hash of identity behind it, so that it does not depend on what else there is.
func (n *namer) name(text, identity string) string {
	safe := make([]byte, 0, longestName)
	for i := range len(text) {
		c := text[i]
		if c < ' ' || c > '~' || c == '/' {
			c = '_'
		}
		safe = append(safe, c)
	}
	name := string(safe)
	if name != text || len(name) > longestName || n.isUsed(name) {
		h := fnv.New64a()
		_, _ = h.Write([]byte(identity)) // it never fails
		stem := name
		name = cut(stem, fmt.Sprintf("~%010x", h.Sum64()&(1<<40-1)))
		for i := 2; n.isUsed(name); i++ {
			name = cut(stem, fmt.Sprintf("~%010x.%d", h.Sum64()&(1<<40-1), i))
		}
	}
	n.used[name] = true
	return name
}

// cut puts a suffix behind a text that is cut off so that both have room.
func cut(stem, suffix string) string { return stem[:min(len(stem), longestName-len(suffix))] + suffix }

func (n *namer) isUsed(name string) bool { return n.used[name] || n.taken != nil && n.taken(name) }
