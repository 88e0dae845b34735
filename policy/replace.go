package policy

import (
	"maps"
	"slices"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
)

// replacePlans says of limits that have changed since the last set what they are now, so that keys that nobody uses meanwhile
// change now as well. It is called when nothing can fail any more.
func (s *snapshot) replacePlans() {
	for i := range s.live {
		p := &s.live[i]
		for j := range p.limits {
			if p.shared {
				break
			}
			roles := map[string]*keyset.Plan{"": p.usual.plans[j]}
			for name, x := range p.tiers {
				roles["tier "+name] = x.plans[j]
			}
			for name, x := range p.keys {
				roles["key "+name] = x.plans[j]
			}
			p.limits[j].state.replace(roles)
		}
		for j := range p.candidate {
			p.candidate[j].state.replace(map[string]*keyset.Plan{"": p.measured.plans[j]})
		}
	}
}

// replace makes the plans of each role those that stand where others stood. A limit that is still that of some role is not
// replaced: which of its keys had which role is not known.
func (l *limitState) replace(roles map[string]*keyset.Plan) {
	stays := make(map[weir.Limit]bool, len(roles))
	for _, plan := range roles {
		stays[plan.Limit()] = true
		plan.Replaces(nil)
	}
	for _, role := range slices.Sorted(maps.Keys(roles)) {
		old := l.roles[role]
		if old != nil && !stays[old.Limit()] {
			roles[role].Replaces(old)
			stays[old.Limit()] = true // by the first of its roles
		}
		if old != nil {
			roles[role].Follows(old)
		}
	}
	l.roles = roles
}
