package weirprom

import "github.com/weirhq/weir/guard"

// NewGuard returns a collector of the counts of a [guard.Guard], of all endpoints together, from its Stats; name is the value of
// the label guard.
func NewGuard(name string, stats func() guard.Stats) *Collector {
	return newCollector(stats, guardFamilies, "guard", name)
}

var guardFamilies = []family[guard.Stats]{
	{
		name: "weir_guard_requests_total", kind: counter, labels: byResult,
		help: "Decisions of a guard: allowed, soft_throttled, locked_out or tracking_capped.",
		each: func(s *guard.Stats, emit emitter) {
			emit(float64(s.Allowed), "allowed")
			emit(float64(s.SoftThrottled), "soft_throttled")
			emit(float64(s.LockedOut), "locked_out")
			emit(float64(s.TrackingCapped), "tracking_capped")
		},
	},
	{
		name: "weir_guard_lockouts_total", help: "Lockouts of an endpoint that have begun.", kind: counter,
		each: one(func(s *guard.Stats) int64 { return s.Lockouts }),
	},
	{
		name: "weir_guard_tracked_endpoints", help: "Endpoints that are tracked.", kind: gauge,
		each: one(func(s *guard.Stats) int64 { return s.TrackedEndpoints }),
	},
	{
		name: "weir_guard_max_tracked_endpoints", help: "Endpoints that may be tracked.", kind: gauge,
		each: one(func(s *guard.Stats) int64 { return s.MaxTrackedEndpoints }),
	},
	{
		name: "weir_guard_cleanups_total", help: "Cleanups that have ended.", kind: counter,
		each: one(func(s *guard.Stats) int64 { return s.Cleanups }),
	},
	{
		name: "weir_guard_forgotten_endpoints_total", kind: counter, labels: []string{"cause"},
		help: "Endpoints that cleanups have forgotten: stale, or evicted to make room.",
		each: func(s *guard.Stats, emit emitter) {
			emit(float64(s.Stale), "stale")
			emit(float64(s.Evicted), "evicted")
		},
	},
}
