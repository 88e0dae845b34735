package policy

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
)

// KeyState is what is known of a key of a policy.
type KeyState struct {
	Policy string
	Key    string
	// Named reports whether Key is known: a table keeps hashes, and the names of those that are refused most. Otherwise Key is
	// "", and ID stands for it as long as the process lives.
	Named bool
	ID    string
	// Limits are those of the policy, in their order. Of [Engine.Top] it is the one under the most pressure alone.
	Limits []LimitState
	// LockedFor is for how long the key is still locked out, 0 if it is not. RecentRefusals is how many of its refusals count
	// towards a lockout. Both are those of this process, and 0 for a key that is not Named.
	LockedFor      time.Duration
	RecentRefusals int
	// Override is the one in force, nil if there is none.
	Override *Override
}

// LimitState is what is known of a key of a limit.
type LimitState struct {
	// Limit is the name of the limit, and Holds is the limit of the key in words, such as "10/s, burst 20", or "unlimited" by an
	// override. For a tracked key of this process it is the one in force, for others the one without a tier and without what
	// requests bring.
	Limit string
	Holds string
	// Tracked reports whether anything is kept of the key. Otherwise all is available.
	Tracked bool
	// Decision is that of a probe, which is allowed if a permit is available, with its Limit, Remaining, RetryAfter and
	// ResetAfter. Its Policy is the name of the limit in decisions.
	Decision weir.Decision
	// Queued is how many permits are waited for, and Waiters by how many requests. They are 0 for limits that are kept in a
	// store.
	Queued  int64
	Waiters int
	// Refused is how often this process has refused the key since its name is remembered: if the key is kept in a store, by the
	// policy.
	Refused uint64
}

// holdsUnlimited is what holds for a key whose override says so.
const holdsUnlimited = "unlimited"

// Key returns what is known of a key of a policy, and takes nothing. The Key that is returned is that of [Engine.CountedKey]. The
// error is an *[weir.OptionError] if there is no such policy, or that of the store.
func (e *Engine) Key(ctx context.Context, policy, key string) (KeyState, error) {
	p := e.live.Load().policy(policy)
	if p == nil {
		return KeyState{}, noPolicy(policy)
	}
	key = p.counted(key)
	k := e.aboutKey(p, key)
	for i := range p.limits {
		l, err := e.limitOf(ctx, p, i, key, &k)
		if err != nil {
			return KeyState{}, err
		}
		k.Limits = append(k.Limits, l)
	}
	return k, nil
}

// aboutKey is what is known of a key without its limits.
func (e *Engine) aboutKey(p *livePolicy, key string) KeyState {
	k := KeyState{Policy: p.Name, Key: strings.Clone(key), Named: true, ID: p.idOf(key)}
	now := e.now()
	if p.state.lockouts != nil {
		k.LockedFor, k.RecentRefusals = p.state.lockouts.look([]byte(key), now, p.Lockout)
	}
	if x := p.overrides.of([]byte(key)); x != nil {
		if o, ok := x.now(now); ok {
			k.Override = &o
		}
	}
	return k
}

// idOf stands for a key of a policy.
func (p *livePolicy) idOf(key string) string {
	switch {
	case p.state.refusals != nil:
		return fmt.Sprintf("%016x", p.state.refusals.hash([]byte(key)).Fingerprint())
	case len(p.limits) > 0:
		s, _ := keyset.Of(p.limits[0].state.limiter).State(key)
		return s.ID
	}
	return ""
}

// limitOf is what is known of a key of the i-th limit.
func (e *Engine) limitOf(ctx context.Context, p *livePolicy, i int, key string, k *KeyState) (l LimitState, err error) {
	if p.shared {
		l, err = e.storedLimitOf(ctx, p, i, key)
	} else {
		s, tracked := keyset.Of(p.limits[i].state.limiter).State(key)
		if !tracked && k.Override == nil {
			s = p.untracked(i, key, s)
		}
		l = p.limitState(i, &s, tracked)
	}
	if k.Override != nil && k.Override.Unlimited {
		l.Holds = holdsUnlimited
		l.Decision = noLimit()
		l.Decision.Policy = p.limits[i].name
	}
	return l, err
}

// untracked is the state of a key of which nothing is kept under the limit that would hold for it.
func (p *livePolicy) untracked(i int, key string, s keyset.State[string]) keyset.State[string] {
	s.Held = p.keyed(key).at(i)
	s.Limit = s.Held.Permits()
	s.Remaining = s.Limit
	return s
}

// limitState is what a limit of this process says.
func (p *livePolicy) limitState(i int, s *keyset.State[string], tracked bool) LimitState {
	d := weir.Decision{
		Allowed: s.RetryAfter == 0, Limit: s.Limit, Remaining: s.Remaining, RetryAfter: s.RetryAfter, ResetAfter: s.ResetAfter,
		Policy: p.limits[i].name,
	}
	if !d.Allowed {
		d.Reason = weir.ReasonLimited
	}
	return LimitState{
		Limit: p.Limits[i].Name, Holds: s.Held.String(), Tracked: tracked, Decision: d,
		Queued: s.Queued, Waiters: s.Waiters, Refused: s.Refused,
	}
}

// storedLimitOf is what a store says.
func (e *Engine) storedLimitOf(ctx context.Context, p *livePolicy, i int, key string) (LimitState, error) {
	l := LimitState{Limit: p.Limits[i].Name, Holds: p.limitsFor(key).limits[i].String()}
	state, err := e.inspect(e.asking(ctx), p, i, key)
	if err != nil {
		return l, err
	}
	l.Tracked, l.Decision = state.Known, state.Decision
	l.Decision.Policy = p.limits[i].name
	l.Refused = p.state.refusals.count(key)
	return l, nil
}
