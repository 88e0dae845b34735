package weirprom

import (
	"github.com/weirhq/weir/durable"
)

// NewNode returns a collector of what a [durable.Node] knows and has done as the owner of durable limits, from its Stats; name is
// the value of the label cluster.
func NewNode(name string, stats func() durable.NodeStats) *Collector {
	return newCollector(stats, nodeFamilies, "cluster", name)
}

var nodeFamilies = []family[durable.NodeStats]{
	{
		name: "weir_cluster_owns", help: "1 if this node is the owner of the durable limits.", kind: gauge,
		each: one(func(s *durable.NodeStats) int { return truth(s.Owns) }),
	},
	{
		name: "weir_cluster_owner_known", help: "1 if this node is the owner, or reaches it.", kind: gauge,
		each: one(func(s *durable.NodeStats) int { return truth(s.Owns || s.Owner != "" && s.OwnerUnreached == 0) }),
	},
	{
		name: "weir_cluster_epoch", help: "The number of the term of the owner that this node knows.", kind: gauge,
		each: one(func(s *durable.NodeStats) int64 { return s.Epoch }),
	},
	{
		name: "weir_cluster_terms_total", help: "Terms for which this node was the owner.", kind: counter,
		each: one(func(s *durable.NodeStats) int64 { return s.Terms }),
	},
	{
		name: "weir_cluster_without_owner_seconds_total", kind: counter, computed: true,
		help: "How long this node has known no owner that it could reach.",
		each: one(func(s *durable.NodeStats) float64 { return s.WithoutOwner.Seconds() }),
	},
	{
		name: "weir_cluster_keys", help: "Keys that this node keeps as the owner.", kind: gauge,
		each: one(func(s *durable.NodeStats) int64 { return s.Owned.Keys }),
	},
	{
		name: "weir_cluster_waiting_permits", help: "Permits that requests wait for at this node as the owner.", kind: gauge,
		each: one(func(s *durable.NodeStats) int64 { return s.Owned.WaitingPermits }),
	},
	{
		name: "weir_cluster_waiting_requests", help: "Requests that wait at this node as the owner.", kind: gauge,
		each: one(func(s *durable.NodeStats) int64 { return s.Owned.WaitingRequests }),
	},
	{
		name: "weir_cluster_permits_ahead", help: "Permits that a crash of this node would burn at most.", kind: gauge,
		each: one(func(s *durable.NodeStats) int64 { return s.Owned.PermitsAhead }),
	},
	{
		name: "weir_cluster_requests_total", kind: counter, labels: byResult, computed: true,
		help: "Requests that this node has decided as the owner: allowed, refused, never, queue_full, expired, " +
			"canceled, stopping or unavailable.",
		each: func(s *durable.NodeStats, emit emitter) {
			r := &s.Owned.Refused
			emit(float64(s.Owned.Allowed), "allowed")
			emit(float64(r.Refused), "refused")
			emit(float64(r.Never), "never")
			emit(float64(r.QueueFull), "queue_full")
			emit(float64(r.Expired), "expired")
			emit(float64(r.Canceled), "canceled")
			emit(float64(r.Stopping), "stopping")
			emit(float64(r.Unavailable), "unavailable")
		},
	},
	{
		name: "weir_cluster_granted_permits_total", kind: counter, computed: true,
		help: "Permits that were taken while this node was the owner.",
		each: one(func(s *durable.NodeStats) int64 { return s.Owned.GrantedPermits }),
	},
	{
		name: "weir_cluster_writes_total", kind: counter, labels: byResult, computed: true,
		help: "Transactions of this node as the owner: ok, or failed, which may or may not be written.",
		each: func(s *durable.NodeStats, emit emitter) {
			emit(float64(s.Owned.Writes), "ok")
			emit(float64(s.Owned.FailedWrites), "failed")
		},
	},
	{
		name: "weir_cluster_written_records_total", help: "Records in these transactions.", kind: counter, computed: true,
		each: one(func(s *durable.NodeStats) int64 { return s.Owned.Records }),
	},
	{
		name: "weir_cluster_rewound_records_total", kind: counter, computed: true,
		help: "Records from a clock that was ahead by more than 10 s.",
		each: one(func(s *durable.NodeStats) int64 { return s.Owned.Rewound }),
	},
}
