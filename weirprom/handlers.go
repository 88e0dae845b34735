package weirprom

import (
	"strconv"

	"github.com/weirhq/weir/dispatch"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/internal/fold"
	"github.com/weirhq/weir/tiers"
)

// NewGate returns a collector of the requests of an [httplimit.Gate] by outcome, from its Stats; name is the value of the label
// gate.
func NewGate(name string, stats func() httplimit.GateStats) *Collector {
	return newCollector(stats, gateFamilies, "gate", name)
}

// NewTiers returns a collector of the counts of [tiers.Tiers], from its Report; name is the value of the label tiers.
func NewTiers(name string, report func() tiers.Report) *Collector {
	return newCollector(report, tiersFamilies, "tiers", name)
}

// NewDispatcher returns a collector of the counts of a [dispatch.Dispatcher], from its Stats; name is the value of the label
// dispatcher. The counts of opcodes beyond the first [MaxNames] are summed up.
func NewDispatcher(name string, stats func() dispatch.Stats) *Collector {
	mustRead(stats, "dispatcher", name)
	ops := &fold.Items[opCounts]{
		Most: MaxNames, Other: Other,
		Name:   func(o *opCounts) string { return strconv.FormatUint(o.op, 10) },
		Counts: func(o *opCounts) []*uint64 { return []*uint64{&o.passed, &o.soft, &o.hard} },
		Add:    func(_, _ *opCounts) {},
	}
	return newCollector(func() (d dispatched) {
		d.ops, d.names = ops.Fold(func() []opCounts {
			d.Stats = stats()
			all := make([]opCounts, len(d.Ops))
			for i := range d.Ops {
				all[i] = countsOf(&d.Ops[i])
			}
			return all
		})
		d.ops, d.names = append(d.ops, countsOf(&d.Unknown)), append(d.names, "unknown")
		return d
	}, dispatcherFamilies, "dispatcher", name)
}

type dispatched struct {
	dispatch.Stats

	ops   []opCounts
	names []string
}

// opCounts are the counts of an opcode.
type opCounts struct{ op, passed, soft, hard uint64 }

func countsOf(o *dispatch.OpStats) opCounts {
	return opCounts{o.Op, uint64(o.Passed), uint64(o.Soft), uint64(o.Hard)}
}

var gateFamilies = []family[httplimit.GateStats]{{
	name: "weir_http_requests_total", kind: counter, labels: byResult,
	help: "Requests at a gate: allowed, exempt (by a rule), refused, aborted (the client left while it waited) or failed " +
		"(misuse of an option).",
	each: func(s *httplimit.GateStats, emit emitter) {
		emit(float64(s.Allowed), "allowed")
		emit(float64(s.Exempt), "exempt")
		emit(float64(s.Refused), "refused")
		emit(float64(s.Aborted), "aborted")
		emit(float64(s.Failed), "failed")
	},
}}

var tiersFamilies = []family[tiers.Report]{
	{
		name: "weir_tiers_limiters", help: "Limiters that tiers have.", kind: gauge,
		each: one(func(r *tiers.Report) int { return r.Active }),
	},
	{
		name: "weir_tiers_max_limiters", help: "Limiters that tiers may have.", kind: gauge,
		each: one(func(r *tiers.Report) int { return r.MaxPolicies }),
	},
	{
		name: "weir_tiers_checks_total", help: "Checks that came to a limiter.", kind: counter,
		each: one(func(r *tiers.Report) uint64 { return r.Checks }),
	},
}

var dispatcherFamilies = []family[dispatched]{
	{
		name: "weir_dispatcher_messages_total", kind: counter, labels: []string{"op", result},
		help: "Messages by opcode, or unknown without a handler: allowed, soft (dropped because they came too early) or hard " +
			"(dropped because the peer is locked out or cannot be tracked).",
		each: func(d *dispatched, emit emitter) {
			for i, op := range d.names {
				emit(float64(d.ops[i].passed), op, "allowed")
				emit(float64(d.ops[i].soft), op, "soft")
				emit(float64(d.ops[i].hard), op, "hard")
			}
		},
	},
	{
		name: "weir_dispatcher_refusals_total", kind: counter, labels: byResult,
		help: "Refusals of messages: sent to the peer, or silent because of the cooldown.",
		each: func(d *dispatched, emit emitter) {
			emit(float64(d.Notices), "told")
			emit(float64(d.Silent), "silent")
		},
	},
}
