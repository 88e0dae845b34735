package config

import (
	"fmt"
	"strings"
)

// relations checks what policies and rules say about one another.
func (d *decoder) relations(f *File) {
	byName := make(map[string]*placedPolicy, len(f.policies))
	names := make([]string, 0, len(f.policies))
	for _, p := range f.policies {
		byName[p.Name] = p
		names = append(names, p.Name)
	}
	unknown := func(v value, name string) {
		fix := "define it below policies"
		if len(names) > 0 {
			fix = "there are " + shorten(oneOf(names))
		}
		if _, env := d.shown[v.path]; !env {
			fix = meant(name, names, fix)
		}
		d.wrong(v, "there is no policy of this name", fix)
	}
	for _, p := range f.policies {
		if p.Parent != "" && byName[p.Parent] == nil {
			unknown(p.parent, p.Parent)
		}
	}
	d.cycles(f.policies, byName)
	used := map[string]bool{}
	for _, r := range f.rules {
		for _, u := range r.uses {
			if byName[u.Policy] == nil {
				unknown(u.value, u.Policy)
			}
			for p := byName[u.Policy]; p != nil && !used[p.Name]; p = byName[p.Parent] {
				used[p.Name] = true
			}
		}
	}
	if len(d.all) == 0 {
		d.doubts(f, byName, used)
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
				d.wrong(q.parent, "is a cycle of parents: "+shorten(strings.Join(way, " > ")), "remove one of these parents")
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
func (d *decoder) doubts(f *File, byName map[string]*placedPolicy, used map[string]bool) {
	for _, p := range f.policies {
		if !used[p.Name] && len(f.rules) > 0 {
			d.warn(value{p.key, p.path, nil}, "no rule uses this policy", "use it in a rule, or remove it")
		}
		if parent := byName[p.Parent]; parent != nil {
			d.exceeds(p, parent)
		}
	}
	var last *placedRule
	for _, r := range f.rules {
		everything := r.When == nil && matchesAll(r)
		switch {
		case last != nil && !r.Exempt:
			d.warn(r.value, fmt.Sprintf("is never reached: the rule in line %d is final and matches all requests", last.node.Line),
				"move it in front of that rule")
		case r.Exempt && everything:
			d.warn(r.value, "frees all requests of all limits: it has no match and no when", "add match: {path: /healthz}, for instance")
		case len(r.Limits) == 0 && !r.Exempt && !r.Final:
			d.warn(r.value, "does nothing: it has no limits, and is neither exempt nor final", "add limits, or remove it")
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
			if l.Rate.Period == 0 || l.Rate.Period != above.Rate.Period || l.Rate.Permits <= above.Rate.Permits {
				continue
			}
			d.warn(l.value, fmt.Sprintf("grants more than the same period of its parent %s: %s and %s",
				p.Parent, d.spellRate(l), d.spellRate(above)), "lower it, or raise that of the parent")
		}
	}
}

// spellRate is a rate as it may be shown.
func (d *decoder) spellRate(l placedLimit) string {
	for _, path := range []string{l.path, l.path + ".rate"} {
		if written, env := d.shown[path]; env {
			return written
		}
	}
	return l.Rate.String()
}
