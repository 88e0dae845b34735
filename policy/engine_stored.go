package policy

import "github.com/weirhq/weir/store"

// StoredCharges are what the limits of a policy are charged to in the store that keeps them, for a key and with no permits: one
// for each limit, in their order, with the limits that apply to this key without a tier. They are for callers that ask the store
// itself, such as an operator that looks at a limit. It returns false if there is no such policy, or its limits are kept in this
// process.
func (e *Engine) StoredCharges(policy, key string) ([]store.Charge, bool) {
	s := e.live.Load()
	at, ok := s.policies[policy]
	if !ok || !s.live[at].shared {
		return nil, false
	}
	p := &s.live[at]
	key = p.counted(key)
	it := item{policy: p, variant: p.limitsFor(key)}
	return appendStored(nil, boundKey(key), &it), true
}
