package rlsapi

import (
	"fmt"
	"math"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/algo"
)

// The bounds of a request. The client of a proxy chooses values, and by long ones the length of the message; the operator of the
// proxy chooses the rest. So they lie above what a proxy sends, and what exceeds them is refused.
const (
	maxMessage     = 1 << 20
	maxReports     = 4 << 20 // a message of a stream, in which a proxy reports all its buckets
	maxDescriptors = 1024
	maxEntries     = 1024 // of a descriptor
	maxDomain      = 255
	// maxHits is how many hits are counted: more count as so many.
	maxHits = algo.MaxPermits
)

// invalid is the error of a request that the operator of the proxy has to mend, whatever its clients do.
func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, "weir: "+format, args...)
}

// unfit says why nothing can be decided on a request. It is answered OVER_LIMIT: after an error a proxy lets the request pass.
type unfit struct{ reason string }

// Error implements [error].
func (u *unfit) Error() string { return "weir: " + u.reason }

// GRPCStatus is the status of a report, which is an error: nothing is let pass by it.
func (u *unfit) GRPCStatus() *status.Status { return status.New(codes.InvalidArgument, u.Error()) }

func unfitf(format string, args ...any) error { return &unfit{fmt.Sprintf(format, args...)} }

// check finds what is wrong with a request.
func (q *question) check() error {
	switch {
	case q.domain == "":
		return invalid("domain is empty: must have from 1 to %d bytes", maxDomain)
	case len(q.domain) > maxDomain:
		return invalid("domain has %d bytes: must have from 1 to %d", len(q.domain), maxDomain)
	case len(q.descriptors) == 0:
		return invalid("descriptors is empty: there must be from 1 to %d", maxDescriptors)
	}
	for i := range q.descriptors {
		if err := q.checkDescriptor(i); err != nil {
			return err
		}
	}
	return nil
}

func (q *question) checkDescriptor(i int) error {
	d := &q.descriptors[i]
	switch {
	case d.to == d.from:
		return unfitf("descriptors[%d].entries is empty: there must be from 1 to %d", i, maxEntries)
	case d.override && (d.unit < 0 || d.unit > maxUnit):
		return unfitf("descriptors[%d].limit.unit is %d: must be from 0 to %d", i, d.unit, maxUnit)
	case d.multiplied && (d.multiplier < 1 || int64(d.multiplier) > d.maxMultiplier()):
		return unfitf("descriptors[%d].limit.unit_multiplier is %d: must be from 1 to %d", i, d.multiplier, d.maxMultiplier())
	}
	for j, e := range q.entriesOf(d) {
		if e.Key == "" {
			return unfitf("descriptors[%d].entries[%d].key is empty: must have a byte at least", i, j)
		}
	}
	return nil
}

// maxUnit is the last unit of type.v3.RateLimitUnit.
const maxUnit = 6

// maxMultiplier is how many units the limit that a descriptor brings may be for.
func (d *descriptor) maxMultiplier() int64 {
	if unit := unitsOfOverrides[d.unit].Duration(); unit > 0 {
		return int64(algo.MaxPeriod / unit)
	}
	return math.MaxUint32 // then it brings none
}

// hitsOf is how many hits a descriptor counts.
func (q *question) hitsOf(d *descriptor) int64 {
	switch {
	case d.own:
		return int64(min(d.hits, uint64(maxHits)))
	case q.hits > 0:
		return int64(q.hits)
	}
	return 1
}
