package bench

import (
	"runtime"
	"time"
)

// Loop makes n calls one after the other and returns how many of them were granted.
type Loop func(n int) (granted int)

// Subject is one of those that a row compares: weir, a peer or a floor.
type Subject struct {
	// By is whose work it is: "weir", the short name of a peer, or the name of a floor.
	By string
	// Call is the call that the loop makes, as a reader of its documentation would write it.
	Call string
	// New returns a loop over a new limiter. Several goroutines may run the loop at once. The function stop, which may
	// be nil, ends what the limiter has started.
	New func() (loop Loop, stop func())
}

// batch is how many calls are made between two looks at whether there are more to make.
const batch = 1024

// sample is one measurement of a loop.
type sample struct {
	wall    time.Duration
	calls   int
	granted int
	mallocs uint64
	cpu     float64 // CPU time over wall time
	apart   bool    // the goroutines started on different processors
}

// nanos is the wall time per call. With several goroutines it is that of all their calls together.
func (s sample) nanos() float64 { return float64(s.wall.Nanoseconds()) / float64(s.calls) }

// take measures n calls of a new limiter, shared by some goroutines, which get the time meet to get apart.
func take(s Subject, goroutines, n int, meet time.Duration) sample {
	loop, stop := s.New()
	if stop != nil {
		defer stop()
	}

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var m sample
	if goroutines == 1 {
		m = alone(loop, n)
	} else {
		m = together(loop, goroutines, n, meet)
	}
	runtime.ReadMemStats(&after)
	m.mallocs = after.Mallocs - before.Mallocs
	return m
}

// alone runs the loop in this goroutine.
func alone(loop Loop, n int) sample {
	m := sample{calls: n, apart: true}
	cpu, start := cpuTime(), time.Now()
	for left := n; left > 0; left -= batch {
		m.granted += loop(min(batch, left))
	}
	m.wall = time.Since(start)
	m.cpu = float64(cpuTime()-cpu) / float64(max(m.wall, 1))
	return m
}

// calibrate returns how many calls take about d.
func calibrate(s Subject, goroutines int, d, meet time.Duration) int {
	const most = 1 << 30
	for n := batch; ; n *= 4 {
		m := take(s, goroutines, n, meet)
		if m.wall >= d/8 || n >= most {
			return max(batch, int(float64(n)*float64(d)/float64(max(m.wall, 1))))
		}
	}
}
