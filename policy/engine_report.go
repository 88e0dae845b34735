package policy

import (
	"math"

	"github.com/weirhq/weir"
)

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
		matched, failed := s.matched[i].sum()
		r.Rules = append(r.Rules, RuleReport{Name: s.set.Rules[i].Name, Matched: matched, Failed: failed})
	}
	return r
}

func (p *livePolicy) report(now int64) PolicyReport {
	c := p.state.counts
	r := PolicyReport{
		Name: p.Name, Mode: p.Mode, Granted: uint64(c.granted.Sum()), Refused: uint64(c.refused.Sum()),
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
		r.Locked = p.state.lockouts.locked(now)
	}
	if d := p.state.difference; d != nil {
		r.Difference = &Difference{
			Requests: uint64(d.requests.Sum()), NewlyRefused: uint64(d.refused.Sum()), NewlyAdmitted: uint64(d.admitted.Sum()),
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
