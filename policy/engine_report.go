package policy

import (
	"cmp"
	"slices"

	"github.com/weirhq/weir/internal/names"
	"github.com/weirhq/weir/internal/table"
)

// Report answers the state of the engine. It looks at all limits, and holds up nobody.
func (e *Engine) Report() Report {
	e.loading.Lock()
	lastError, lastAttempt := e.lastError, e.lastAttempt
	e.loading.Unlock()
	s := e.live.Load()
	r := Report{
		Version: s.version, Loaded: s.loaded, LastAttempt: lastAttempt,
		Requests: uint64(e.counts.requests.Sum()), Refused: uint64(e.counts.refused.Sum()), Exempt: uint64(e.counts.exempt.Sum()),
		Unlimited: uint64(e.counts.unlimited.Sum()), Canceled: uint64(e.counts.canceled.Sum()),
	}
	if lastError != nil {
		r.LastError = lastError.Error()
	}
	for i := range s.live {
		r.Policies = append(r.Policies, s.live[i].report(e.now()))
	}
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
	for i := range p.limits {
		if p.shared {
			break
		}
		st := p.limits[i].state.limiter.Stats()
		r.Keys += st.Keys
		r.MaxKeys += st.MaxKeys
		r.Queued += st.Queued
	}
	if p.state.lockouts != nil {
		r.Locked = p.state.lockouts.locked(now)
	}
	if d := p.state.difference; d != nil {
		r.Difference = &Difference{
			Requests: uint64(d.requests.Sum()), NewlyRefused: uint64(d.refused.Sum()), NewlyAdmitted: uint64(d.admitted.Sum()),
			RefusedKeys: topKeys(d.refusals), AdmittedKeys: topKeys(d.grants),
		}
	}
	return r
}

// mostReported is how many keys a report names.
const mostReported = 20

func topKeys(in *names.Names[string]) (top []KeyCount) {
	in.Each(func(_ table.Hash, key string, count uint64) bool {
		if count > 0 {
			top = append(top, KeyCount{key, count})
		}
		return true
	})
	slices.SortFunc(top, func(a, b KeyCount) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key)) })
	return top[:min(len(top), mostReported)]
}
