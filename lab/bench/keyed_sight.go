package bench

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// FirstSight is what it costs to ask for keys that come for the first time, until a limiter that had none holds all.
type FirstSight struct {
	By    string `json:"by"`
	Floor bool   `json:"floor,omitempty"`
	Keys  int    `json:"keys"`
	// Nanos is the median of the wall time for each key, CPU that of the CPU time, collections included that happen
	// meanwhile.
	Nanos  float64 `json:"ns_per_key"`
	Spread float64 `json:"spread"`
	CPU    float64 `json:"cpu_ns_per_key"`
	Allocs float64 `json:"allocs_per_key"`
	Bytes  float64 `json:"bytes_per_key"`
	// Faults is how many new pages the process was given for a thousand keys. Where it is not next to 0, the kernel is a
	// part of what was measured.
	Faults float64 `json:"page_faults_per_1000_keys"`
}

// firstSight measures new limiters, one after the other in one process, so that later ones get memory that the process has
// had before. What the first one shows is not used.
func firstSight(ctx context.Context, s keyedSubject, keys []string, rounds int) (FirstSight, error) {
	f := FirstSight{By: s.By, Floor: s.NoLimit, Keys: len(keys)}
	var nanos, cpus, allocs, bytes, faults []float64
	n := float64(len(keys))
	for round := range rounds + 1 {
		if err := ctx.Err(); err != nil {
			return f, err
		}
		runtime.GC()
		var before, after runtime.MemStats
		l := s.New(keyedOptions{budget: drainedSlowly, keys: len(keys)})
		runtime.ReadMemStats(&before)
		pages, cpu, start := pageFaults(), cpuTime(), time.Now()
		granted := 0
		for at := 0; at < len(keys); at += batch {
			granted += l.ask(keys[at:min(at+batch, len(keys))])
		}
		wall := time.Since(start)
		cpu, pages = cpuTime()-cpu, pageFaults()-pages
		runtime.ReadMemStats(&after)
		l.end()
		if granted != len(keys) {
			return f, fmt.Errorf("bench: %s granted %d of %d new keys their first permit", s.By, granted, len(keys))
		}
		if round == 0 {
			continue
		}
		nanos, cpus = append(nanos, float64(wall)/n), append(cpus, float64(cpu)/n)
		allocs = append(allocs, float64(after.Mallocs-before.Mallocs)/n)
		bytes = append(bytes, float64(after.TotalAlloc-before.TotalAlloc)/n)
		faults = append(faults, float64(pages)*1000/n)
	}
	f.Nanos, f.Spread, f.CPU = median(nanos), spread(nanos), median(cpus)
	f.Allocs, f.Bytes, f.Faults = median(allocs), median(bytes), median(faults)
	return f, nil
}

func measureFirstSight(ctx context.Context, set Settings, n int) (all []FirstSight, err error) {
	keys := freshKeys(0, n)
	defer keys.free()
	for _, s := range keyedSubjects() {
		f, err := firstSight(ctx, s, keys.keys, set.KeyedRounds)
		if err != nil {
			return all, err
		}
		all = append(all, f)
	}
	runtime.GC()
	return all, nil
}
