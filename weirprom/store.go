package weirprom

import (
	"github.com/weirhq/weir/store"
)

// NewFleet returns a collector of the state of a [store.Fleet], from its Stats; name is the value of the label store.
func NewFleet(name string, stats func() store.FleetStats) *Collector {
	return newCollector(stats, fleetFamilies, "store", name)
}

var fleetFamilies = []family[store.FleetStats]{
	{
		name: "weir_store_available", kind: gauge,
		help: "1 if the store answers, 0 while it is unavailable.",
		each: one(func(s *store.FleetStats) int { return truth(s.Breaker.State == store.BreakerClosed) }),
	},
	{
		name: "weir_store_available_changed_timestamp_seconds", kind: gauge,
		help: "When the store last became unavailable or available.",
		each: one(func(s *store.FleetStats) float64 { return seconds(s.Breaker.Since) }),
	},
	{
		name: "weir_store_outages_total", help: "How often the store became unavailable.", kind: counter,
		each: one(func(s *store.FleetStats) uint64 { return s.Breaker.Opened }),
	},
	{
		name: "weir_store_calls_total", kind: counter, labels: byResult, computed: true,
		help: "Calls of the store: ok, failed, or fast_failed while it was unavailable.",
		each: func(s *store.FleetStats, emit emitter) {
			emit(float64(int64(s.Breaker.Asked-s.Breaker.Failed)), "ok")
			emit(float64(s.Breaker.Failed), "failed")
			emit(float64(s.Breaker.FastFailed), "fast_failed")
		},
	},
	{
		name: "weir_store_fallback_decisions_total", kind: counter, labels: byResult,
		help: "Charges decided without the store, by the fail of their policies: closed, refused; open, allowed; " +
			"local_allowed and local_refused, held to the share of this process.",
		each: func(s *store.FleetStats, emit emitter) {
			emit(float64(s.Fallback.Closed), "closed")
			emit(float64(s.Fallback.Open), "open")
			emit(float64(s.Fallback.LocalAllowed), "local_allowed")
			emit(float64(s.Fallback.LocalRefused), "local_refused")
		},
	},
	{
		name: "weir_store_fallback_keys", kind: gauge,
		help: "Keys that this process limits because the store is or was away.",
		each: one(func(s *store.FleetStats) int { return s.Fallback.Keys }),
	},
	{
		name: "weir_store_fallback_owed_keys", kind: gauge,
		help: "Keys whose grants the store still has to learn.",
		each: one(func(s *store.FleetStats) int { return s.Fallback.Owed }),
	},
	{
		name: "weir_store_grace", kind: gauge,
		help: "1 while this process keeps to its share because the store was away a moment ago.",
		each: one(func(s *store.FleetStats) int { return truth(s.Grace) }),
	},
	{
		name: "weir_store_replicas", help: "Processes that share the limits, as far as this one knows.", kind: gauge,
		each: one(func(s *store.FleetStats) int { return s.Replicas }),
	},
	{
		name: "weir_store_leased_keys", help: "Keys for which permits are taken in blocks.", kind: gauge,
		each: one(func(s *store.FleetStats) int { return s.Leased.Keys }),
	},
	{
		name: "weir_store_leased_held_permits", help: "Permits of blocks that this process holds.", kind: gauge,
		each: one(func(s *store.FleetStats) int64 { return s.Leased.Held }),
	},
	{
		name: "weir_store_leased_blocks_total", help: "Requests for blocks of permits.", kind: counter,
		each: one(func(s *store.FleetStats) int64 { return s.Leased.Lends }),
	},
	{
		name: "weir_store_leased_permits_total", kind: counter, labels: byResult,
		help: "Permits of blocks: lent to this process, returned by it, or lost because they could not be returned.",
		each: func(s *store.FleetStats, emit emitter) {
			emit(float64(s.Leased.Lent), "lent")
			emit(float64(s.Leased.Returned), "returned")
			emit(float64(s.Leased.Lost), "lost")
		},
	},
	{
		name: "weir_store_leased_full_total", kind: counter,
		help: "Charges that went to the store because there was no room for blocks of their keys.",
		each: one(func(s *store.FleetStats) int64 { return s.Leased.Full }),
	},
	{
		name: "weir_store_unsettled_reservations", kind: gauge,
		help: "Reservations to settle when the store is back.",
		each: one(func(s *store.FleetStats) int { return s.Unsettled }),
	},
	{
		name: "weir_store_unsettled_dropped_total", kind: counter,
		help: "Reservations that were dropped because there were too many: they expire.",
		each: one(func(s *store.FleetStats) uint64 { return s.UnsettledDropped }),
	},
}
