package bench

import (
	"time"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"golang.org/x/sync/semaphore"

	"github.com/weirhq/weir"
)

// window is so long, and its limit so high, that a measurement stays within one window and below the limit.
const (
	window      = time.Hour
	windowLimit = 1_000_000_000
)

func weirFixedWindow() Subject {
	return Subject{By: byWeir, Call: "FixedWindow.Allow()", New: func() (Loop, func()) {
		l := must(weir.New(weir.FixedWindow(weir.Per(windowLimit, window)), weir.Options{}))
		return func(n int) (granted int) {
			for range n {
				if l.Allow() {
					granted++
				}
			}
			return granted
		}, nil
	}}
}

func weirSlidingWindow(call string, limit weir.Limit) Subject {
	return Subject{By: byWeir, Call: call, New: func() (Loop, func()) {
		l := must(weir.New(limit, weir.Options{}))
		return func(n int) (granted int) {
			for range n {
				if l.Allow() {
					granted++
				}
			}
			return granted
		}, nil
	}}
}

// permits is the size of the semaphores: more than there are goroutines, so that none is ever refused.
const permits = 100

func weirConcurrency() Subject {
	return Subject{By: byWeir, Call: "Concurrency.TryAcquire(1); Lease.Release()", New: func() (Loop, func()) {
		l := must(weir.NewConcurrency(permits, weir.Options{}))
		return func(n int) (granted int) {
			for range n {
				if lease := l.TryAcquire(1); lease.Allowed() {
					granted++
					lease.Release()
				}
			}
			return granted
		}, nil
	}}
}

func weirConcurrencyAcquire() Subject {
	return Subject{By: byWeir, Call: "Concurrency.Acquire(ctx, 1); Lease.Release()", New: func() (Loop, func()) {
		l, ctx := must(weir.NewConcurrency(permits, weir.Options{})), waitingContext
		return func(n int) (granted int) {
			for range n {
				if lease, err := l.Acquire(ctx, 1); err == nil {
					granted++
					lease.Release()
				}
			}
			return granted
		}, nil
	}}
}

func semaphoreTry() Subject {
	return Subject{By: bySemaphore, Call: "Weighted.TryAcquire(1); Release(1)", New: func() (Loop, func()) {
		l := semaphore.NewWeighted(permits)
		return func(n int) (granted int) {
			for range n {
				if l.TryAcquire(1) {
					granted++
					l.Release(1)
				}
			}
			return granted
		}, nil
	}}
}

func semaphoreAcquire() Subject {
	return Subject{By: bySemaphore, Call: "Weighted.Acquire(ctx, 1); Release(1)", New: func() (Loop, func()) {
		l, ctx := semaphore.NewWeighted(permits), waitingContext
		return func(n int) (granted int) {
			for range n {
				if l.Acquire(ctx, 1) == nil {
					granted++
					l.Release(1)
				}
			}
			return granted
		}, nil
	}}
}

func failsafeBulkhead() Subject {
	return Subject{By: byFailsafe, Call: "Bulkhead.TryAcquirePermit(); ReleasePermit()", New: func() (Loop, func()) {
		l := bulkhead.New[any](permits)
		return func(n int) (granted int) {
			for range n {
				if l.TryAcquirePermit() {
					granted++
					l.ReleasePermit()
				}
			}
			return granted
		}, nil
	}}
}

func failsafeBulkheadAcquire() Subject {
	return Subject{By: byFailsafe, Call: "Bulkhead.AcquirePermit(ctx); ReleasePermit()", New: func() (Loop, func()) {
		l, ctx := bulkhead.New[any](permits), waitingContext
		return func(n int) (granted int) {
			for range n {
				if l.AcquirePermit(ctx) == nil {
					granted++
					l.ReleasePermit()
				}
			}
			return granted
		}, nil
	}}
}

// channelTry is the semaphore that needs no library.
func channelTry() Subject {
	return Subject{By: byChannel, Call: "select { case c <- struct{}{}: <-c; default: }", New: func() (Loop, func()) {
		c := make(chan struct{}, permits)
		return func(n int) (granted int) {
			for range n {
				select {
				case c <- struct{}{}:
					granted++
					<-c
				default:
				}
			}
			return granted
		}, nil
	}}
}

func channelAcquire() Subject {
	return Subject{By: byChannel, Call: "select { case c <- struct{}{}: <-c; case <-ctx.Done(): }", New: func() (Loop, func()) {
		c, ctx := make(chan struct{}, permits), waitingContext
		return func(n int) (granted int) {
			for range n {
				select {
				case c <- struct{}{}:
					granted++
					<-c
				case <-ctx.Done():
				}
			}
			return granted
		}, nil
	}}
}

// golimiterWindow takes from one window of a store.
func golimiterWindow() Subject {
	return golimiterTake(budget{windowLimit, window, windowLimit})
}

func failsafeWindow() Subject {
	return failsafeBursty(budget{windowLimit, window, windowLimit})
}
