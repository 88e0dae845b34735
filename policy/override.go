package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/store"
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
	// By and Reason are the author and the reason, for operators that look at it: at most 256 and 1024 bytes of printable text.
	// Default: "".
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

// checkOverride returns the limits of an override with names, or what is wrong with it.
func (p *livePolicy) checkOverride(o *Override) ([]Limit, error) {
	c := new(checker)
	if len(o.Key) > longestOverridden {
		c.refuse("Override.Key", fmt.Sprintf("%d bytes", len(o.Key)), "at most 8192 bytes")
	}
	if o.For < leastOverride || o.For > mostOverride {
		c.refuse("Override.For", o.For.String(), "from 1s to 87840h (3660 days)")
	}
	c.printable("Override.By", o.By, longestOverrideBy)
	c.printable("Override.Reason", o.Reason, longestOverrideText)
	limits := slices.Clone(o.Limits)
	switch {
	case o.Unlimited && len(limits) > 0:
		c.refuse("Override.Limits", fmt.Sprintf("%d of them", len(limits)), "none, as it is Unlimited")
	case !o.Unlimited && (len(limits) == 0 || len(limits) != len(p.Limits)):
		c.refuse("Override.Limits", fmt.Sprintf("%d of them", len(limits)),
			strconv.Itoa(len(p.Limits))+", as the policy has, or none and Unlimited")
	default:
		c.overriding(p, limits)
	}
	return limits, errors.Join(c.errs...)
}

// overriding checks limits that hold instead of those of a policy, and gives them their names.
func (c *checker) overriding(p *livePolicy, limits []Limit) {
	for i := range limits {
		l, of := &limits[i], &p.Limits[i]
		at := fmt.Sprintf("Override.Limits[%d]", i)
		if err := l.Check(); err != nil {
			c.add(fmt.Errorf("%s: %w", at, err))
			continue
		}
		if l.Name != "" && l.Name != of.Name {
			c.refuse(at+".Name", strconv.Quote(l.Name), strconv.Quote(of.Name)+", as in the policy, or none")
		}
		if !alike(l.Limit, of.Limit) {
			c.refuse(at, l.String(), "the algorithm of the policy, "+of.Algorithm().String()+", and its segments")
		}
		l.Name = of.Name
	}
	if p.shared {
		c.stored("Override.Limits", limits)
	}
}

// printable refuses what cannot be shown in one line.
func (c *checker) printable(option, s string, longest int) {
	if len(s) > longest {
		c.refuse(option, fmt.Sprintf("%d bytes", len(s)), fmt.Sprintf("at most %d bytes", longest))
		return
	}
	if !utf8.ValidString(s) {
		c.refuse(option, strconv.Quote(s), "UTF-8")
		return
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			c.refuse(option, strconv.Quote(s), "printable characters")
			return
		}
	}
}

// rest is for how long the override still holds. It may be called of nil.
func (x *override) rest(now int64) time.Duration {
	if x == nil {
		return 0
	}
	return time.Duration(max(x.until-now, 0))
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
		switch {
		case p == nil || p.overrides != all || all.get(x.Key) != x || e.closed.Load():
		case x.rest(e.now()) > 0: // a clock that was set back
			x.stop = e.clock.At(x.until, expire)
		default:
			all.remove(x) // the limits of this process end theirs themselves
			change = e.changed(p, x.Key, x, nil)
		}
		e.loading.Unlock()
		if change > 0 {
			e.tellStore(change, x.Policy, x.Key)
		}
	}
	x.stop = e.clock.At(x.until, expire)
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

// adopt makes the limits of a policy apply to an override of the one before it.
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

// mostTelling is how long a store may take to be told of an override.
const mostTelling = 2 * time.Second

// tellings are what stores are being told of overrides: of each key by one call at a time, which tells what holds by then. So
// the last call that a store gets for a key never tells it of a limit that has been replaced.
type tellings struct {
	mu  sync.Mutex
	all map[tellingKey]*telling
}

type tellingKey struct{ policy, key string }

// telling is what the store is being told of a key.
type telling struct {
	turn  chan struct{} // has room for the call that tells the store
	told  uint64        // the last change that it knows of; for the one whose turn it is
	users int           // calls that tell the store or wait for their turn, by tellings.mu
}

func (t *tellings) enter(k tellingKey) *telling {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.all[k]
	if one == nil {
		if t.all == nil {
			t.all = map[tellingKey]*telling{}
		}
		one = &telling{turn: make(chan struct{}, 1)}
		t.all[k] = one
	}
	one.users++
	return one
}

func (t *tellings) leave(k tellingKey, one *telling) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(t.all, k)
	}
}

// tellStore tells the store of a policy which limits apply to a key, as it goes on under those of the last request, and returns
// when it knows of the change of that number. It does so one after the other for each key, with the limits that hold when
// its turn comes: of changes that are made at the same time the store keeps the last.
func (e *Engine) tellStore(change uint64, policy, key string) {
	ctx, cancel := context.WithTimeout(e.ending, mostTelling)
	defer cancel()
	k := tellingKey{policy, key}
	one := e.telling.enter(k)
	defer e.telling.leave(k, one)
	select {
	case one.turn <- struct{}{}:
	case <-ctx.Done():
		e.untold(policy, ctx.Err())
		return
	}
	defer func() { <-one.turn }()
	for one.told < change {
		s, last, charges := e.holding(policy, key)
		if len(charges) > 0 {
			if err := store.Debit(ctx, e.states, charges, make([]weir.Decision, len(charges))); err != nil {
				e.untold(policy, err)
				return
			}
		}
		if e.live.Load() == s { // or the limits were replaced meanwhile
			one.told = last
		}
	}
}

// holding are the charges of no permits that tell a store what holds for a key now, the set that says so, and the number of the
// last change. There are none if nothing is known without a request.
func (e *Engine) holding(policy, key string) (s *snapshot, last uint64, charges []store.Charge) {
	e.loading.Lock()
	defer e.loading.Unlock()
	s, last = e.live.Load(), e.changes
	p := e.live.Load().policy(policy)
	if p == nil || !p.shared {
		return s, last, nil
	}
	x := p.overrides.of([]byte(key))
	if (x == nil || x.Unlimited) && (p.TierBy != nil || p.LimitBy != nil) {
		return s, last, nil
	}
	charges = appendStored(nil, boundKey(key), &item{policy: p, variant: p.limitsFor(key)})
	charges = slices.DeleteFunc(charges, func(c store.Charge) bool { return c.Limit.Algorithm() == weir.AlgorithmConcurrency })
	return s, last, charges
}

func (e *Engine) untold(policy string, why error) {
	if p := e.live.Load().policy(policy); p != nil && !e.closed.Load() {
		e.warn(&p.state.counts.storeWarned, storeFailed, "policy", policy, why)
	}
}
