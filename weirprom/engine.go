package weirprom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/internal/fold"
	"github.com/weirhq/weir/policy"
)

// NewEngine returns a collector of the counts of an engine, from [policy.Engine.Report]. Its metrics do not name the engine: of
// several engines, register each with [prometheus.WrapRegistererWith] and a value of its own for the same label.
func NewEngine(report func() policy.Report) *Collector {
	if report == nil {
		panic("weir: weirprom: the function of the engine is nil: must be its Report")
	}
	took := prometheus.NewDesc("weir_decision_duration_seconds",
		"How long decisions take, with queues and stores, of a sample.", nil, nil)
	families := append(append(append([]family[engineReport](nil), engineFamilies...), policyFamilies...), ruleFamilies...)
	folded := fold.NewReports(MaxNames, Other)
	c := newCollectorWith(func() (r engineReport) {
		r.Report, r.policies, r.rules = folded.Fold(report)
		return r
	}, families, nil,
		func(r *engineReport, ch chan<- prometheus.Metric) { ch <- histogram(took, &r.Latency) })
	c.descriptions = append(c.descriptions, took)
	return c
}

// engineReport is a report with at most [MaxNames] policies and rules, and one for all others.
type engineReport struct {
	policy.Report

	policies, rules int // how many there are
}

// allowed is how many requests were held to limits and allowed.
func (r *engineReport) allowed() float64 {
	return float64(int64(r.Requests - r.Refused - r.Exempt - r.Unlimited - r.Canceled))
}

var engineFamilies = []family[engineReport]{
	{
		name: "weir_requests_total", kind: counter, labels: []string{result}, computed: true,
		help: "Decisions: allowed, refused, denied (by a rule), exempt (by a rule), unlimited (no limit applied) or canceled " +
			"(the caller left while it waited).",
		each: func(r *engineReport, emit emitter) {
			emit(r.allowed(), "allowed")
			emit(float64(r.Refused-r.Denied), "refused")
			emit(float64(r.Denied), "denied")
			emit(float64(r.Exempt), "exempt")
			emit(float64(r.Unlimited), "unlimited")
			emit(float64(r.Canceled), "canceled")
		},
	},
	{
		name: "weir_policies", help: "Policies in force.", kind: gauge,
		each: one(func(r *engineReport) int { return r.policies }),
	},
	{
		name: "weir_rules", help: "Rules in force.", kind: gauge,
		each: one(func(r *engineReport) int { return r.rules }),
	},
	{
		name: "weir_config_version", help: "Sets of rules and policies that were loaded since the start.", kind: gauge,
		each: one(func(r *engineReport) uint64 { return r.Version }),
	},
	{
		name: "weir_config_loaded_timestamp_seconds", kind: gauge,
		help: "When the rules and policies in force were loaded.",
		each: one(func(r *engineReport) float64 { return seconds(r.Loaded) }),
	},
	{
		name: "weir_config_last_attempt_timestamp_seconds", kind: gauge,
		help: "When rules and policies were last loaded or refused.",
		each: one(func(r *engineReport) float64 { return seconds(r.LastAttempt) }),
	},
	{
		name: "weir_config_last_attempt_successful", kind: gauge,
		help: "1 if the last rules and policies are in force, 0 if they were refused and the ones before are.",
		each: one(func(r *engineReport) int { return truth(r.LastError == "") }),
	},
}

// seconds is a time since the epoch of Unix, 0 for the zero time.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixNano()) / float64(time.Second)
}

// histogram is a latency with the buckets as Prometheus has them: those up to a time have all that took less.
func histogram(d *prometheus.Desc, l *policy.Latency) prometheus.Metric { //nolint:ireturn // as prometheus has it
	upTo := make(map[float64]uint64, len(l.Buckets))
	count := uint64(0) // that of the buckets, which may have been read a moment before that of the latency
	for i, b := range l.Buckets {
		count += b.Count
		if i < len(l.Buckets)-1 {
			upTo[b.UpTo.Seconds()] = count
		}
	}
	return prometheus.MustNewConstHistogram(d, count, l.Sum.Seconds(), upTo)
}
