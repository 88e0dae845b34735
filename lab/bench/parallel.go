package bench

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// meeting lets goroutines start together, each on a processor of its own.
type meeting struct {
	time    time.Duration // how long they try to get apart before they start anyway
	places  []place
	opening sync.Once
	open    atomic.Bool

	were  bool // apart, when the meeting opened
	start time.Time
	cpu   time.Duration
}

// place is where one goroutine is: the number of its processor plus one, 0 before it has arrived, or a negative number of
// its own if where it is cannot be known or does not help. It has a cache line to itself.
type place struct {
	processor atomic.Int64
	_         [56]byte
}

func newMeeting(n int, d time.Duration) *meeting { return &meeting{time: d, places: make([]place, n)} }

// processors is how many goroutines can run at a time.
func processors() int { return min(runtime.GOMAXPROCS(0), runtime.NumCPU()) }

// crowded reports whether there are more goroutines than processors.
func (m *meeting) crowded() bool { return len(m.places) > processors() }

// await spins until all goroutines spin on different processors, or are there if they are too many for that.
func (m *meeting) await(i int) {
	deadline := time.Now().Add(m.time)
	for !m.open.Load() {
		p := processor()
		known := p >= 0
		if m.crowded() {
			known = true // together they have all processors
			runtime.Gosched()
		}
		if p < 0 || m.crowded() {
			p = -2 - i
		}
		m.places[i].processor.Store(int64(p) + 1)
		switch {
		case m.apart():
			m.opening.Do(func() { m.begin(known) })
		case time.Now().After(deadline):
			m.opening.Do(func() { m.begin(false) })
		}
	}
}

func (m *meeting) apart() bool {
	for i := range m.places {
		p := m.places[i].processor.Load()
		if p == 0 {
			return false
		}
		for j := range i {
			if m.places[j].processor.Load() == p {
				return false
			}
		}
	}
	return true
}

func (m *meeting) begin(were bool) {
	m.were = were
	m.cpu, m.start = cpuTime(), time.Now()
	m.open.Store(true)
}

// together runs the loop in several goroutines, each on a thread of its own if there is a processor for each. They
// take the calls batch by batch, so that they end together: were each given its share beforehand, the slower one would end alone
// and without contention.
func together(loop Loop, goroutines, n int, d time.Duration) sample {
	var (
		taken   atomic.Int64
		granted atomic.Int64
		meet    = newMeeting(goroutines, d)
		ends    = make([]time.Time, goroutines)
		workers sync.WaitGroup
	)
	for i := range goroutines {
		workers.Go(func() {
			if !meet.crowded() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
			}
			meet.await(i)
			own := 0
			for {
				first := int(taken.Add(batch)) - batch
				if first >= n {
					break
				}
				own += loop(min(batch, n-first))
			}
			ends[i] = time.Now()
			granted.Add(int64(own))
		})
	}
	workers.Wait()
	m := sample{calls: n, granted: int(granted.Load()), apart: meet.were}
	cpu := cpuTime() - meet.cpu
	for _, end := range ends {
		m.wall = max(m.wall, end.Sub(meet.start))
	}
	m.cpu = float64(cpu) / float64(max(m.wall, 1))
	return m
}
