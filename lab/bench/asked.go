package bench

import (
	"context"
	"math"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/sethvargo/go-limiter/memorystore"

	"github.com/weirhq/weir"
)

// admissionWindow is the window of limiters that have one: a measurement of a second ends in the middle of the third.
const admissionWindow = 400 * time.Millisecond

// The rules for how much is allowed.
const (
	allowedBucket  = "burst + rate x time, with a burst of a tenth of a second"
	allowedWindows = "limit x windows begun, with windows of 400 ms"
	allowedSliding = "limit x windows begun, the first of which is up to a segment of 40 ms shorter"
	allowedApprox  = "rate x time, once the first window of 400 ms has passed"
	allowedSmooth  = "1 + rate x time"
)

// admissionBudget has a burst of a tenth of a second, so that a short stall of all callers costs no permits.
func admissionBudget(perSecond int64) budget {
	return budget{perSecond, time.Second, max(perSecond/10, 1)}
}

// evenly is what a token bucket may grant.
func (b budget) evenly(d time.Duration) float64 { return float64(b.burst) + b.perSecond()*d.Seconds() }

// smoothly is what a limiter without a burst may grant.
func (b budget) smoothly(d time.Duration) float64 { return 1 + b.perSecond()*d.Seconds() }

// perWindow is the limit of a window.
func perWindow(perSecond int64) int64 { return perSecond * int64(admissionWindow) / int64(time.Second) }

// inWindows is what a limiter may grant that begins anew in each window. Callers that always ask spend the limit of a
// window at its very beginning, so that a sliding window begins anew just as seldom: its second window begins one
// window after the first segment began, the third one window later.
func inWindows(limit int64) func(time.Duration) float64 {
	return func(d time.Duration) float64 {
		return float64(limit) * (math.Floor(float64(d)/float64(admissionWindow)) + 1)
	}
}

// inWeighed is what a limiter may grant that weighs the window before by what of it is still in sight: callers that
// always ask are granted the limit at the beginning, nothing more in the first window, and then exactly the share of the
// limit that has gone out of sight.
func inWeighed(limit int64) func(time.Duration) float64 {
	return func(d time.Duration) float64 {
		return float64(limit) * max(1, float64(d)/float64(admissionWindow))
	}
}

// AskedLimiters are the limiters whose admissions are measured: every algorithm of weir that limits a rate, and the
// peers.
func AskedLimiters() []Asked {
	asked := func(by, call, allowed string, start func(perSecond int64) Asking) Asked {
		return Asked{By: by, Call: call, Allowed: allowed, New: start}
	}
	return []Asked{
		asked(byWeir, "TokenBucket.Allow()", allowedBucket, func(perSecond int64) Asking {
			b := admissionBudget(perSecond)
			return yesOrNo(b.weir().Allow, b.evenly)
		}),
		asked(byWeir, "TokenBucket.Acquire(ctx, 1)", allowedBucket, func(perSecond int64) Asking {
			b := admissionBudget(perSecond)
			l := b.weirQueue(admissionGoroutines)
			return Asking{Call: func(ctx context.Context) bool {
				_, err := l.Acquire(ctx, 1)
				return err == nil
			}, Allowed: b.evenly}
		}),
		asked(byWeir, "FixedWindow.Allow()", allowedWindows, func(perSecond int64) Asking {
			limit := perWindow(perSecond)
			l := must(weir.New(weir.FixedWindow(weir.Per(limit, admissionWindow)), weir.Options{}))
			return yesOrNo(l.Allow, inWindows(limit))
		}),
		asked(byWeir, "SlidingWindow.Allow()", allowedSliding, func(perSecond int64) Asking {
			limit := perWindow(perSecond)
			l := must(weir.New(weir.SlidingWindow(weir.Per(limit, admissionWindow), 0), weir.Options{}))
			return yesOrNo(l.Allow, inWindows(limit))
		}),
		asked(byWeir, "SlidingWindow.Allow(), approximate", allowedApprox, func(perSecond int64) Asking {
			limit := perWindow(perSecond)
			l := must(weir.New(weir.SlidingCounter(weir.Per(limit, admissionWindow)), weir.Options{}))
			return yesOrNo(l.Allow, inWeighed(limit))
		}),
		asked(byWeir, "Chain.TryAcquire(1) of two buckets", allowedBucket, func(perSecond int64) Asking {
			b, wide := admissionBudget(perSecond), admissionBudget(2*perSecond)
			l := must(weir.NewChain(wide.weir(), b.weir()))
			return yesOrNo(func() bool { return l.TryAcquire(1).Allowed() }, b.evenly)
		}),
		asked(byXTime, "Limiter.Allow()", allowedBucket, func(perSecond int64) Asking {
			b := admissionBudget(perSecond)
			return yesOrNo(b.xtime().Allow, b.evenly)
		}),
		asked(byXTime, "Limiter.Wait(ctx)", allowedBucket, func(perSecond int64) Asking {
			b := admissionBudget(perSecond)
			l := b.xtime()
			return Asking{Call: func(ctx context.Context) bool { return l.Wait(ctx) == nil }, Allowed: b.evenly}
		}),
		asked(byUber, "Limiter.Take()", allowedSmooth, func(perSecond int64) Asking {
			b := admissionBudget(perSecond)
			l := b.uber()
			return yesOrNo(func() bool { l.Take(); return true }, b.smoothly)
		}),
		asked(byJuju, "Bucket.TakeAvailable(1)", allowedBucket, func(perSecond int64) Asking {
			b := admissionBudget(perSecond)
			l := b.juju()
			return yesOrNo(func() bool { return l.TakeAvailable(1) == 1 }, b.evenly)
		}),
		asked(byFailsafe, "NewSmooth, TryAcquirePermit()", allowedSmooth, func(perSecond int64) Asking {
			b := admissionBudget(perSecond)
			return yesOrNo(b.smooth().TryAcquirePermit, b.smoothly)
		}),
		asked(byFailsafe, "NewBursty, TryAcquirePermit()", allowedWindows, func(perSecond int64) Asking {
			limit := perWindow(perSecond)
			l := ratelimiter.NewBursty[any](uint(limit), admissionWindow)
			return yesOrNo(l.TryAcquirePermit, inWindows(limit))
		}),
		asked(byGoLimiter, "Store.Take(ctx, key)", allowedWindows, func(perSecond int64) Asking {
			limit := perWindow(perSecond)
			s := must(memorystore.New(&memorystore.Config{Tokens: uint64(limit), Interval: admissionWindow}))
			return Asking{Call: func(ctx context.Context) bool {
				_, _, _, ok, err := s.Take(ctx, key)
				return ok && err == nil
			}, Allowed: inWindows(limit), Stop: func() { _ = s.Close(waitingContext) }}
		}),
	}
}

// yesOrNo is a limiter that needs no context and nothing to stop it.
func yesOrNo(call func() bool, allowed func(time.Duration) float64) Asking {
	return Asking{Call: func(context.Context) bool { return call() }, Allowed: allowed}
}

// weirQueue is a token bucket that up to some callers can wait for.
func (b budget) weirQueue(callers int64) *weir.Limiter {
	return must(weir.New(weir.TokenBucket(weir.Per(b.permits, b.period), b.burst), weir.Options{
		QueueLimit: callers,
	}))
}
