package bench

import (
	"runtime"
	"runtime/metrics"
	"time"
)

// KeyedMemory is what it costs to hold a key.
type KeyedMemory struct {
	By    string `json:"by"`
	Floor bool   `json:"floor,omitempty"`
	// Bytes is the heap in use after a collection, Scanned that part of it that the collector has to look through for
	// pointers, both for each key.
	Bytes   float64 `json:"bytes_per_key"`
	Scanned float64 `json:"scanned_bytes_per_key"`
	// CPU and Wall are by how much one forced collection takes longer than before there were any keys, in milliseconds:
	// CPU time of the process and wall time.
	CPU  float64 `json:"gc_cpu_ms"`
	Wall float64 `json:"gc_wall_ms"`
}

// collection is the state of the heap after one.
type collection struct{ live, scanned, cpu, wall float64 }

// collected collects, and returns the state of the heap: the median of so many collections, nothing if that is 0.
func collected(collections int) (c collection) {
	runtime.GC()
	if collections == 0 {
		return c
	}
	var cpus, walls []float64
	for range collections {
		cpu, start := cpuTime(), time.Now()
		runtime.GC()
		walls = append(walls, time.Since(start).Seconds()*1000)
		cpus = append(cpus, (cpuTime()-cpu).Seconds()*1000)
	}
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/heap:bytes"}}
	metrics.Read(samples)
	return collection{
		float64(samples[0].Value.Uint64()), float64(samples[1].Value.Uint64()), median(cpus), median(walls),
	}
}

func (m *KeyedMemory) between(before, after collection, keys int) {
	n := float64(keys)
	m.Bytes, m.Scanned = (after.live-before.live)/n, max(0, after.scanned-before.scanned)/n
	m.CPU, m.Wall = max(0, after.cpu-before.cpu), max(0, after.wall-before.wall)
}
