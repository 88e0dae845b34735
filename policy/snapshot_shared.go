package policy

import "github.com/weirhq/weir"

// sharedLimits returns limits that are kept in a store, or by the owner of the cluster, under their names: it carries what it has
// under one of them over to another limit of the same algorithm.
func (p *livePolicy) sharedLimits(was map[string]*limitState) (all []liveLimit, states map[string]*limitState) {
	states = make(map[string]*limitState, len(p.Limits))
	for i := range p.Limits {
		l := &p.Limits[i]
		live := liveLimit{name: nameOf(p.Name, p.Limits, i), returns: l.Algorithm() == weir.AlgorithmConcurrency}
		stored := live.name
		if p.durable {
			stored = "durable/" + stored
		}
		for _, old := range was {
			if old.stored == stored && old.limit.Algorithm() == l.Algorithm() {
				live.state = old
			}
		}
		if live.state == nil {
			live.state = &limitState{limit: l.Limit, stored: stored}
		}
		states[l.Name] = live.state
		all = append(all, live)
	}
	return all, states
}

// localStates are those of limits that are kept in this process.
func localStates(all map[string]*limitState) map[string]*limitState {
	local := make(map[string]*limitState, len(all))
	for name, state := range all {
		if state.stored == "" {
			local[name] = state
		}
	}
	return local
}

// sharesKey reports whether some limit of a policy, or of those of its parents that have no Key, is kept in a store.
func (s *snapshot) sharesKey(at int) bool {
	if s.live[at].shared {
		return true
	}
	for at = s.live[at].parent; at >= 0; at = s.live[at].parent {
		if p := &s.live[at]; p.Key == nil && p.shared {
			return true
		}
	}
	return false
}
