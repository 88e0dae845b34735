package weirprom

import "github.com/weirhq/weir/policy"

// ofPolicies is for a metric with a value for each policy.
func ofPolicies[N number](of func(*policy.PolicyReport) N) func(*engineReport, emitter) {
	return func(r *engineReport, emit emitter) {
		for i := range r.Policies {
			emit(float64(of(&r.Policies[i])), r.Policies[i].Name)
		}
	}
}

var (
	byPolicy = []string{ofPolicy}
	byRule   = []string{"rule"}
)

var policyFamilies = []family[engineReport]{
	{
		name: "weir_policy_info", kind: gauge, labels: []string{ofPolicy, "mode", "consistency", "durability"},
		help: "1 for each policy in force, with its mode and where its limits are kept.",
		each: func(r *engineReport, emit emitter) {
			for i := range r.Policies {
				p := &r.Policies[i]
				if p.Name == Other {
					continue // they differ
				}
				emit(1, p.Name, p.Mode.String(), p.Consistency.String(), p.Durability.String())
			}
		},
	},
	{
		name: "weir_policy_requests_total", kind: counter, labels: []string{ofPolicy, result},
		help: "Requests to which the policy applied, once for each of its keys: allowed, or refused by the policy itself. " +
			"In shadow, refused are those that it would refuse. What only another policy refuses counts as neither.",
		each: func(r *engineReport, emit emitter) {
			for i := range r.Policies {
				p := &r.Policies[i]
				emit(float64(p.Allowed), p.Name, "allowed")
				emit(float64(p.Refused), p.Name, "refused")
			}
		},
	},
	{
		name: "weir_policy_locked_out_total", kind: counter, labels: byPolicy,
		help: "Refusals of keys that are locked out.",
		each: ofPolicies(func(p *policy.PolicyReport) uint64 { return p.LockedOut }),
	},
	{
		name: "weir_policy_failed_total", kind: counter, labels: byPolicy,
		help: "Requests for which the key, the tier or the cost of the policy failed.",
		each: ofPolicies(func(p *policy.PolicyReport) uint64 { return p.Failed }),
	},
	{
		name: "weir_policy_unavailable_total", kind: counter, labels: byPolicy,
		help: "Requests that the store of the policy could not decide: those refused, and of a cluster also those allowed.",
		each: ofPolicies(func(p *policy.PolicyReport) uint64 { return p.Unavailable }),
	},
	{
		name: "weir_policy_expired_total", kind: counter, labels: byPolicy,
		help: "Requests that ended after their permits in the store had expired.",
		each: ofPolicies(func(p *policy.PolicyReport) uint64 { return p.Expired }),
	},
	{
		name: "weir_policy_unsettled_total", kind: counter, labels: byPolicy,
		help: "Requests whose end did not reach the store at once.",
		each: ofPolicies(func(p *policy.PolicyReport) uint64 { return p.Unsettled }),
	},
	{
		name: "weir_policy_keys", kind: gauge, labels: byPolicy,
		help: "Keys that the fullest table of the policy tracks in this process.",
		each: ofPolicies(func(p *policy.PolicyReport) int64 { return p.Keys }),
	},
	{
		name: "weir_policy_max_keys", kind: gauge, labels: byPolicy,
		help: "Keys that this table may track, 0 if the policy is kept in a store.",
		each: ofPolicies(func(p *policy.PolicyReport) int64 { return p.MaxKeys }),
	},
	{
		name: "weir_policy_queued_permits", kind: gauge, labels: byPolicy,
		help: "Permits that requests wait for in this process.",
		each: ofPolicies(func(p *policy.PolicyReport) int64 { return p.Queued }),
	},
	{
		name: "weir_policy_waiters", kind: gauge, labels: byPolicy,
		help: "Requests that wait for permits in this process.",
		each: ofPolicies(func(p *policy.PolicyReport) int64 { return p.Waiters }),
	},
	{
		name: "weir_policy_locked_keys", kind: gauge, labels: byPolicy,
		help: "Keys that are locked out.",
		each: ofPolicies(func(p *policy.PolicyReport) int64 { return p.Locked }),
	},
	{
		name: "weir_policy_overridden_keys", kind: gauge, labels: byPolicy,
		help: "Keys that have another limit for a while.",
		each: ofPolicies(func(p *policy.PolicyReport) int64 { return p.Overridden }),
	},
	{
		name: "weir_policy_untracked_total", kind: counter, labels: byPolicy,
		help: "Requests that were allowed and not counted because the table of keys was full.",
		each: ofPolicies(func(p *policy.PolicyReport) uint64 { return p.Untracked }),
	},
	{
		name: "weir_policy_table_full_total", kind: counter, labels: byPolicy,
		help: "Requests that were refused because the table of keys was full.",
		each: ofPolicies(func(p *policy.PolicyReport) uint64 { return p.Full }),
	},
	{
		name: "weir_policy_forgiven_permits_total", kind: counter, labels: byPolicy,
		help: "Permits that requests have cost beyond the largest debt, and that limits of this process have forgiven.",
		each: ofPolicies(func(p *policy.PolicyReport) uint64 { return p.Forgiven }),
	},
	{
		name: "weir_policy_compared_total", kind: counter, labels: byPolicy,
		help: "Requests that a policy and its candidate, or a policy in shadow, have decided, once for each of its keys.",
		each: ofDifferences(func(d *policy.Difference, name string, emit emitter) { emit(float64(d.Requests), name) }),
	},
	{
		name: "weir_policy_differences_total", kind: counter, labels: []string{ofPolicy, "difference"},
		help: "Requests that the candidate of the policy, or the policy in shadow, would have decided otherwise: " +
			"newly_refused or newly_allowed.",
		each: ofDifferences(func(d *policy.Difference, name string, emit emitter) {
			emit(float64(d.NewlyRefused), name, "newly_refused")
			emit(float64(d.NewlyAdmitted), name, "newly_allowed")
		}),
	},
}

// ofDifferences is for a metric of the policies that have a candidate or are in shadow.
func ofDifferences(of func(*policy.Difference, string, emitter)) func(*engineReport, emitter) {
	return func(r *engineReport, emit emitter) {
		for i := range r.Policies {
			if d := r.Policies[i].Difference; d != nil {
				of(d, r.Policies[i].Name, emit)
			}
		}
	}
}

var ruleFamilies = []family[engineReport]{
	{
		name: "weir_rule_matched_total", kind: counter, labels: byRule,
		help: "Requests that the rule matched.",
		each: ofRules(func(r *policy.RuleReport) uint64 { return r.Matched }),
	},
	{
		name: "weir_rule_failed_total", kind: counter, labels: byRule,
		help: "Requests for which the condition of the rule failed.",
		each: ofRules(func(r *policy.RuleReport) uint64 { return r.Failed }),
	},
}

// ofRules is for a metric with a value for each rule.
func ofRules(of func(*policy.RuleReport) uint64) func(*engineReport, emitter) {
	return func(r *engineReport, emit emitter) {
		for i := range r.Rules {
			emit(float64(of(&r.Rules[i])), r.Rules[i].Name)
		}
	}
}
