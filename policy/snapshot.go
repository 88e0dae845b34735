package policy

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/inside"
	"github.com/weirhq/weir/internal/tally"
	"github.com/weirhq/weir/keyset"
)

// snapshot is a set as the engine uses it. It does not change.
type snapshot struct {
	program

	version  uint64
	loaded   time.Time
	live     []livePolicy
	briefs   []ruleBrief
	lockouts bool // some policy has one
	denies   bool // some rule denies requests, or would
	told     bool // some policy has OnDecided
	compares bool // some policy is in shadow, or has a candidate
}

// policy is the one of a name, nil if there is none.
func (s *snapshot) policy(name string) *livePolicy {
	if at, ok := s.policies[name]; ok {
		return &s.live[at]
	}
	return nil
}

// rule is the one that has applied an item, nil if the caller has named its policy.
func (s *snapshot) rule(it *item) *Rule {
	if it.rule == noRule {
		return nil
	}
	return &s.set.Rules[it.rule]
}

// ruleBrief is what requests need of a rule that they match. It is short, so that those of thousands of rules are at hand.
type ruleBrief struct {
	count *ruleCount
	uses  *[]use

	deny, when, exempt, final, afterwards bool
}

// ruleCount counts for a rule.
type ruleCount struct {
	matched atomic.Uint64
	often   *tally.Tally // instead of matched, of a rule that matches nearly all requests
	before  *ruleCount   // what it counted before, and requests go on to count that began before
	failed  atomic.Uint64
	warned  atomic.Int64
}

func (c *ruleCount) add() {
	if c.often != nil {
		c.often.Add()
	} else {
		c.matched.Add(1)
	}
}

func (c *ruleCount) sum() (matched, failed uint64) {
	matched, failed = c.matched.Load(), c.failed.Load()
	if c.often != nil {
		matched += uint64(c.often.Sum())
	}
	if c.before != nil {
		m, f := c.before.sum()
		matched, failed = matched+m, failed+f
	}
	return matched, failed
}

// livePolicy is a policy in force.
type livePolicy struct {
	*Policy

	state     *policyState
	limits    []liveLimit
	candidate []liveLimit
	usual     variant // Policy.Limits
	measured  variant // Policy.Candidate
	tried     *Policy // with the Candidate as its Limits, nil without
	tiers     map[string]*variant
	keys      map[string]*variant // by what keys are counted under
	brought   *broughtLimits      // nil without LimitBy
	overrides *overrides
	waiting   *waiting
	parent    int // -1 for none
	queue     bool
	returns   bool // permits of some limit come back on release
	shared    bool // its limits are kept for several processes: in the store or, if it is durable, by the owner of the cluster
	durable   bool
	composed  bool // its keys may have several parts
	hold      time.Duration
	maxWait   time.Duration
}

// variant is what the limits of a policy are for a request: those of the policy itself, of a tier, of a key, of an override, or
// one that the request brings.
type variant struct {
	limits []Limit
	plans  []*keyset.Plan // the same; nil if they are kept for several processes
}

// at is one of the limits: that of a plan may have been replaced while the request waited.
func (x *variant) at(i int) weir.Limit {
	if x.plans != nil {
		return x.plans[i].Limit()
	}
	return x.limits[i].Limit
}

// liveLimit is a limit in force.
type liveLimit struct {
	name    string // in decisions, and of what a store keeps
	state   *limitState
	returns bool // permits come back on release
}

// limitState is what stays of a limit when the set is replaced.
type limitState struct {
	limit   weir.Limit              // that it began with
	limiter *weir.Keyed[string]     // nil if it is shared
	stored  string                  // what it is kept by for several processes, if it is shared
	roles   map[string]*keyset.Plan // what the set in force holds keys to: by default, and in each tier and for some keys
}

// policyState is what stays of a policy when the set is replaced.
type policyState struct {
	limits     map[string]*limitState
	candidates map[string]*limitState
	lockouts   *lockouts
	difference *difference
	counts     *policyCounts
	refusals   *countedKeys // nil if the limits are those of this process
}

// policyCounts counts for a policy.
type policyCounts struct {
	allowed, refused, lockedOut, failed tally.Tally
	unavailable, expired, unsettled     tally.Tally
	full                                tally.Tally
	warned, storeWarned                 atomic.Int64
	untracked, forgiven                 atomic.Int64 // by limiters that have gone since, as the report tells it
}

// difference counts what a candidate, or a policy in shadow, would have changed.
type difference struct {
	requests, refused, allowed tally.Tally

	refusals, grants *countedKeys // that it would have refused, or allowed
}

// build makes a program that was checked one that can be used, with the states of the one in force.
func (e *Engine) build(p *program, old *snapshot) (*snapshot, error) {
	s := &snapshot{program: *p, loaded: time.Now(), version: 1, denies: denies(p.set.Rules)}
	if old != nil {
		s.version = old.version + 1
	}
	s.live = make([]livePolicy, len(p.set.Policies))
	s.abbreviate(old)
	for i := range s.live {
		s.live[i].Policy = &p.set.Policies[i]
	}
	s.composedKeys()
	for i := range s.live {
		live := &s.live[i]
		live.parent = -1
		if live.Parent != "" {
			live.parent = p.policies[live.Parent]
		}
		live.queue, live.maxWait, live.hold = live.QueueLimit > 0, live.MaxWait, live.Hold
		if live.maxWait == 0 {
			live.maxWait = defaultWait
		}
		if live.hold == 0 {
			live.hold = defaultHold
		}
		live.shared = live.Shared() && !e.options.Alone
		live.durable = live.shared && live.Durability != DurabilityMemory
		var was *policyState
		if old != nil {
			if at, ok := old.policies[live.Name]; ok {
				was = old.live[at].state
			}
		}
		if err := live.build(was, e.options.Clock); err != nil {
			return nil, fmt.Errorf("policy %q: %w", live.Name, err)
		}
		s.lockouts = s.lockouts || live.Lockout != nil
		s.told = s.told || live.OnDecided != nil
		s.compares = s.compares || live.Mode.watches() || len(live.candidate) > 0
	}
	return s, nil
}

// abbreviate makes the briefs of all rules. Those that there were before go on to count.
func (s *snapshot) abbreviate(old *snapshot) {
	s.briefs = make([]ruleBrief, len(s.set.Rules))
	for i := range s.set.Rules {
		rule := &s.set.Rules[i]
		count := new(ruleCount)
		if old != nil {
			if at, ok := old.rules[rule.Name]; ok {
				count = old.briefs[at].count
			}
		}
		if count.often == nil && s.index.MatchesAll(int32(i)) {
			count = &ruleCount{often: new(tally.Tally), before: count}
		}
		s.briefs[i] = ruleBrief{count, s.uses[i], rule.Deny, rule.When != nil, rule.Exempt, rule.Final, rule.Afterwards}
	}
}

func (p *livePolicy) build(was *policyState, clock weir.Clock) (err error) {
	p.state = &policyState{}
	if was != nil {
		p.state.lockouts, p.state.difference, p.state.counts = was.lockouts, was.difference, was.counts
		p.state.refusals = was.refusals
	} else {
		p.state.counts = new(policyCounts)
		was = p.state
	}
	switch {
	case p.Lockout == nil:
		p.state.lockouts = nil
	case p.state.lockouts == nil:
		p.state.lockouts = newLockouts(p.MaxKeys)
	}
	switch {
	case !p.shared:
		p.state.refusals = nil
	case p.state.refusals == nil:
		p.state.refusals = newCountedKeys(longestLockedName)
	}
	if p.LimitBy != nil {
		p.brought = new(broughtLimits)
	}
	candidates := was.candidates
	if !areOf(candidates, p.Candidate) { // another one has seen nothing yet of what it would have done
		candidates, p.state.difference = nil, nil
	}
	measured := len(p.Candidate) > 0 || p.Mode.watches()
	switch {
	case !measured:
		p.state.difference = nil
	case p.state.difference == nil:
		p.state.difference = &difference{refusals: newCountedKeys(math.MaxInt), grants: newCountedKeys(math.MaxInt)}
	}
	if p.shared {
		p.limits, p.state.limits = p.sharedLimits(was.limits)
	} else if p.limits, p.state.limits, err = p.buildLimits(p.Limits, was.limits, clock, ""); err != nil {
		return err
	}
	p.returns = slices.ContainsFunc(p.limits, func(l liveLimit) bool { return l.returns })
	if p.candidate, p.state.candidates, err = p.buildLimits(p.Candidate, candidates, clock, "candidate "); err != nil {
		return err
	}
	if p.usual, err = variantOf(p.limits, p.Limits); err != nil {
		return err
	}
	if p.measured, err = variantOf(p.candidate, p.Candidate); err != nil {
		return err
	}
	if len(p.Candidate) > 0 {
		tried := *p.Policy
		tried.Limits = tried.Candidate
		p.tried = &tried
	}
	if p.tiers, err = p.variants(p.Tiers); err != nil {
		return err
	}
	p.keys, err = p.variants(p.countedKeys())
	return err
}

// areOf reports whether states are those of a candidate with these limits.
func areOf(candidates map[string]*limitState, limits []Limit) bool {
	if len(candidates) != len(limits) {
		return false
	}
	for i := range limits {
		was, l := candidates[limits[i].Name], limits[i].Limit
		if was == nil || was.limit != l && was.limit.String() != l.String() { // a time zone is another one when it is read again
			return false
		}
	}
	return true
}

// buildLimits returns limits with the states of those that there were: of the same name, or, of those whose names are new, the
// first of its algorithm.
func (p *livePolicy) buildLimits(
	limits []Limit, was map[string]*limitState, clock weir.Clock, role string,
) (all []liveLimit, states map[string]*limitState, err error) {
	states = make(map[string]*limitState, len(limits))
	for i, from := range inherit(limits, was) {
		l := &limits[i]
		state := was[from]
		if state == nil {
			state = &limitState{limit: l.Limit}
			state.limiter, err = newKeyed(l.Limit, weir.KeyedOptions{
				Name:       role + p.Name,
				QueueLimit: p.QueueLimit, NewestFirst: p.NewestFirst, MaxKeys: p.MaxKeys, AdmitWhenFull: p.AdmitWhenFull,
				Clock: clock,
			}, ownLimit)
			if err != nil {
				return nil, nil, fmt.Errorf("limit %q: %w", l.Name, err)
			}
		}
		states[l.Name] = state
		all = append(all, liveLimit{nameOf(p.Name, limits, i), state, l.Algorithm() == weir.AlgorithmConcurrency})
	}
	return all, states, nil
}

// newKeyed makes the limiter of a limit, whatever its algorithm: requests are charged to those of several policies as one step.
//
//nolint:errcheck,forcetypeassert,gochecknoglobals // package weir has set it, which is initialized before
var newKeyed = inside.Keyed.(func(weir.Limit, weir.KeyedOptions, func(string) weir.Limit) (*weir.Keyed[string], error))

// nameOf is the name of the i-th of the limits of a policy in decisions.
func nameOf(policy string, limits []Limit, i int) string {
	if len(limits) > 1 {
		return policy + "/" + limits[i].Name
	}
	return policy
}

func ownLimit(string) weir.Limit { return weir.Limit{} }

// inherit returns from which of the states that there were each limit goes on, "" for none. Those of limits that were shared
// stay in the store.
func inherit(limits []Limit, was map[string]*limitState) []string {
	was = localStates(was)
	from, taken := make([]string, len(limits)), map[string]bool{}
	for i := range limits {
		if s := was[limits[i].Name]; s != nil {
			taken[limits[i].Name] = true
			if alike(s.limit, limits[i].Limit) {
				from[i] = limits[i].Name
			}
		}
	}
	for i := range limits {
		if was[limits[i].Name] != nil {
			continue
		}
		for _, name := range sortedKeys(was) {
			if !taken[name] && alike(was[name].limit, limits[i].Limit) {
				from[i], taken[name] = name, true
				break
			}
		}
	}
	return from
}

// variantOf has limits of this process checked by the limiters that keep their states.
func variantOf(live []liveLimit, limits []Limit) (x variant, err error) {
	x.limits = limits
	for i := range limits {
		l, limiter := &limits[i], live[i].state.limiter
		if limiter == nil {
			break // its charges say what each key is held to
		}
		plan, err := keyset.Of(limiter).Plan(l.Limit)
		if err != nil {
			return x, fmt.Errorf("limit %q: %w", l.Name, err)
		}
		x.plans = append(x.plans, plan)
	}
	return x, nil
}

// variants are limits that take the place of those of the policy.
func (p *livePolicy) variants(all map[string][]Limit) (map[string]*variant, error) {
	var variants map[string]*variant // nil is quicker to look up in
	if len(all) > 0 {
		variants = make(map[string]*variant, len(all))
	}
	for name, limits := range all {
		x, err := variantOf(p.limits, limits)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		variants[name] = &x
	}
	return variants, nil
}

// bound makes the bounds of all limits those of the set. Nothing can fail any more.
func (s *snapshot) bound() {
	for i := range s.live {
		p := &s.live[i]
		b := keyset.Bounds{
			QueueLimit: p.QueueLimit, NewestFirst: p.NewestFirst, MaxKeys: p.MaxKeys, AdmitWhenFull: p.AdmitWhenFull,
		}
		if b.MaxKeys == 0 {
			b.MaxKeys = defaultMaxKeys
		}
		if p.state.lockouts != nil {
			p.state.lockouts.bound(b.MaxKeys)
		}
		for _, limits := range [][]liveLimit{p.limits, p.candidate} {
			for j := range limits {
				k := limits[j].state.limiter
				if k != nil && keyset.Of(k).Bounds() != b {
					_ = keyset.Of(k).SetBounds(b) // was checked
				}
			}
		}
	}
}

// sharedLimits returns limits that are kept in a store, or by the owner of the cluster, each algorithm under a name of its own.
// What is there is carried over to another limit.
func (p *livePolicy) sharedLimits(was map[string]*limitState) (all []liveLimit, states map[string]*limitState) {
	states = make(map[string]*limitState, len(p.Limits))
	for i := range p.Limits {
		l := &p.Limits[i]
		live := liveLimit{name: nameOf(p.Name, p.Limits, i), returns: l.Algorithm() == weir.AlgorithmConcurrency}
		stored := fmt.Sprintf("%v %s", l.Algorithm(), live.name)
		if p.durable {
			stored = "durable " + stored
		}
		for _, old := range was {
			if old.stored == stored {
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

// replacePlans says of limits that have changed since the last set what they are now, so that keys that are not used meanwhile
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
