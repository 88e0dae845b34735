package weirprom

import (
	"github.com/weirhq/weir"
)

// The labels that several metrics have.
const (
	result   = "result"
	ofPolicy = "policy"
)

var byResult = []string{result}

// NewLimiter returns a collector of the counts of a limiter, from its Stats; name is the value of the label limiter. For a
// limiter for keys see [NewKeyed].
func NewLimiter(name string, stats func() weir.Stats) *Collector {
	return newCollector(stats, limiterFamilies, "limiter", name)
}

// NewKeyed returns a collector of the counts of a limiter for keys, of all keys together, from its Stats; name is the value of
// the label limiter.
func NewKeyed(name string, stats func() weir.Stats) *Collector {
	return newCollector(stats, keyedFamilies, "limiter", name)
}

var limiterFamilies = []family[weir.Stats]{
	{
		name: "weir_limiter_requests_total", kind: counter, labels: byResult,
		help: "Decisions of a limiter: allowed or refused.",
		each: func(s *weir.Stats, emit emitter) {
			emit(float64(s.Allowed), "allowed")
			emit(float64(s.Refused), "refused")
		},
	},
	{
		name: "weir_limiter_available_permits", help: "Permits that could be taken now.", kind: gauge,
		each: one(func(s *weir.Stats) int64 { return s.Remaining }),
	},
	{
		name: "weir_limiter_adaptive_limit_permits", kind: gauge,
		help: "Permits that can be taken at once now: what an adaptive limiter has found so far, or the limit or burst of " +
			"another.",
		each: func(s *weir.Stats, emit emitter) {
			if s.Limit > 0 {
				emit(float64(s.Limit))
			}
		},
	},
	{
		name: "weir_limiter_queued_permits", help: "Permits that callers wait for.", kind: gauge,
		each: one(func(s *weir.Stats) int64 { return s.Queued }),
	},
	{
		name: "weir_limiter_waiters", help: "Callers that wait for permits.", kind: gauge,
		each: one(func(s *weir.Stats) int { return s.Waiters }),
	},
	{
		name: "weir_limiter_forgiven_permits_total", kind: counter,
		help: "Permits of commits and debits that exceeded the largest debt, and were forgiven.",
		each: one(func(s *weir.Stats) int64 { return s.Forgiven }),
	},
}

var keyedFamilies = []family[weir.Stats]{
	{
		name: "weir_keyed_requests_total", kind: counter, labels: byResult,
		help: "Decisions of a limiter of many keys: allowed or refused.",
		each: func(s *weir.Stats, emit emitter) {
			emit(float64(s.Allowed), "allowed")
			emit(float64(s.Refused), "refused")
		},
	},
	{
		name: "weir_keyed_keys", help: "Keys that are tracked.", kind: gauge,
		each: one(func(s *weir.Stats) int64 { return s.Keys }),
	},
	{
		name: "weir_keyed_max_keys", help: "Keys that may be tracked.", kind: gauge,
		each: one(func(s *weir.Stats) int64 { return s.MaxKeys }),
	},
	{
		name: "weir_keyed_untracked_total", kind: counter,
		help: "Requests that were allowed and not counted because the table of keys was full.",
		each: one(func(s *weir.Stats) int64 { return s.Untracked }),
	},
	{
		name: "weir_keyed_forgiven_permits_total", kind: counter,
		help: "Permits of commits and debits that exceeded the largest debt of a key, and were forgiven.",
		each: one(func(s *weir.Stats) int64 { return s.Forgiven }),
	},
	{
		name: "weir_keyed_queued_permits", help: "Permits that callers wait for, of all keys together.", kind: gauge,
		each: one(func(s *weir.Stats) int64 { return s.Queued }),
	},
	{
		name: "weir_keyed_waiters", help: "Callers that wait for permits, of all keys together.", kind: gauge,
		each: one(func(s *weir.Stats) int { return s.Waiters }),
	},
	{
		name: "weir_keyed_overridden_keys", help: "Keys that have another limit for a while.", kind: gauge,
		each: one(func(s *weir.Stats) int64 { return s.Overridden }),
	},
}
