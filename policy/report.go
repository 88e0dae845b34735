package policy

import (
	"math"
	"time"

	"github.com/weirhq/weir"
)

// Report is the state of an [Engine].
type Report struct {
	// Version counts the sets that have been loaded, and Loaded is when the one in force was.
	Version uint64    `json:"version"`
	Loaded  time.Time `json:"loaded"`
	// LastError is why the last set was refused, "" if it was not, and LastAttempt when that was.
	LastError   string    `json:"last_error,omitempty"`
	LastAttempt time.Time `json:"last_attempt"`
	// Requests counts the requests that were decided, not those that wait, and Refused those that were refused, of which Denied
	// counts those that a rule denied. Exempt counts those that a rule has exempted, and Unlimited those that no limit applied
	// to. Canceled counts those whose callers went away while they waited.
	Requests  uint64 `json:"requests"`
	Refused   uint64 `json:"refused"`
	Denied    uint64 `json:"denied"`
	Exempt    uint64 `json:"exempt"`
	Unlimited uint64 `json:"unlimited"`
	Canceled  uint64 `json:"canceled"`
	// Latency is how long decisions take.
	Latency  Latency        `json:"latency"`
	Policies []PolicyReport `json:"policies"`
	Rules    []RuleReport   `json:"rules"`
}

// RuleReport is the state of a rule.
type RuleReport struct {
	Name string `json:"name"`
	// Matched counts the requests that match it. Of a rule that denies it counts those that were denied or, in shadow, would have
	// been.
	Matched uint64 `json:"matched"`
	// Failed counts the requests for which its condition failed.
	Failed uint64 `json:"failed"`
}

// PolicyReport is the state of a policy.
type PolicyReport struct { //nolint:revive // a Report is that of the engine
	Name string `json:"name"`
	Mode Mode   `json:"mode"`
	// Consistency is that of the policy.
	Consistency Consistency `json:"consistency"`
	// Durability is that of the policy.
	Durability Durability `json:"durability,omitzero"`
	// Allowed and Refused count requests that it applied to. Refused counts those that it has refused itself, or would have in
	// shadow. One that only another policy has refused counts for neither, and neither does one that Failed counts.
	Allowed uint64 `json:"allowed"`
	Refused uint64 `json:"refused"`
	// LockedOut counts the refusals of keys that are locked out. Failed counts the requests for which its key, tier or cost could
	// not be evaluated, or the limit that they bring not be used.
	LockedOut uint64 `json:"locked_out"`
	Failed    uint64 `json:"failed"`
	// Unavailable counts the requests that its store could not decide on, unless a [store.Fleet] allowed them, which counts those
	// itself. Expired counts those that ended after their permits had expired in the store. Unsettled counts those whose end the
	// store could not be told: their permits expire, unless a Fleet tells it later.
	Unavailable uint64 `json:"unavailable,omitempty"`
	Expired     uint64 `json:"expired,omitempty"`
	Unsettled   uint64 `json:"unsettled,omitempty"`
	// Keys is how many keys are tracked by the limit whose table is nearest to being full, as each limit has its own, and MaxKeys
	// how many that may track. So one full table among several is seen (TestReportOfTheFullestTable). Queued is how many permits
	// are waited for, Waiters by how many requests, in the queues of all limits. Locked is how many keys are locked out. For
	// limits in a store they are 0, except Locked, which is of this process.
	Keys    int64 `json:"keys"`
	MaxKeys int64 `json:"max_keys"`
	Queued  int64 `json:"queued"`
	Waiters int64 `json:"waiters"`
	Locked  int64 `json:"locked"`
	// Overridden is how many keys have another limit for a while: see [Engine.Override].
	Overridden int64 `json:"overridden"`
	// Untracked counts requests that were allowed, and Full those that were refused, because as many keys as may be were tracked
	// and none could be forgotten. If the policy has several limits, Untracked is the count of the one with the highest. Forgiven
	// counts permits that reservations and debits cost beyond the largest debt. All are 0 for limits in a store. They never
	// become less while the policy is there.
	Untracked uint64 `json:"untracked"`
	Full      uint64 `json:"full"`
	Forgiven  uint64 `json:"forgiven"`
	// Difference is that between the policy and its candidate, since that has had its limits; nil if it has none.
	Difference *Difference `json:"difference,omitempty"`
}

// Difference is what a candidate, or a policy in shadow, would have changed.
type Difference struct {
	// Requests counts those that were asked of both.
	Requests uint64 `json:"requests"`
	// NewlyRefused counts those that were allowed and would have been refused, NewlyAdmitted those that were refused and would
	// have been allowed.
	NewlyRefused  uint64 `json:"newly_refused"`
	NewlyAdmitted uint64 `json:"newly_allowed"`
	// RefusedKeys and AdmittedKeys are the keys that this happened to most, the first the most often.
	RefusedKeys  []KeyCount `json:"refused_keys,omitempty"`
	AdmittedKeys []KeyCount `json:"allowed_keys,omitempty"`
}

// KeyCount is how often something happened to a key.
type KeyCount struct {
	Key   string `json:"key"`
	Count uint64 `json:"count"`
}

// Change is a difference between two sets.
type Change struct {
	// Path is what has changed, such as "policies.per-client.limits.1m.rate" or "rules.login".
	Path string `json:"path"`
	// Old and New are what it was and is, "" for what was not or is no more there.
	Old string `json:"old"`
	New string `json:"new"`
	// State is what happens to the state of keys: "kept", "begins anew" or "forgotten", and "" if nothing does. Where a store or
	// an owner keeps it by its name, it goes on "as stored", if there is any, and "stays stored" when its limit goes.
	State string `json:"state,omitempty"`
}

// Report returns the state of the engine. It looks at all limits, and delays no request.
func (e *Engine) Report() Report {
	// A reload would hand on what the limits of the set before have counted while they are still looked at.
	e.loading.Lock()
	defer e.loading.Unlock()
	s := e.live.Load()
	r := Report{
		Version: s.version, Loaded: s.loaded, LastAttempt: e.lastAttempt,
		Requests: uint64(e.counts.requests.Sum()), Refused: uint64(e.counts.refused.Sum()),
		Denied: uint64(e.counts.denied.Sum()), Exempt: uint64(e.counts.exempt.Sum()),
		Latency:   e.latency.report(),
		Unlimited: uint64(e.counts.unlimited.Sum()), Canceled: uint64(e.counts.canceled.Sum()),
	}
	if e.lastError != nil {
		r.LastError = e.lastError.Error()
	}
	for i := range s.live {
		r.Policies = append(r.Policies, s.live[i].report(e.now()))
	}
	r.Rules = make([]RuleReport, 0, len(s.set.Rules))
	for i := range s.set.Rules {
		matched, failed := s.briefs[i].count.sum()
		r.Rules = append(r.Rules, RuleReport{Name: s.set.Rules[i].Name, Matched: matched, Failed: failed})
	}
	return r
}

func (p *livePolicy) report(now int64) PolicyReport {
	c := p.state.counts
	r := PolicyReport{
		Name: p.Name, Mode: p.Mode, Allowed: uint64(c.allowed.Sum()), Refused: uint64(c.refused.Sum()),
		LockedOut: uint64(c.lockedOut.Sum()),
		Failed:    uint64(c.failed.Sum()), Consistency: p.Consistency, Durability: p.Durability,
		Unavailable: uint64(c.unavailable.Sum()), Expired: uint64(c.expired.Sum()), Unsettled: uint64(c.unsettled.Sum()),
	}
	untracked, forgiven := c.untracked.Load(), c.forgiven.Load()
	l := p.limited()
	r.Keys, r.MaxKeys, r.Queued, r.Waiters = l.Keys, l.MaxKeys, l.Queued, int64(l.Waiters)
	r.Untracked, r.Forgiven, r.Full = uint64(untracked+l.Untracked), addCapped(forgiven, l.Forgiven), uint64(c.full.Sum())
	r.Overridden = p.overrides.sum()
	if p.state.lockouts != nil {
		r.Locked = p.state.lockouts.locked(now, p.Lockout)
	}
	if d := p.state.difference; d != nil {
		r.Difference = &Difference{
			Requests: uint64(d.requests.Sum()), NewlyRefused: uint64(d.refused.Sum()), NewlyAdmitted: uint64(d.allowed.Sum()),
			RefusedKeys: d.refusals.top(mostReported), AdmittedKeys: d.grants.top(mostReported),
		}
	}
	return r
}

// limited is what the limits of this process count: sums, except that requests are untracked by all limits at a time, and that
// keys are those of the limit whose table is nearest to being full, as one that is full is what refuses requests.
func (p *livePolicy) limited() (sum weir.Stats) {
	for i := range p.limits {
		if p.shared {
			break
		}
		st := p.limits[i].state.limiter.Stats()
		if fuller(st.Keys, st.MaxKeys, sum.Keys, sum.MaxKeys) {
			sum.Keys, sum.MaxKeys = st.Keys, st.MaxKeys
		}
		sum.Queued += st.Queued
		sum.Waiters += st.Waiters
		sum.Untracked = max(sum.Untracked, st.Untracked)
		sum.Forgiven += min(st.Forgiven, math.MaxInt64-sum.Forgiven)
	}
	return sum
}

// fuller reports whether a table of keys is nearer to being full than another one, which has no room for any if it is none.
func fuller(keys, most, otherKeys, otherMost int64) bool {
	if otherMost == 0 {
		return true
	}
	return float64(keys)*float64(otherMost) > float64(otherKeys)*float64(most)
}

// addCapped is a sum that ends at the largest int64.
func addCapped(a, b int64) uint64 { return uint64(a + min(b, math.MaxInt64-a)) }

// carryCounts makes the counts of limits go on where those of limits that have gone have ended. Nothing can fail any more.
func carryCounts(old, now *snapshot) {
	if old == nil {
		return
	}
	for i := range now.live {
		p := &now.live[i]
		at, ok := old.policies[p.Name]
		if !ok || old.live[at].samePlaces(p) {
			continue
		}
		before, after, c := old.live[at].limited(), p.limited(), p.state.counts
		c.untracked.Add(before.Untracked - after.Untracked)
		if forgiven := before.Forgiven - after.Forgiven; forgiven <= math.MaxInt64-c.forgiven.Load() {
			c.forgiven.Add(forgiven)
		}
	}
}

// mostReported is how many keys a report names.
const mostReported = 20
