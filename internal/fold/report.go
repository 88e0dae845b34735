package fold

import (
	"sync"

	"github.com/weirhq/weir/policy"
)

// Reports fold the reports of one engine.
type Reports struct {
	lock     sync.Mutex
	policies *Items[policy.PolicyReport]
	rules    *Items[policy.RuleReport]
}

// NewReports folds all but so many policies, and so many rules, into one of a name.
func NewReports(most int, other string) *Reports {
	return &Reports{
		policies: &Items[policy.PolicyReport]{
			Most: most, Other: other, Add: addPolicy, Counts: countsOfPolicy,
			Name: func(p *policy.PolicyReport) string { return p.Name },
		},
		rules: &Items[policy.RuleReport]{
			Most: most, Other: other, Add: func(_, _ *policy.RuleReport) {},
			Name:   func(r *policy.RuleReport) string { return r.Name },
			Counts: func(r *policy.RuleReport) []*uint64 { return []*uint64{&r.Matched, &r.Failed} },
		},
	}
}

// Fold reads a report, and returns it with the policies and the rules that stay, and the others as one of each behind them, and
// how many policies and rules there were. The others have what they count together, and of what else a policy has only what can
// be added up.
func (f *Reports) Fold(read func() policy.Report) (r policy.Report, policies, rules int) {
	f.lock.Lock()
	defer f.lock.Unlock()
	r = read()
	policies, rules = len(r.Policies), len(r.Rules)
	var names []string
	r.Policies, names = f.policies.Fold(func() []policy.PolicyReport { return r.Policies })
	for i, name := range names {
		r.Policies[i].Name = name
	}
	r.Rules, names = f.rules.Fold(func() []policy.RuleReport { return r.Rules })
	for i, name := range names {
		r.Rules[i].Name = name
	}
	return r, policies, rules
}

func countsOfPolicy(p *policy.PolicyReport) []*uint64 {
	d := p.Difference
	if d == nil {
		d = new(policy.Difference)
	}
	return []*uint64{
		&p.Allowed, &p.Refused, &p.LockedOut, &p.Failed, &p.Unavailable, &p.Expired, &p.Unsettled, &p.Untracked, &p.Full,
		&p.Forgiven, &d.Requests, &d.NewlyRefused, &d.NewlyAdmitted,
	}
}

func addPolicy(sum, p *policy.PolicyReport) {
	sum.Keys += p.Keys
	sum.MaxKeys += p.MaxKeys
	sum.Queued += p.Queued
	sum.Waiters += p.Waiters
	sum.Locked += p.Locked
	sum.Overridden += p.Overridden
	if p.Difference != nil && sum.Difference == nil {
		sum.Difference = &policy.Difference{}
	}
}
