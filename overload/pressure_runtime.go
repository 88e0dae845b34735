package overload

import (
	"errors"
	"math"
	"runtime"
	"runtime/metrics"
	"slices"
	"time"

	"github.com/weirhq/weir/internal/cputime"
)

const defaultSchedulerLatency = 20 * time.Millisecond

// ProcessCPUPressure is the processor time that this process has used since the last call, by what GOMAXPROCS processors offer in
// that time: from 0 to 1. GOMAXPROCS follows the limit of a cgroup. The figure comes from the operating system, as
// runtime/metrics updates its own only at a garbage collection. The first call returns [ErrNoPressure], and so does every call on
// neither a Unix nor Windows.
func ProcessCPUPressure() Pressure { //nolint:ireturn // a source is what the interface says
	var (
		began bool
		used  time.Duration
		then  int64
	)
	return NewPressure("process cpu", func(now int64) (float64, error) {
		use, err := cputime.Used()
		switch {
		case errors.Is(err, cputime.ErrUnknown):
			return 0, ErrNoPressure
		case err != nil:
			return 0, err
		}
		wasBegun, spent, passed := began, int64(use-used), now-then
		began, used, then = true, use, now
		switch {
		case !wasBegun:
			return 0, ErrNoPressure
		case spent <= 0 || passed <= 0:
			return 0, nil
		}
		return min(float64(spent)/float64(passed)/float64(runtime.GOMAXPROCS(0)), 1), nil
	})
}

// SchedulerPressure is how long goroutines that could run had to wait for a processor: the 99th percentile since the last call,
// by most, and never more than 2. The first call returns [ErrNoPressure]. A most of 0 or less means 20 ms.
func SchedulerPressure(most time.Duration) Pressure { //nolint:ireturn // a source is what the interface says
	if most <= 0 {
		most = defaultSchedulerLatency
	}
	samples := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	var before []uint64
	return NewPressure("scheduler latency", func(int64) (float64, error) {
		metrics.Read(samples)
		if samples[0].Value.Kind() != metrics.KindFloat64Histogram {
			return 0, ErrNoPressure
		}
		h := samples[0].Value.Float64Histogram()
		first := len(before) != len(h.Counts)
		if first {
			before = make([]uint64, len(h.Counts))
		}
		p99 := latePercentile(h, before)
		copy(before, h.Counts)
		if first {
			return 0, ErrNoPressure
		}
		return min(p99/most.Seconds(), 2), nil
	})
}

// latePercentile is the 99th percentile, in seconds, of what h counted beyond before, rounded down to the bound of a
// bucket; 0 if that is little.
func latePercentile(h *metrics.Float64Histogram, before []uint64) float64 {
	const least = 100 // of less, the 99th percentile is the worst that happened
	var n uint64
	for i, c := range h.Counts {
		n += c - before[i]
	}
	if n < least {
		return 0
	}
	beyond := n / 100
	for i, c := range slices.Backward(h.Counts) {
		c -= before[i]
		if c > beyond {
			if low := h.Buckets[i]; !math.IsInf(low, -1) {
				return max(low, 0)
			}
			return 0
		}
		beyond -= c
	}
	return 0
}
