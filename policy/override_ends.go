package policy

import (
	"errors"
	"slices"
	"time"

	"github.com/weirhq/weir/keyset"
)

// time is what the clock shows, that of the process if it is nil.
func (c *lockoutClock) time() int64 {
	if c == nil {
		return int64(time.Since(start))
	}
	return c.now()
}

// afterFunc calls f once d has passed, unless it is stopped first.
func (c *lockoutClock) afterFunc(d time.Duration, f func()) (stop func() bool) {
	if c == nil {
		return time.AfterFunc(d, f).Stop
	}
	return c.clock.AfterFunc(d, f)
}

// put makes an override hold until its end. Engine.loading is held.
func (e *Engine) put(p *livePolicy, x *override) {
	all := p.overrides
	x.variant.limits = x.Limits
	var expire func()
	expire = func() {
		e.loading.Lock()
		change := uint64(0)
		p := e.live.Load().policy(x.Policy) // of the set in force, whose limits may be others
		switch rest := x.rest(e.now()); {
		case p == nil || p.overrides != all || all.get(x.Key) != x || e.closed.Load():
		case rest > 0: // a clock that was set back
			x.stop = e.clock.afterFunc(rest, expire)
		default:
			all.remove(x) // the limits of this process end theirs themselves
			change = e.changed(p, x.Key, x, nil)
		}
		e.loading.Unlock()
		if change > 0 {
			e.tellStore(change, x.Policy, x.Key)
		}
	}
	x.stop = e.clock.afterFunc(x.rest(e.now()), expire)
	all.put(x)
}

// carryOverrides makes the overrides of the set in force those of the next one, as far as its policies have such limits. Nothing
// can fail any more.
func (e *Engine) carryOverrides(old, now *snapshot) {
	for i := range now.live {
		p := &now.live[i]
		p.overrides, p.waiting = &overrides{clock: e.clock}, new(waiting)
		if old == nil {
			continue
		}
		was := old.policy(p.Name)
		if was == nil {
			continue
		}
		p.waiting = was.waiting
		if was.overrides.sum() == 0 || was.samePlaces(p) {
			p.overrides = was.overrides
			continue
		}
		was.overrides.each(func(x *override) { e.carryOverride(was, p, x) })
	}
	if old == nil {
		return
	}
	for i := range old.live {
		was := &old.live[i]
		if _, still := now.policies[was.Name]; !still {
			was.overrides.each((*override).end)
		}
	}
}

// samePlaces reports whether what holds a key to a limit of one policy does so in the other one.
func (p *livePolicy) samePlaces(next *livePolicy) bool {
	if len(p.limits) != len(next.limits) || p.shared != next.shared || p.durable != next.durable ||
		p.Consistency != next.Consistency {
		return false
	}
	for i := range p.limits {
		if p.limits[i].state != next.limits[i].state || p.Limits[i].Name != next.Limits[i].Name ||
			!alike(p.Limits[i].Limit, next.Limits[i].Limit) {
			return false
		}
	}
	return true
}

// carryOverride makes an override of a policy one of the next one, under the names that its limits have there. Limits that go on
// hold the key to it throughout, as it would lose what exceeds those of the policy.
func (e *Engine) carryOverride(was, p *livePolicy, x *override) {
	x.end()
	now := e.now()
	next := &override{Override: x.Override, until: x.until}
	next.For = x.rest(now)
	holds := next.For > 0
	if holds {
		if err := p.adopt(next, now); err != nil {
			holds = false
			e.overrideEnded(p, err)
		}
	}
	for i := range was.limits {
		l := &was.limits[i]
		if !was.shared && !x.Unlimited && (!holds || !p.has(l.state)) {
			keyset.Of(l.state.limiter).Restore(x.Key)
		}
	}
	if holds {
		e.put(p, next)
	}
}

var errOtherLimits = errors.New("the policy has other limits now")

// adopt makes the limits of a policy hold for an override of the one before it.
func (p *livePolicy) adopt(x *override, now int64) error {
	if !x.Unlimited {
		limits, ok := p.pair(x.Limits)
		if !ok {
			return errOtherLimits
		}
		x.Limits = limits
	}
	return p.apply(x, nil, now)
}

// has reports whether the limits of a policy are held to by this state, among others.
func (p *livePolicy) has(s *limitState) bool {
	return !p.shared && slices.ContainsFunc(p.limits, func(l liveLimit) bool { return l.state == s })
}

func (e *Engine) overrideEnded(p *livePolicy, why error) {
	if e.options.Logger != nil {
		e.options.Logger.Warn("an override has ended with a reload", "policy", p.Name, "why", why.Error())
	}
}

// pair puts limits in the places of those of a policy that go on from them: of the same name, or, of those whose names are
// new, the first of the algorithm. It is not ok if one of them has none.
func (p *livePolicy) pair(limits []Limit) (all []Limit, ok bool) {
	if len(limits) != len(p.Limits) {
		return nil, false
	}
	was := make(map[string]*limitState, len(limits))
	byName := make(map[string]Limit, len(limits))
	for i := range limits {
		was[limits[i].Name] = &limitState{limit: limits[i].Limit}
		byName[limits[i].Name] = limits[i]
	}
	for i, from := range inherit(p.Limits, was) {
		l, ok := byName[from]
		if !ok || p.shared && storable(l.Limit) != nil {
			return nil, false
		}
		l.Name = p.Limits[i].Name
		all = append(all, l)
	}
	return all, true
}

// endOverrides stops all timers.
func (s *snapshot) endOverrides() {
	for i := range s.live {
		s.live[i].overrides.each((*override).end)
	}
}
