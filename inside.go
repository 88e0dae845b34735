package weir

import (
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/inside"
)

// Rules have limits of all algorithms, and charge them as one step: their limiters are all of one type. A limiter of package
// overload learns from leases.
func init() { //nolint:gochecknoinits // packages policy and overload cannot reach these otherwise
	inside.Keyed, inside.Observe, inside.Ignore = newKeyed[string], observe, Lease.ignore
	inside.Law = func(l Limit) (algo.Law, error) { return l.in().law("Limit", 0) }
	inside.MadeOf = func(l Limit) *inside.Made { return &l.in().made }
	inside.Keys, inside.CheckBounds, inside.Step, inside.Batch = keysOf, checkBounds, newStep, newBatch
	inside.Members = membersOf
}
