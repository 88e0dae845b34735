package rlsapi

import (
	"math"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

// The bounds of a request.
const (
	longestRequest  = 64 << 10
	mostDescriptors = weir.MostCharges
	mostEntries     = 64
	longestDomain   = 255
	longestKey      = 255
	longestValue    = 4096
	mostHits        = 1_000_000_000_000_000
)

// invalid is the error of a request that cannot be answered, as it is the client's mistake.
func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, "weir: "+format, args...)
}

// check finds what is wrong with a request.
func (q *question) check() error {
	switch {
	case q.domain == "":
		return invalid("domain is empty: must have from 1 to %d bytes", longestDomain)
	case len(q.domain) > longestDomain:
		return invalid("domain has %d bytes: must have from 1 to %d", len(q.domain), longestDomain)
	case len(q.descriptors) == 0:
		return invalid("descriptors is empty: there must be from 1 to %d", mostDescriptors)
	case len(q.descriptors) > mostDescriptors:
		return invalid("descriptors has %d items: there must be from 1 to %d", len(q.descriptors), mostDescriptors)
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
	switch n := d.to - d.from; {
	case n == 0:
		return invalid("descriptors[%d].entries is empty: there must be from 1 to %d", i, mostEntries)
	case n > mostEntries:
		return invalid("descriptors[%d].entries has %d items: there must be from 1 to %d", i, n, mostEntries)
	case d.hits > mostHits:
		return invalid("descriptors[%d].hits_addend is %d: must be from 0 to %d", i, d.hits, int64(mostHits))
	case d.override && (d.unit < 0 || d.unit > mostUnit):
		return invalid("descriptors[%d].limit.unit is %d: must be from 0 to %d", i, d.unit, mostUnit)
	case d.multiplied && (d.multiplier < 1 || int64(d.multiplier) > d.mostMultiplier()):
		return invalid("descriptors[%d].limit.unit_multiplier is %d: must be from 1 to %d", i, d.multiplier, d.mostMultiplier())
	}
	for j, e := range q.entriesOf(d) {
		switch {
		case e.Key == "" || len(e.Key) > longestKey:
			return invalid("descriptors[%d].entries[%d].key has %d bytes: must have from 1 to %d", i, j, len(e.Key), longestKey)
		case len(e.Value) > longestValue:
			return invalid("descriptors[%d].entries[%d].value has %d bytes: must have at most %d",
				i, j, len(e.Value), longestValue)
		}
	}
	return nil
}

// mostUnit is the last unit of type.v3.RateLimitUnit.
const mostUnit = 6

// mostMultiplier is how many units the limit that a descriptor brings may be for.
func (d *descriptor) mostMultiplier() int64 {
	if unit := unitsOfOverrides[d.unit].Duration(); unit > 0 {
		return int64(algo.MaxPeriod / unit)
	}
	return math.MaxUint32 // then it brings none
}

// hitsOf is how many hits a descriptor counts.
func (q *question) hitsOf(d *descriptor) int64 {
	switch {
	case d.own:
		return int64(d.hits)
	case q.hits > 0:
		return int64(q.hits)
	}
	return 1
}

// tooLong is the error of a message that was not decoded.
func tooLong(n int) error {
	return invalid("the request has %d bytes: must have at most %d", n, longestRequest)
}
