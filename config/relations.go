package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/policy"
)

// relations checks what policies and rules say about one another.
func (d *decoder) relations(whole yamlread.Value, f *File) {
	byName := make(map[string]*placedPolicy, len(f.policies))
	names := make([]string, 0, len(f.policies))
	for _, p := range f.policies {
		byName[p.Name] = p
		names = append(names, p.Name)
	}
	unknown := func(v yamlread.Value, name string, names []string) {
		fix := "define it below policies"
		if len(names) > 0 {
			fix = "there are " + yamlread.Shorten(yamlread.OneOf(names))
		}
		if _, env := d.Shown[v.Path]; !env {
			fix = yamlread.Meant(name, names, fix)
		}
		d.Wrong(v, "there is no policy of this name", fix)
	}
	delete(byName, "") // which is told already, and is no parent
	for _, p := range f.policies {
		if p.Parent != "" && byName[p.Parent] == nil {
			others := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == p.Name })
			unknown(p.parent, p.Parent, others)
		}
	}
	d.cycles(f.policies, byName)
	used := map[string]bool{}
	for _, r := range f.rules {
		for _, u := range r.uses {
			if byName[u.Policy] == nil {
				unknown(u.at, u.Policy, names)
			}
			for p := byName[u.Policy]; p != nil && !used[p.Name]; p = byName[p.Parent] {
				used[p.Name] = true
			}
		}
	}
	d.storeless(f)
	d.clusterless(f)
	if d.Mistakes.Count() == 0 {
		d.doubts(whole, f, byName, used)
	}
}

// cycles finds policies that are parents of themselves. Each cycle is told once.
func (d *decoder) cycles(all []*placedPolicy, byName map[string]*placedPolicy) {
	done := map[string]bool{}
	for _, p := range all {
		var way []string
		on := map[string]bool{}
		for q := p; q != nil && !done[q.Name]; q = byName[q.Parent] {
			if on[q.Name] {
				for way[0] != q.Name {
					way = way[1:]
				}
				way = append(way, q.Name)
				d.Wrong(q.parent, "is a cycle of parents: "+yamlread.Shorten(strings.Join(way, " > ")),
					"remove one of these parents")
				break
			}
			on[q.Name] = true
			way = append(way, q.Name)
		}
		for name := range on {
			done[name] = true
		}
	}
}

// doubts adds warnings about what is likely not meant.
func (d *decoder) doubts(whole yamlread.Value, f *File, byName map[string]*placedPolicy, used map[string]bool) {
	for _, p := range f.policies {
		if !used[p.Name] && len(f.rules) > 0 {
			d.Warn(p.at.OfKey(), "no rule uses this policy: it limits only checks that name it",
				"use it in a rule, or remove it if no client names it")
		}
		if parent := byName[p.Parent]; parent != nil {
			d.exceeds(p, parent)
		}
		if p.Cost != nil {
			d.unaffordable(p.at, p.Cost, p)
		}
		if p.priority.Node != nil && !d.hasShedder {
			d.Warn(p.priority, "changes nothing: this program sheds no load by priority", "remove it")
		}
	}
	if len(f.policies)+len(f.rules) == 0 && f.Store == nil && f.Cluster == nil {
		d.Warn(whole, "limits nothing: it has no policies and no rules", "add policies: {name: {limit: 100/s}}, for instance")
	}
	d.ruleDoubts(f.rules, byName)
	d.forgottenCharges(f.rules)
}

// forgottenCharges warns of a policy that a rule only looks at, by a cost of 0, and other rules charge, none of them afterwards:
// a cost that is told when it has been spent, and is more than what is left, would charge nothing.
func (d *decoder) forgottenCharges(rules []*placedRule) {
	looks := func(u placedUse) bool { return u.Cost != nil && u.Cost.String() == "0" }
	charged, afterwards := map[string]bool{}, map[string]bool{}
	for _, r := range rules {
		for _, u := range r.uses {
			charged[u.Policy] = charged[u.Policy] || !looks(u)
			afterwards[u.Policy] = afterwards[u.Policy] || r.Afterwards
		}
	}
	for _, r := range rules {
		for _, u := range r.uses {
			if looks(u) && charged[u.Policy] && !afterwards[u.Policy] {
				d.Warn(u.at, "only looks at the policy, and no rule charges it afterwards: "+
					"a cost that is told when it has been spent, and is more than what is left, charges nothing",
					"add charge: afterwards to the rule of those requests")
			}
		}
	}
}

// ruleDoubts adds those about rules.
func (d *decoder) ruleDoubts(rules []*placedRule, byName map[string]*placedPolicy) {
	var last *placedRule
	for _, r := range rules {
		for _, u := range r.uses {
			if u.Cost != nil {
				d.unaffordable(u.at, u.Cost, byName[u.Policy])
			}
			d.withoutWildcard(r, u, byName)
		}
		everything := r.When == nil && matchesAll(r)
		switch {
		case r.Deny && everything && r.Mode == policy.ModeEnforce:
			d.Warn(r.at, "denies all requests: it has no match and no when",
				"add match: {path: /internal/}, for instance")
		case r.Deny:
		case last != nil && !r.Exempt:
			d.Warn(r.at,
				fmt.Sprintf("is never reached: the rule in line %d is final and matches all requests", last.at.Node.Line),
				"move it in front of that rule")
		case r.Exempt && everything:
			d.Warn(r.at, "frees all requests of all limits: it has no match and no when",
				"add match: {path: /healthz}, for instance")
		case len(r.Limits) == 0 && !r.Exempt && !r.Final:
			d.Warn(r.at, "does nothing: it has no limits, and is neither exempt nor final", "add limits, or remove it")
		}
		if r.Final && everything && last == nil {
			last = r
		}
	}
}

func matchesAll(r *placedRule) bool {
	m := r.Match
	return len(m.Methods)+len(m.Hosts)+len(m.Paths)+len(m.Headers)+len(m.Clients)+len(m.Routes)+len(m.Protocols) == 0
}

// exceeds warns of limits that a policy can never make use of, because those of its parent are lower over the same period.
func (d *decoder) exceeds(p, parent *placedPolicy) {
	for _, l := range p.live.limits {
		for _, above := range parent.live.limits {
			if l.Rate().Period != above.Rate().Period || concurrent(l) != concurrent(above) ||
				l.Calendar().Unit != above.Calendar().Unit || allowed(l.Limit.Limit) <= allowed(above.Limit.Limit) {
				continue
			}
			d.Warn(l.at, fmt.Sprintf("grants more than the same period of its parent %s: %s and %s",
				d.written(p.at.Path+".parent", p.Parent), d.spellGranted(l), d.spellGranted(above)),
				"lower it, or raise that of the parent")
		}
	}
}

// wildcard finds the wildcards of paths in an expression.
var wildcard = regexp.MustCompile(`(?:^|[^.\w"])path(?:\.(\w+)|\["(\w+)"\])`)

// withoutWildcard warns of a key that is made of a wildcard which the patterns of the rule do not have.
func (d *decoder) withoutWildcard(r *placedRule, u placedUse, byName map[string]*placedPolicy) {
	for p := byName[u.Policy]; p != nil; p = byName[p.Parent] {
		key := p.Key
		if p.Name == u.Policy && u.Key != nil {
			key = u.Key
		}
		if key == nil {
			continue
		}
		for _, found := range wildcard.FindAllStringSubmatch(key.String(), -1) {
			name := found[1] + found[2]
			if !hasWildcard(r.Match.Paths, name) {
				d.Warn(u.at,
					fmt.Sprintf("the key of %s has path.%s, which not all patterns of this rule have: it is \"\" there",
						p.Name, name),
					"add {"+name+"} to match.path, or another key here")
			}
		}
	}
}

// hasWildcard reports whether all patterns have a wildcard of this name.
func hasWildcard(patterns []string, name string) bool {
	for _, p := range patterns {
		if !strings.Contains(p, "{"+name+"}") && !strings.Contains(p, "{"+name+"...}") {
			return false
		}
	}
	return len(patterns) > 0
}

// unaffordable warns of a constant cost that a limit can never grant.
func (d *decoder) unaffordable(v yamlread.Value, cost policy.Number, p *placedPolicy) {
	n, err := strconv.ParseInt(cost.String(), 10, 64) // no expression that is not constant is spelled like a number
	if err != nil {
		return
	}
	for _, l := range p.live.limits {
		most := l.Permits()
		if n <= most {
			continue
		}
		shown := "than it can"
		if !d.showsEnvironment(l.at.Path) {
			shown = "than the " + yamlread.Count(most) + " that it can"
		}
		d.Warn(v, fmt.Sprintf("costs %d, more %s ever grant at a time: every request is refused", n, shown),
			"lower the cost, or raise the burst")
		return
	}
}

func concurrent(l placedLimit) bool { return l.Algorithm() == weir.AlgorithmConcurrency }

// allowed is how many permits a limit grants in its period.
func allowed(l weir.Limit) int64 {
	if l.Rate().Period == 0 {
		return l.Permits()
	}
	return l.Rate().Permits
}

// written is a value as it may be shown.
func (d *decoder) written(path, value string) string {
	if written, env := d.Shown[path]; env {
		return written
	}
	return value
}

// spellGranted is how many permits a limit grants, as it may be shown.
func (d *decoder) spellGranted(l placedLimit) string {
	if l.Rate().Period == 0 {
		return d.written(l.at.Path+".permits", spellPermits(l.Permits()))
	}
	return d.written(l.at.Path, d.written(l.at.Path+".rate", l.Rate().String()))
}
