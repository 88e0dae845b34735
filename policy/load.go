package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/store"
)

// NewEngine returns an engine with a set of policies and rules. The error is about what cannot be used: an [errors.Join] of
// *[weir.OptionError] where there are several.
func NewEngine(set *Set, o EngineOptions) (*Engine, error) {
	if o.ExplainEvery < 0 || o.ExplainEvery > 1e9 {
		return nil, &weir.OptionError{
			Option: "EngineOptions.ExplainEvery", Value: strconv.Itoa(o.ExplainEvery), Accepted: "from 0 to 10^9",
		}
	}
	if o.ExplainEvery > 0 && o.OnExplain == nil {
		return nil, &weir.OptionError{
			Option: "EngineOptions.OnExplain", Value: "nil", Accepted: "a function, as ExplainEvery is not 0",
		}
	}
	e := &Engine{options: o, clock: clock.New(o.Clock)}
	e.states = o.Store
	if o.Durable != nil {
		d := store.NewDivided(o.Store, o.Durable)
		d.Failed = e.ownerless
		e.states = d
	}
	e.unending = context.Background()
	e.ending, e.end = context.WithCancel(e.unending)
	if _, err := e.Load(set); err != nil {
		return nil, err
	}
	return e, nil
}

// ErrEngineClosed is returned by an engine that has been closed.
var ErrEngineClosed = errors.New("weir: the engine is closed")

// Load replaces the set, at once for all later requests, and returns what has changed. If the set cannot be used, the old one
// stays, and the error is that of [Set.Check].
//
// The new limits apply to waiting requests at once: a lower one slows them, a higher one wakes them, and they keep their places
// in the queues of this process (TestReloadReachesThoseWhoWait). They are decided anew, at the end of the queue, where the policy
// is gone, its mode, its parent or the algorithm of a limit has changed, its limits are kept elsewhere, or they wait for the
// owner of a durable policy whose limit has changed. The max wait of a request stays as it was.
//
// State is kept by the names of policies and of their limits. The new parameters count at once; available permits stay so up to
// the new limit, and are never multiplied (TestReloadMintsNothing). A key that is not used also regains permits at the new rate
// from now on. If its old limit is still that of a tier or of some keys of the policy, it does so from its next request on
// (TestReloadHistories). A limit whose name is new goes on from one of the same algorithm whose name is gone, if there is one, so
// that 100/s may become 6000/m. Where the algorithm changes, or the segments of a sliding window, the state begins anew, and the
// change reports it. What a store or an owner keeps stays there by the name of the limit and its algorithm: a limit that comes
// back, or is changed back, goes on where it was (TestReloadBackToAnAlgorithm). A candidate with other limits begins anew as
// well, and so does its Difference. The counts of policies stay.
func (e *Engine) Load(set *Set) ([]Change, error) {
	e.loading.Lock()
	defer e.loading.Unlock()
	changes, err := e.load(set)
	e.lastError, e.lastAttempt = err, time.Now()
	return changes, err
}

func (e *Engine) load(set *Set) ([]Change, error) {
	if e.closed.Load() {
		return nil, ErrEngineClosed
	}
	p, err := compile(set)
	if err == nil {
		err = e.checkStore(p.set)
	}
	if err != nil {
		return nil, err
	}
	old := e.live.Load()
	s, err := e.build(p, old)
	if err != nil {
		return nil, fmt.Errorf("weir: %w", err)
	}
	s.bound()
	s.replacePlans()
	e.carryOverrides(old, s)
	carryCounts(old, s)
	e.live.Store(s)
	if old == nil {
		return nil, nil
	}
	e.reload(old, s)
	return compare(old, s), nil
}

// checkStore refuses policies that are shared or durable if there is nothing to keep them in.
func (e *Engine) checkStore(set *Set) error {
	if e.options.Alone {
		return nil
	}
	c := new(checker)
	for i := range set.Policies {
		p := &set.Policies[i]
		if p.Consistency.Shared() && e.options.Store == nil {
			c.refuse(fmt.Sprintf("policy %q: Consistency", p.Name), p.Consistency.String(), "local, as the engine has no Store")
		}
		if p.Durability != DurabilityMemory && e.options.Durable == nil {
			c.refuse(fmt.Sprintf("policy %q: Durability", p.Name), p.Durability.String(), "memory, as the engine has no Durable")
		}
	}
	return errors.Join(c.errs...)
}

// Set is the one in force, its limits with names. It must not be changed.
func (e *Engine) Set() *Set { return e.live.Load().set }

// Limiter returns the limiter of a limit of a policy, to look at its keys or change them; nil if there is none. The name of the
// limit may be "" if the policy has one only. It is nil for a limit that is kept in a store: see [Engine.Inspect] and
// [Engine.Reset]. Permits that are taken from it directly are those of the limit that it was made with: see Charge for those of
// the set in force.
func (e *Engine) Limiter(policy, limit string) *weir.Keyed[string] {
	if p := e.live.Load().policy(policy); p != nil {
		if i := p.place(limit); i >= 0 {
			return p.limits[i].state.limiter
		}
	}
	return nil
}

// place is that of the limit of a name, or of the only one if that is ""; -1 if there is none.
func (p *livePolicy) place(limit string) int {
	if limit == "" && len(p.limits) == 1 {
		return 0
	}
	return slices.IndexFunc(p.Limits, func(l Limit) bool { return l.Name == limit })
}

// Charges appends what n permits of a key cost under a policy: a charge for each of its limits, and for each of those of its
// parents that have no Key, as a request is needed for that of the others. They are for a caller that names the policy itself:
// see [keyset.TryAcquireAll]. Mode, Lockout, tiers, LimitBy and the Cost of a policy do not count. A key that is unlimited for a
// while costs nothing: see [Engine.Override]. It returns false, and appends nothing, if there is no such policy or one of these
// limits is kept in a store. A request that is [Named] works with all limits.
func (e *Engine) Charges(charges []keyset.Charge, policy, key string, n int64) ([]keyset.Charge, bool) {
	s := e.live.Load()
	at, ok := s.policies[policy]
	if !ok {
		return charges, false
	}
	if s.sharesKey(at) {
		return charges, false
	}
	charges = s.live[at].chargeKey(charges, s.live[at].counted(key), n)
	for at = s.live[at].parent; at >= 0; at = s.live[at].parent {
		if p := &s.live[at]; p.Key == nil {
			charges = p.chargeKey(charges, "", n)
		}
	}
	return charges, true
}

func (p *livePolicy) chargeKey(charges []keyset.Charge, key string, n int64) []keyset.Charge {
	if x := p.overrides.of([]byte(key)); x != nil && x.Unlimited {
		return charges
	}
	x := p.keyed(key) // limits know of other overrides themselves
	for i := range p.limits {
		charges = append(charges, keyset.Charge{Limiter: p.limits[i].state.limiter, Key: key, N: n, Plan: x.plans[i]})
	}
	return charges
}

// Unlock ends the lockout of a key of a policy, and reports whether there was one.
func (e *Engine) Unlock(policy, key string) bool {
	p := e.live.Load().policy(policy)
	return p != nil && p.state.lockouts != nil && p.state.lockouts.unlock([]byte(p.counted(key)), e.now(), p.Lockout)
}

// Close refuses all waiting and later requests to which a limit applies, and every set. The store that the engine was given stays
// open, as verdicts have to be settled: close it after the last of them. Closing twice is harmless. The error is always nil.
func (e *Engine) Close() error {
	e.loading.Lock()
	defer e.loading.Unlock()
	e.closed.Store(true)
	s := e.live.Load()
	s.endOverrides()
	for i := range s.live {
		for _, l := range [][]liveLimit{s.live[i].limits, s.live[i].candidate} {
			for j := range l {
				if k := l[j].state.limiter; k != nil {
					_ = k.Close()
				}
			}
		}
	}
	e.end()
	return nil
}
