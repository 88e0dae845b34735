package policy

import "github.com/weirhq/weir/store"

// StoredCharges are what the limits of a policy are charged to in the store that keeps them, for a key and with no permits: one
// for each limit, in their order, with the limits that hold for this key unless a tier says otherwise. They are for those who ask
// the store itself, such as an operator who looks at a quota. It returns false if there is no such policy, or its limits are kept
// in this process.
func (e *Engine) StoredCharges(policy, key string) ([]store.Charge, bool) {
	s := e.live.Load()
	at, ok := s.policies[policy]
	if !ok || !s.live[at].shared {
		return nil, false
	}
	p := &s.live[at]
	it := item{policy: p, variant: p.limitsFor(key)}
	return appendStored(nil, boundKey(key), &it), true
}
