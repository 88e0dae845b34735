package weir

import (
	"math"
	"runtime/metrics"
	"time"
)

const defaultSchedulerLatency = 20 * time.Millisecond

// ProcessCPUPressure is the share of the processor time that this process has used, of what GOMAXPROCS processors
// offer, which follows the quota of a cgroup: from 0 to 1. It is an estimate of the Go runtime, which counts what the
// operating system takes away from the process as used. The first call answers [ErrNoPressure].
func ProcessCPUPressure() Pressure {
	samples := []metrics.Sample{
		{Name: "/cpu/classes/total:cpu-seconds"},
		{Name: "/cpu/classes/idle:cpu-seconds"},
		{Name: "/cpu/classes/gc/mark/idle:cpu-seconds"}, // collected only because nothing else was to be done
	}
	var before [3]float64
	return NewPressure("process cpu", func(int64) (float64, error) {
		metrics.Read(samples)
		var total, unused float64
		for i, s := range samples {
			if s.Value.Kind() != metrics.KindFloat64 {
				return 0, ErrNoPressure
			}
			v := s.Value.Float64()
			if d := v - before[i]; i == 0 {
				total = d
			} else {
				unused += d
			}
			before[i] = v
		}
		if before[0] == total || total <= 0 { // the first call, or nothing has passed
			return 0, ErrNoPressure
		}
		return min(max(1-unused/total, 0), 1), nil
	})
}

// SchedulerPressure is for how long goroutines that could run had to wait for a processor, relative to most: the 99th
// percentile since the last call, by most, and never more than 2. The first call answers [ErrNoPressure]. A most of
// 0 or less means 20 ms.
func SchedulerPressure(most time.Duration) Pressure {
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
	for i := len(h.Counts) - 1; i >= 0; i-- {
		c := h.Counts[i] - before[i]
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
