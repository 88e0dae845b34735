package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// WaitersResult is what was measured of many callers that wait, half of which give up.
type WaitersResult struct {
	By    string `json:"by"`
	Call  string `json:"call"`
	Floor bool   `json:"floor"`
	// Last is when the last caller that stayed was served, in seconds after the first had come.
	Last float64 `json:"last_seconds"`
	// Served is how many callers were served. Overtaken is how many of them came before a caller that was served earlier, and
	// FarOvertaken how many of those were served more than one permit after it.
	Served       int `json:"served"`
	Overtaken    int `json:"overtaken"`
	FarOvertaken int `json:"far_overtaken"`
	// CPU is the CPU time of the process in microseconds for each that waited, whether it gave up or not.
	CPU float64 `json:"cpu_us_per_wait"`
	// Goroutines is how many the limiter runs besides those that wait, Timers how many timers it made for all of them.
	Goroutines int     `json:"goroutines"`
	Timers     int     `json:"timers"`
	Allocs     float64 `json:"allocs_per_wait"`
	Bytes      float64 `json:"bytes_per_wait"`
}

// crowd is the callers that wait: every second one gives up after a time.
type crowd struct {
	callers  int
	budget   budget
	patience time.Duration
}

// crowds are 1000 callers on 1000/s, half of which give up after 100 ms. A timer that fires late must not cost permits, which a
// bucket with a burst of 1 cannot save up.
var crowds = []crowd{
	{1000, budget{1000, time.Second, 10}, 100 * time.Millisecond},
	{1000, budget{1000, time.Second, 1}, 100 * time.Millisecond},
}

// WaitersTarget is by when, in seconds, the last of the crowd shall be served, and WaitersCPUTarget how much CPU time a
// wait may cost relative to x/time/rate.
const (
	WaitersTarget    = 0.60
	WaitersCPUTarget = 0.10
)

// measure lets the crowd wait for each limiter. The limiters take turns.
func (c crowd) measure(ctx context.Context, limiters []Queued, rounds int) ([]WaitersResult, error) {
	all := make([][]WaitersResult, len(limiters))
	for range rounds {
		for i, q := range limiters {
			one, err := c.once(ctx, q)
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], one)
		}
	}
	results := make([]WaitersResult, len(limiters))
	for i, q := range limiters {
		results[i] = summary(q, all[i])
		timers, err := countTimers(func() error {
			_, err := c.once(ctx, q)
			return err
		})
		if err != nil {
			return nil, err
		}
		results[i].Timers = timers - pauses
	}
	return results, nil
}

// summary is the median of what varies with the speed of the machine, and the worst of what should not.
func summary(q Queued, rounds []WaitersResult) WaitersResult {
	middle := func(of func(WaitersResult) float64) float64 {
		values := make([]float64, len(rounds))
		for i, r := range rounds {
			values[i] = of(r)
		}
		return median(values)
	}
	s := WaitersResult{By: q.By, Call: q.Call, Floor: q.Floor}
	s.Last = middle(func(r WaitersResult) float64 { return r.Last })
	s.CPU = middle(func(r WaitersResult) float64 { return r.CPU })
	s.Allocs = middle(func(r WaitersResult) float64 { return r.Allocs })
	s.Bytes = middle(func(r WaitersResult) float64 { return r.Bytes })
	for _, r := range rounds {
		s.Served = max(s.Served, r.Served)
		s.Overtaken, s.FarOvertaken = max(s.Overtaken, r.Overtaken), max(s.FarOvertaken, r.FarOvertaken)
		s.Goroutines = max(s.Goroutines, r.Goroutines)
	}
	return s
}

// pauses is how many timers a measurement makes for itself.
const pauses = 2

func (c crowd) once(ctx context.Context, q Queued) (WaitersResult, error) {
	var (
		turns   = make(chan int)
		arrived = make(chan struct{}, 1)
		served  = make([]time.Duration, c.callers) // 0: gave up
		failed  = make([]error, c.callers)
		callers sync.WaitGroup
		begin   time.Time
	)
	impatient, giveUp := context.WithCancel(ctx)
	defer giveUp()
	wait, stop := q.New(c.budget)
	if stop != nil {
		defer stop()
	}
	for range c.callers {
		callers.Go(func() {
			i := <-turns
			own := ctx
			if i%2 == 1 {
				own = impatient
			}
			arrived <- struct{}{}
			if err := wait(own); err == nil {
				served[i] = time.Since(begin)
			} else if own.Err() == nil {
				failed[i] = err
			}
		})
	}
	runtime.GC()
	before := runtime.NumGoroutine()
	var from, to runtime.MemStats
	runtime.ReadMemStats(&from)
	cpu := cpuTime()
	begin = time.Now()
	// With one processor for goroutines, the one who has arrived runs on until it waits, before the next one gets its
	// turn: so the order in which they came is known.
	threads := runtime.GOMAXPROCS(1)
	for i := range c.callers {
		turns <- i
		<-arrived
	}
	runtime.GOMAXPROCS(threads)
	pause(ctx, c.patience/2-time.Since(begin))
	r := WaitersResult{Goroutines: max(0, runtime.NumGoroutine()-before)}
	pause(ctx, c.patience-time.Since(begin))
	giveUp()
	callers.Wait()
	r.CPU = float64((cpuTime() - cpu).Microseconds()) / float64(c.callers)
	runtime.ReadMemStats(&to)
	r.Allocs = float64(to.Mallocs-from.Mallocs) / float64(c.callers)
	r.Bytes = float64(to.TotalAlloc-from.TotalAlloc) / float64(c.callers)
	for _, err := range failed {
		if err != nil {
			return r, fmt.Errorf("bench: waiting for %s: %w", q.Call, err)
		}
	}

	r.order(served, time.Duration(float64(c.budget.period)/float64(c.budget.permits)))
	return r, ctx.Err()
}

// order finds who was overtaken: served later than one who came later.
func (r *WaitersResult) order(served []time.Duration, interval time.Duration) {
	r.Last = slices.Max(served).Seconds()
	earliest := time.Duration(1<<63 - 1) // of those who came later
	for _, at := range slices.Backward(served) {
		if at == 0 {
			continue
		}
		r.Served++
		if at > earliest {
			r.Overtaken++
		}
		if at-interval > earliest {
			r.FarOvertaken++
		}
		earliest = min(earliest, at)
	}
}
