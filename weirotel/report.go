package weirotel

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// ofRequests is the unit of what counts requests.
const ofRequests = "{request}"

// ofEngine is what is observed of a report.
var ofEngine = []observation[policy.Report]{
	{
		name: "weir.rate_limiting.policy.requests", unit: ofRequests,
		help: "Requests to which a policy applied: allowed, or refused by the policy itself.",
		each: ofPolicies(func(p *policy.PolicyReport, of attribute.KeyValue, emit emitter) {
			emit(int64(p.Allowed), of, resultKey.String(resultNames[acquired]))
			emit(int64(p.Refused), of, resultKey.String(resultNames[refused]))
		}),
	},
	policyCount("locked_out", "Refusals of keys that are locked out.",
		func(p *policy.PolicyReport) uint64 { return p.LockedOut }),
	policyCount("failed", "Requests for which the key, the tier or the cost of a policy failed.",
		func(p *policy.PolicyReport) uint64 { return p.Failed }),
	policyCount("unavailable",
		"Requests that the store of a policy could not decide: those refused, and of a cluster also those allowed.",
		func(p *policy.PolicyReport) uint64 { return p.Unavailable }),
	policyCount("untracked", "Requests that were allowed and not counted because the table of keys was full.",
		func(p *policy.PolicyReport) uint64 { return p.Untracked }),
	policyCount("table_full", "Requests that were refused because the table of keys was full.",
		func(p *policy.PolicyReport) uint64 { return p.Full }),
	policyNow("keys", "{key}",
		"Keys that the fullest table of a policy tracks in this process.",
		func(p *policy.PolicyReport) int64 { return p.Keys }),
	policyNow("max_keys", "{key}", "Keys that this table may track.",
		func(p *policy.PolicyReport) int64 { return p.MaxKeys }),
	{
		name: "weir.rate_limiting.queued_requests", unit: ofRequests, now: true,
		help: "Requests that wait for permits in this process.",
		each: ofPolicies(func(p *policy.PolicyReport, a attribute.KeyValue, emit emitter) { emit(p.Waiters, a) }),
	},
	policyNow("queued_permits", "{permit}", "Permits that requests wait for in this process.",
		func(p *policy.PolicyReport) int64 { return p.Queued }),
	policyNow("locked_keys", "{key}", "Keys that are locked out.",
		func(p *policy.PolicyReport) int64 { return p.Locked }),
	policyNow("overridden_keys", "{key}", "Keys that have another limit for a while.",
		func(p *policy.PolicyReport) int64 { return p.Overridden }),
	{
		name: "weir.rate_limiting.rule.matched", unit: ofRequests, help: "Requests that a rule matched.",
		each: ofRules(func(r *policy.RuleReport) uint64 { return r.Matched }),
	},
	{
		name: "weir.rate_limiting.rule.failed", unit: ofRequests,
		help: "Requests for which the condition of a rule failed.",
		each: ofRules(func(r *policy.RuleReport) uint64 { return r.Failed }),
	},
	{
		name: "weir.rate_limiting.config.version", unit: "{set}", now: true,
		help: "Sets of rules and policies that were loaded since the start.",
		each: func(r *policy.Report, emit emitter) { emit(int64(r.Version)) },
	},
	{
		name: "weir.rate_limiting.config.refused", unit: "{set}", now: true,
		help: "1 if the last rules and policies were refused and the ones before are in force.",
		each: func(r *policy.Report, emit emitter) { emit(truth(r.LastError != "")) },
	},
}

func policyCount(name, help string, of func(*policy.PolicyReport) uint64) observation[policy.Report] {
	return observation[policy.Report]{
		name: "weir.rate_limiting.policy." + name, unit: ofRequests, help: help,
		each: ofPolicies(func(p *policy.PolicyReport, a attribute.KeyValue, emit emitter) { emit(int64(of(p)), a) }),
	}
}

func policyNow(name, unit, help string, of func(*policy.PolicyReport) int64) observation[policy.Report] {
	return observation[policy.Report]{
		name: "weir.rate_limiting.policy." + name, unit: unit, help: help, now: true,
		each: ofPolicies(func(p *policy.PolicyReport, a attribute.KeyValue, emit emitter) { emit(of(p), a) }),
	}
}

// ofPolicies is for what each policy has.
func ofPolicies(of func(*policy.PolicyReport, attribute.KeyValue, emitter)) func(*policy.Report, emitter) {
	return func(r *policy.Report, emit emitter) {
		for i := range r.Policies {
			of(&r.Policies[i], policyKey.String(r.Policies[i].Name), emit)
		}
	}
}

// ofRules is for what each rule has.
func ofRules(of func(*policy.RuleReport) uint64) func(*policy.Report, emitter) {
	return func(r *policy.Report, emit emitter) {
		for i := range r.Rules {
			emit(int64(of(&r.Rules[i])), ruleKey.String(r.Rules[i].Name))
		}
	}
}

// ofFleet is what is observed of a store.
var ofFleet = []observation[store.FleetStats]{
	{
		name: "weir.rate_limiting.store.available", unit: "{store}", now: true, help: "1 if the store answers.",
		each: func(s *store.FleetStats, emit emitter) { emit(truth(s.Breaker.State == store.BreakerClosed)) },
	},
	{
		name: "weir.rate_limiting.store.outages", unit: "{outage}", help: "How often the store became unavailable.",
		each: func(s *store.FleetStats, emit emitter) { emit(int64(s.Breaker.Opened)) },
	},
	{
		name: "weir.rate_limiting.store.calls", unit: "{call}", help: "Calls that reached the store.",
		each: func(s *store.FleetStats, emit emitter) { emit(int64(s.Breaker.Asked)) },
	},
	{
		name: "weir.rate_limiting.store.failures", unit: "{call}",
		help: "Failed calls of the store: failed, or fast_failed while it was unavailable.",
		each: func(s *store.FleetStats, emit emitter) {
			emit(int64(s.Breaker.Failed), resultKey.String("failed"))
			emit(int64(s.Breaker.FastFailed), resultKey.String("fast_failed"))
		},
	},
	{
		name: "weir.rate_limiting.store.fallback.decisions", unit: "{charge}",
		help: "Charges decided without the store, by the fail of their policies.",
		each: func(s *store.FleetStats, emit emitter) {
			emit(int64(s.Fallback.Closed), resultKey.String("closed"))
			emit(int64(s.Fallback.Open), resultKey.String("open"))
			emit(int64(s.Fallback.LocalAllowed), resultKey.String("local_allowed"))
			emit(int64(s.Fallback.LocalRefused), resultKey.String("local_refused"))
		},
	},
	{
		name: "weir.rate_limiting.store.replicas", unit: "{process}", now: true,
		help: "Processes that share the limits, as far as this one knows.",
		each: func(s *store.FleetStats, emit emitter) { emit(int64(s.Replicas)) },
	},
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
