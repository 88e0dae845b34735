package bench

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"golang.org/x/sync/semaphore"

	"github.com/weirhq/weir"
)

// StreamResult is what was measured of goroutines that wait again and again.
type StreamResult struct {
	By    string `json:"by"`
	Call  string `json:"call"`
	Floor bool   `json:"floor"`
	// PerSecond is how many waits were served in a second, Share what part that is of what the limit allows, 0 if time
	// is not what limits.
	PerSecond float64 `json:"waits_per_second"`
	Share     float64 `json:"share_of_allowed"`
	// CPU is the CPU time of the process in microseconds for each wait that was served.
	CPU    float64 `json:"cpu_us_per_wait"`
	Allocs float64 `json:"allocs_per_wait"`
}

// streamCallers wait at a time.
const streamCallers = 64

// streams are what streamCallers wait for: permits are plentiful, but there is always a queue. With a burst of 1, a late timer
// loses the permits that come while all callers wait for it, as far as they are more than the callers.
var streams = []budget{{100_000, time.Second, 1000}, {100_000, time.Second, 1}}

// streamed is one that goroutines wait for, again and again.
type streamed struct {
	result StreamResult // without figures
	start  func() (wait func(context.Context) error, stop func())
}

// measureStreams lets 64 goroutines wait for each of some, again and again. They take turns.
func measureStreams(ctx context.Context, all []streamed, wall time.Duration, rounds int) ([]StreamResult, error) {
	rate, cpu, allocs := make([][]float64, len(all)), make([][]float64, len(all)), make([][]float64, len(all))
	for range rounds {
		for i, s := range all {
			one, err := stream(ctx, wall, s.start)
			if err != nil {
				return nil, err
			}
			rate[i], cpu[i], allocs[i] = append(rate[i], one.PerSecond), append(cpu[i], one.CPU), append(allocs[i], one.Allocs)
		}
	}
	results := make([]StreamResult, len(all))
	for i, s := range all {
		results[i] = s.result
		results[i].PerSecond, results[i].CPU, results[i].Allocs = median(rate[i]), median(cpu[i]), median(allocs[i])
	}
	return results, nil
}

// streamsOf are the limiters that callers can wait for, each with the budget b.
func streamsOf(b budget) []streamed {
	limiters := QueuedLimiters()
	all := make([]streamed, 0, len(limiters))
	for _, q := range limiters {
		all = append(all, streamed{
			StreamResult{By: q.By, Call: q.Call, Floor: q.Floor},
			func() (func(context.Context) error, func()) { return q.New(b) },
		})
	}
	return all
}

// share sets which part of what the budget allows was served.
func share(results []StreamResult, b budget, wall time.Duration) {
	for i := range results {
		results[i].Share = results[i].PerSecond / (b.perSecond() + float64(b.burst)/wall.Seconds())
	}
}

func stream(
	ctx context.Context, wall time.Duration, start func() (wait func(context.Context) error, stop func()),
) (r StreamResult, err error) {
	wait, stop := start()
	if stop != nil {
		defer stop()
	}
	var (
		total   atomic.Int64
		over    atomic.Bool
		callers sync.WaitGroup
		from    runtime.MemStats
		to      runtime.MemStats
	)
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	runtime.GC()
	runtime.ReadMemStats(&from)
	cpu, begin := cpuTime(), time.Now()
	for range streamCallers {
		callers.Go(func() {
			own := int64(0)
			for wait(inner) == nil && !over.Load() {
				own++
			}
			total.Add(own)
		})
	}
	pause(ctx, wall)
	over.Store(true)
	elapsed := time.Since(begin)
	used := cpuTime() - cpu
	cancel()
	callers.Wait()
	runtime.ReadMemStats(&to)
	n := float64(max(total.Load(), 1))
	r.PerSecond = n / elapsed.Seconds()
	r.CPU = float64(used.Nanoseconds()) / 1e3 / n
	r.Allocs = float64(to.Mallocs-from.Mallocs) / n
	return r, ctx.Err()
}

// Relay is a semaphore of one permit, which is handed from one goroutine to the next.
type Relay struct {
	By, Call string
	Floor    bool
	New      func() (round func(ctx context.Context) error)
}

// relayPart is by how much shorter than other streams those of relays are: they have no timers, so that they need not be
// long.
const relayPart = 4

// streamsOfRelays are the semaphores that callers can wait for.
func streamsOfRelays() []streamed {
	relays := Relays()
	all := make([]streamed, 0, len(relays))
	for _, l := range relays {
		all = append(all, streamed{
			StreamResult{By: l.By, Call: l.Call, Floor: l.Floor},
			func() (func(context.Context) error, func()) { return l.New(), nil },
		})
	}
	return all
}

// Relays are the semaphores that callers can wait for. Each serves in order of arrival.
func Relays() []Relay {
	return []Relay{
		{By: byWeir, Call: "Concurrency.Acquire(ctx, 1); Lease.Release()", New: func() func(context.Context) error {
			l := must(weir.NewConcurrency(1, weir.Options{QueueLimit: queueLimit}))
			return func(ctx context.Context) error {
				lease, err := l.Acquire(ctx, 1)
				lease.Release()
				return err
			}
		}},
		{By: byChannel, Call: "c <- struct{}{}; <-c", Floor: true, New: func() func(context.Context) error {
			c := make(chan struct{}, 1)
			return func(ctx context.Context) error {
				c <- struct{}{}
				<-c
				return ctx.Err()
			}
		}},
		{By: bySemaphore, Call: "Weighted.Acquire(ctx, 1); Release(1)", New: func() func(context.Context) error {
			l := semaphore.NewWeighted(1)
			return func(ctx context.Context) error {
				if err := l.Acquire(ctx, 1); err != nil {
					return err
				}
				l.Release(1)
				return nil
			}
		}},
		{By: byFailsafe, Call: "Bulkhead.AcquirePermit(ctx); ReleasePermit()", New: func() func(context.Context) error {
			l := bulkhead.New[any](1)
			return func(ctx context.Context) error {
				if err := l.AcquirePermit(ctx); err != nil {
					return err
				}
				l.ReleasePermit()
				return nil
			}
		}},
	}
}
