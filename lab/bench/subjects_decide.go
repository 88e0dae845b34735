package bench

import (
	"context"
	"time"

	"github.com/weirhq/weir"
)

// The loops of this file want more than yes or no: a decision, a wait that may be needed, or a cost to settle.

// waitingContext is a context as a server has one for each request: it can be canceled, and never is.
var waitingContext, _ = context.WithCancel(context.Background())

func weirTryAcquire(b budget) Subject {
	return Subject{By: byWeir, Call: "TokenBucket.TryAcquire(1)", New: func() (Loop, func()) {
		l := b.weir()
		return func(n int) (granted int) {
			for range n {
				if lease := l.TryAcquire(1); lease.Allowed() {
					granted++
				}
			}
			return granted
		}, nil
	}}
}

func weirAcquire(b budget) Subject {
	return Subject{By: byWeir, Call: "TokenBucket.Acquire(ctx, 1)", New: func() (Loop, func()) {
		l, ctx := b.weir(), waitingContext
		return func(n int) (granted int) {
			for range n {
				if _, err := l.Acquire(ctx, 1); err == nil {
					granted++
				}
			}
			return granted
		}, nil
	}}
}

// weirCommit reserves 10 permits of which the call turns out to cost some.
func weirCommit(b budget, call string, cost int64) Subject {
	return Subject{By: byWeir, Call: call, New: func() (Loop, func()) {
		l := b.weir()
		return func(n int) (granted int) {
			for range n {
				if lease := l.TryReserve(10); lease.Allowed() {
					granted++
					lease.Commit(cost)
				}
			}
			return granted
		}, nil
	}}
}

func weirCancel(b budget) Subject {
	return Subject{By: byWeir, Call: "TokenBucket.TryReserve(10); Lease.Cancel()", New: func() (Loop, func()) {
		l := b.weir()
		return func(n int) (granted int) {
			for range n {
				if lease := l.TryReserve(10); lease.Allowed() {
					granted++
					lease.Cancel()
				}
			}
			return granted
		}, nil
	}}
}

func xtimeReserve(b budget) Subject {
	return Subject{By: byXTime, Call: "Limiter.Reserve(); Delay()", New: func() (Loop, func()) {
		l := b.xtime()
		return func(n int) (granted int) {
			for range n {
				if r := l.Reserve(); r.OK() && r.Delay() == 0 {
					granted++
				}
			}
			return granted
		}, nil
	}}
}

func xtimeCancel(b budget) Subject {
	return Subject{By: byXTime, Call: "Limiter.ReserveN(time.Now(), 10); Cancel()", New: func() (Loop, func()) {
		l := b.xtime()
		return func(n int) (granted int) {
			for range n {
				if r := l.ReserveN(time.Now(), 10); r.OK() {
					granted++
					r.Cancel()
				}
			}
			return granted
		}, nil
	}}
}

func xtimeWait(b budget) Subject {
	return Subject{By: byXTime, Call: "Limiter.Wait(ctx)", New: func() (Loop, func()) {
		l, ctx := b.xtime(), waitingContext
		return func(n int) (granted int) {
			for range n {
				if l.Wait(ctx) == nil {
					granted++
				}
			}
			return granted
		}, nil
	}}
}

func jujuTakeMax(b budget) Subject {
	return Subject{By: byJuju, Call: "Bucket.TakeMaxDuration(1, 0)", New: func() (Loop, func()) {
		l := b.juju()
		return func(n int) (granted int) {
			for range n {
				if wait, ok := l.TakeMaxDuration(1, 0); ok && wait == 0 {
					granted++
				}
			}
			return granted
		}, nil
	}}
}

func jujuWait(b budget) Subject {
	return Subject{By: byJuju, Call: "Bucket.Wait(1)", New: func() (Loop, func()) {
		l := b.juju()
		return func(n int) (granted int) {
			for range n {
				l.Wait(1)
				granted++
			}
			return granted
		}, nil
	}}
}

func failsafeReserve(b budget) Subject {
	return Subject{By: byFailsafe, Call: "NewBursty, TryReservePermit(0)", New: func() (Loop, func()) {
		l := b.bursty()
		return func(n int) (granted int) {
			for range n {
				if l.TryReservePermit(0) == 0 {
					granted++
				}
			}
			return granted
		}, nil
	}}
}

func failsafeAcquire(b budget) Subject {
	return Subject{By: byFailsafe, Call: "NewBursty, AcquirePermit(ctx)", New: func() (Loop, func()) {
		l, ctx := b.bursty(), waitingContext
		return func(n int) (granted int) {
			for range n {
				if l.AcquirePermit(ctx) == nil {
					granted++
				}
			}
			return granted
		}, nil
	}}
}

// weirChain asks two token buckets, of which neither is charged if the other refuses.
func weirChain(b budget) Subject {
	return Subject{By: byWeir, Call: "NewChain(bucket, bucket).TryAcquire(1)", New: func() (Loop, func()) {
		l := must(weir.NewChain(b.weir(), b.weir()))
		return func(n int) (granted int) {
			for range n {
				if lease := l.TryAcquire(1); lease.Allowed() {
					granted++
				}
			}
			return granted
		}, nil
	}}
}

// xtimeTwice asks two limiters one after the other: what the first has granted is spent if the second refuses.
func xtimeTwice(b budget) Subject {
	return Subject{By: byXTime, Call: "a.Allow() && b.Allow()", New: func() (Loop, func()) {
		first, second := b.xtime(), b.xtime()
		return func(n int) (granted int) {
			for range n {
				if first.Allow() && second.Allow() {
					granted++
				}
			}
			return granted
		}, nil
	}}
}

// failsafeTwice asks two limiters one after the other, as xtimeTwice does.
func failsafeTwice(b budget) Subject {
	return Subject{By: byFailsafe, Call: "a.TryAcquirePermit() && b.TryAcquirePermit()", New: func() (Loop, func()) {
		first, second := b.bursty(), b.bursty()
		return func(n int) (granted int) {
			for range n {
				if first.TryAcquirePermit() && second.TryAcquirePermit() {
					granted++
				}
			}
			return granted
		}, nil
	}}
}
