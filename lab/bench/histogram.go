package bench

import (
	"slices"
	"time"
)

// histogram counts durations, each nanosecond by itself up to 65 µs, and keeps those that are longer.
type histogram struct {
	counts [1 << 16]uint32
	long   []int64
	n      int64
}

func newHistogram() *histogram { return &histogram{long: make([]int64, 0, 1<<16)} }

// reset forgets all.
func (h *histogram) reset() {
	clear(h.counts[:])
	h.long, h.n = h.long[:0], 0
}

func (h *histogram) add(d time.Duration) {
	h.n++
	if uint64(d) < uint64(len(h.counts)) {
		h.counts[d]++
	} else {
		h.long = append(h.long, int64(d))
	}
}

// quantile is the least duration that at least the share q of all is not longer than: 1 for the longest.
func (h *histogram) quantile(q float64) time.Duration {
	rank := max(1, int64(q*float64(h.n)))
	for d, count := range &h.counts {
		if rank -= int64(count); rank <= 0 {
			return time.Duration(d)
		}
	}
	slices.Sort(h.long)
	if rank > int64(len(h.long)) {
		return 0 // there are no durations at all
	}
	return time.Duration(h.long[rank-1])
}

// Latency is how long single calls took, in nanoseconds, one reading of the clock included.
type Latency struct {
	Median float64 `json:"p50"`
	P99    float64 `json:"p99"`
	P9999  float64 `json:"p9999"`
	Max    float64 `json:"max"`
}

func (h *histogram) latency() Latency {
	at := func(q float64) float64 { return float64(h.quantile(q)) }
	return Latency{at(0.5), at(0.99), at(0.9999), at(1)}
}
