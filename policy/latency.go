package policy

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Latency is how long decisions take, waiting in queues and for stores included, as measured on one in so many of them.
type Latency struct {
	// Every is of how many decisions one is measured, chosen by chance.
	Every int `json:"every"`
	// Count is how many were measured, and Sum how long they took together.
	Count uint64        `json:"count"`
	Sum   time.Duration `json:"sum_ns"`
	// Buckets count those that took up to a time, and longer than the bucket before, the last one all others. The times are
	// powers of 2 of 64 ns: from 64 ns to some 34 s.
	Buckets []LatencyBucket `json:"buckets"`
}

// LatencyBucket counts decisions.
type LatencyBucket struct {
	// UpTo is how long they took at most, the largest duration in the last bucket.
	UpTo  time.Duration `json:"up_to_ns"`
	Count uint64        `json:"count"`
}

// Quantile is a time that so many of the decisions do not exceed: the upper end of the bucket, which is at most twice too long.
// It is 0 if nothing was measured, and the largest duration where it is longer than 34 s. q is from 0 to 1: beyond it counts as
// the next of these.
func (l *Latency) Quantile(q float64) time.Duration {
	var all uint64
	for i := range l.Buckets {
		all += l.Buckets[i].Count
	}
	if all == 0 {
		return 0
	}
	rank := uint64(1) // of the decision that is as long, from the shortest one on
	if q > 0 {        // not so if it is not a number
		rank = max(rank, uint64(math.Ceil(min(q, 1)*float64(all))))
	}
	for i := range l.Buckets {
		if n := l.Buckets[i].Count; rank > n {
			rank -= n
			continue
		}
		return l.Buckets[i].UpTo
	}
	return l.Buckets[len(l.Buckets)-1].UpTo
}

const (
	latencyEvery   = 64
	latencyBuckets = 31
	shortestLog    = 6 // of 64 ns
)

// latency measures how long decisions take.
type latency struct {
	sum     atomic.Int64
	buckets [latencyBuckets]atomic.Uint64
}

func (l *latency) note(took time.Duration) {
	took = max(took, 0)
	l.sum.Add(int64(took))
	at := bits.Len64(uint64(max(took, 1)-1) >> shortestLog)
	l.buckets[min(at, latencyBuckets-1)].Add(1)
}

func (l *latency) report() Latency {
	r := Latency{Every: latencyEvery, Sum: time.Duration(l.sum.Load()), Buckets: make([]LatencyBucket, latencyBuckets)}
	for i := range r.Buckets {
		n := l.buckets[i].Load()
		r.Count += n
		r.Buckets[i] = LatencyBucket{UpTo: 1 << (shortestLog + i), Count: n}
	}
	r.Buckets[latencyBuckets-1].UpTo = math.MaxInt64
	return r
}

// chances draw one in latencyEvery, each with the same chance whatever was drawn before.
type chances struct {
	next int32 // how many draws it takes until one is drawn, 0 if that is not known yet
}

func (c *chances) draw() bool {
	if c.next > 1 {
		c.next--
		return false
	}
	return c.drawNext()
}

func (c *chances) drawNext() bool {
	drawn := c.next == 1
	c.next = gap()
	if !drawn {
		if drawn = c.next == 1; drawn {
			c.next = gap()
		} else {
			c.next--
		}
	}
	return drawn
}

// gap is how many draws it takes: a geometric distribution, whose parts are those of an exponential one.
func gap() int32 { return 1 + int32(rand.ExpFloat64()*exponentialGap) } //nolint:gosec // a sample, no secret; at most some 47,000

var exponentialGap = -1 / math.Log1p(-1.0/latencyEvery)
