package dispatch

import (
	"cmp"
	"slices"
)

// Stats are the counts of a [Dispatcher].
type Stats struct {
	// Notices counts the refusals that were told, and Silent those that were not, because of the cooldown or because there
	// is no Notify.
	Notices, Silent int64
	// Unknown are the messages with an opcode without a handler. Its Op is 0.
	Unknown OpStats
	// Ops are those of each registered opcode, in ascending order.
	Ops []OpStats
}

// OpStats are the counts of the messages with one opcode.
type OpStats struct {
	Op uint64
	// Passed counts the messages that were allowed, whether or not their handlers succeeded.
	Passed int64
	// Soft counts the messages that were dropped because they came too early. Hard counts those of peers that are locked out or
	// cannot be tracked, and those dropped after Close: see weir.Reason.Hard.
	Soft, Hard int64
}

// Stats returns the counts. Each is true by itself; a message that is just dispatched may be in some and not yet in others.
func (d *Dispatcher[C, M]) Stats() Stats {
	s := Stats{Notices: d.notices.Load(), Silent: d.silent.Load(), Unknown: d.unknown.stats(0)}
	for op, r := range *d.routes.Load() {
		s.Ops = append(s.Ops, r.stats(op))
	}
	slices.SortFunc(s.Ops, func(a, b OpStats) int { return cmp.Compare(a.Op, b.Op) })
	return s
}

func (r *route[C, M]) stats(op uint64) OpStats {
	return OpStats{Op: op, Passed: r.passed.Load(), Soft: r.dropped[soft].Load(), Hard: r.dropped[hard].Load()}
}
