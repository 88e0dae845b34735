package policy

import (
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/keyset"
)

// Override is a limit that applies to one key of a policy for a while, instead of those of the policy, its tiers and its Keys,
// and those that requests bring.
type Override struct {
	// Policy and Key are the key that it applies to. Required, except that the key may be "". A key has at most 8192 bytes.
	Policy string
	Key    string
	// Limits apply instead of those of the policy: as many, with the same names and algorithms. What remains for the key is kept,
	// up to the new limit. Exclusive with Unlimited.
	Limits []Limit
	// Unlimited lets the key pass whatever it asks for: the policy counts it and takes nothing. A verdict has no parts for it.
	Unlimited bool
	// For is how long it applies: from 1 s to 3660 days. Required. For an override that is in force it is the rest of that.
	For time.Duration
	// By and Reason are who made it and why, for those who look at it: at most 256 and 1024 bytes of printable text. Default: "".
	By, Reason string
	// Since is when it was made. Engine.Override sets it.
	Since time.Time
}

const (
	// mostOverrides is how many keys of a policy can be overridden at a time.
	mostOverrides       = 1 << 16
	longestOverridden   = 8192
	longestOverrideBy   = 256
	longestOverrideText = 1024
	leastOverride       = time.Second
	mostOverride        = 3660 * 24 * time.Hour
)

// Override makes another limit apply to a key for a while, in this process: where the policy is shared, other processes go on as
// before. It replaces an override of the key, and ends by itself. It survives [Engine.Load] as long as the policy has as many
// limits of the same algorithms; they need not have the same names. The new limit applies to requests that wait for the key in
// this process at once. Those that wait for the owner of a durable policy, or for a key that becomes unlimited, begin anew, at
// the end of the queue. A lockout of the key goes on: see [Engine.Unlock].
//
// A store goes on under the limit of the last request of any process. So the store is told of an override, and of its end where
// the policy has neither tiers nor LimitBy, which takes at most 2 s. If it fails, the override applies nevertheless. Changes of
// one key at the same time are told one after the other, so that the store has the right limit in the end.
//
// At most 65,536 keys of a policy can be overridden at a time: then the error is [keyset.ErrTooManyOverrides]. It is
// [keyset.ErrTableFull] if the limits are of this process, the key is new, and none of the MaxKeys can be forgotten: Unlimited
// needs no room. It is [ErrEngineClosed] after Close. All others are an [errors.Join] of *[weir.OptionError]. After an error
// nothing has changed.
func (e *Engine) Override(o *Override) error {
	change, err := e.override(o)
	if change > 0 {
		e.tellStore(change, o.Policy, e.CountedKey(o.Policy, o.Key))
	}
	return err
}

// override returns the number of the change if a store is to be told of it, or 0.
func (e *Engine) override(o *Override) (change uint64, err error) {
	e.loading.Lock()
	defer e.loading.Unlock()
	if e.closed.Load() {
		return 0, ErrEngineClosed
	}
	p := e.live.Load().policy(o.Policy)
	if p == nil {
		return 0, noPolicy(o.Policy)
	}
	limits, err := p.checkOverride(o)
	if err != nil {
		return 0, err
	}
	x := &override{Override: *o, until: e.now() + int64(o.For)}
	x.Key, x.By, x.Reason = strings.Clone(p.counted(o.Key)), strings.Clone(o.By), strings.Clone(o.Reason)
	x.Limits, x.Since = limits, time.Now()
	before := p.overrides.get(x.Key)
	if before == nil && p.overrides.sum() >= mostOverrides {
		return 0, keyset.ErrTooManyOverrides
	}
	if wrong := p.apply(x, before, e.now()); wrong != nil {
		return 0, wrong
	}
	e.put(p, x)
	before.end()
	if x.Unlimited && !p.shared {
		p.waiting.wake(x.Key)
	}
	o.Since = x.Since
	return e.changed(p, x.Key, before, x), nil
}

// changed says that an override of a key has come in the place of another one, of which either may be nil, and returns the number
// of the change if a store is to be told of it, or 0. Engine.loading is held.
func (e *Engine) changed(p *livePolicy, key string, before, x *override) uint64 {
	if !p.shared {
		return 0
	}
	p.waiting.wake(key)
	if !before.limits() && !x.limits() {
		return 0
	}
	e.changes++
	return e.changes
}

// limits reports whether it holds a key to other limits. It may be called of nil.
func (x *override) limits() bool { return x != nil && !x.Unlimited }

// Restore ends the override of a key, and reports whether there was one.
func (e *Engine) Restore(policy, key string) bool {
	x, change := e.restore(policy, key)
	held := x != nil && x.until > e.now() // by now: it may take long to tell the store
	if change > 0 {
		e.tellStore(change, policy, x.Key)
	}
	return held
}

// restore returns nil if there is no override, and the number of the change if a store is to be told of it.
func (e *Engine) restore(policy, key string) (x *override, change uint64) {
	e.loading.Lock()
	defer e.loading.Unlock()
	p := e.live.Load().policy(policy)
	if p == nil {
		return nil, 0
	}
	key = p.counted(key)
	if x = p.overrides.get(key); x == nil {
		return nil, 0
	}
	p.overrides.remove(x)
	p.letGo(x)
	x.end()
	return x, e.changed(p, key, x, nil)
}

// Overrides are those in force, in the order of policies and then of keys.
func (e *Engine) Overrides() []Override {
	e.loading.Lock()
	defer e.loading.Unlock()
	var all []Override
	s, now := e.live.Load(), e.now()
	for i := range s.live {
		from := len(all)
		s.live[i].overrides.each(func(x *override) {
			if o, ok := x.now(now); ok {
				all = append(all, o)
			}
		})
		slices.SortFunc(all[from:], func(a, b Override) int { return strings.Compare(a.Key, b.Key) })
	}
	return all
}

// now is the override as it stands. It returns false if it has ended.
func (x *override) now(now int64) (o Override, inForce bool) {
	o = x.Override
	o.Limits = slices.Clone(o.Limits)
	o.For = time.Duration(x.until - now)
	return o, o.For > 0
}
