package weir_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
)

// Allow ten requests a second, and twenty at once after a quiet time.
func ExampleTokenBucket() {
	clock := manualclock.New(0) // a clock that stands until it is moved, for this example
	limiter, err := weir.New(weir.TokenBucket(weir.PerSecond(10), 20), weir.Options{Clock: clock})
	if err != nil {
		fmt.Println(err)
		return
	}
	ask := func() (allowed int) {
		for range 100 {
			if limiter.Allow() {
				allowed++
			}
		}
		return allowed
	}
	fmt.Println("allowed at once:", ask())
	clock.Advance(time.Second)
	fmt.Println("a second later:", ask())
	// Output:
	// allowed at once: 20
	// a second later: 10
}

// Tell the caller when to come back.
func ExampleLimiter_Take() {
	limiter, err := weir.New(weir.TokenBucket(weir.PerMinute(2), 3), weir.Options{
		Name: "search", Clock: manualclock.New(0),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, n := range []int64{2, 2, 5} {
		d := limiter.Take(n)
		switch {
		case d.Allowed:
			fmt.Println(d.Policy, "allowed, remaining:", d.Remaining)
		case d.RetryAfter == weir.Never:
			fmt.Println(d.Policy, "refused: more than the", d.Limit, "that it ever holds")
		default:
			fmt.Println(d.Policy, "refused, come back after", d.RetryAfter)
		}
	}
	// Output:
	// search allowed, remaining: 1
	// search refused, come back after 30s
	// search refused: more than the 3 that it ever holds
}

// Wait in a queue for at most ten callers, in order.
func ExampleLimiter_Wait() {
	limiter, err := weir.New(weir.TokenBucket(weir.PerSecond(200), 1), weir.Options{QueueLimit: 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Now()
	for range 4 {
		if err := limiter.Wait(context.Background(), 1); err != nil {
			fmt.Println(err)
			return
		}
	}
	// The first permit was in the bucket, the other three came 5 ms apart.
	fmt.Println("at least 15ms:", time.Since(start) >= 15*time.Millisecond)
	// Output:
	// at least 15ms: true
}

// A call that could not be served before the deadline of its context is refused at once, and can do something else meanwhile.
func ExampleLimiter_Acquire() {
	limiter, err := weir.New(weir.TokenBucket(weir.PerHour(1), 1), weir.Options{QueueLimit: 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	for range 2 {
		lease, err := limiter.Acquire(ctx, 1)
		fmt.Println(lease.Allowed(), lease.Decision().Reason, err != nil)
	}
	// Output:
	// true none false
	// false deadline true
}

// Limit the tokens of a language model, the number of which is known only when the answer is there: reserve an estimate,
// then commit what was used.
func ExampleLease_Commit() {
	tokens, err := weir.New(weir.TokenBucket(weir.PerMinute(60_000), 10_000), weir.Options{
		Clock: manualclock.New(0),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ask := func(estimate, used int64) {
		lease := tokens.TryReserve(estimate)
		if !lease.Allowed() {
			fmt.Println("come back after", lease.Decision().RetryAfter)
			return
		}
		defer lease.Cancel() // does nothing after Commit, and gives everything back if the call below fails
		fmt.Println("reserved", lease.Permits())
		lease.Commit(used)
		fmt.Println("used", used, "left", tokens.Stats().Remaining)
	}
	ask(4000, 1500)
	ask(4000, 9000) // more than reserved, and more than there is: the rest is owed
	ask(4000, 4000)
	// Output:
	// reserved 4000
	// used 1500 left 8500
	// reserved 4000
	// used 9000 left 0
	// come back after 4.5s
}

// Hold a client to a rate in the short and in the long term, and to a number of requests at a time. A request that one
// of them refuses costs nothing of the others.
func ExampleChain() {
	clock := manualclock.New(0)
	perSecond, err := weir.New(weir.TokenBucket(weir.PerSecond(2), 0), weir.Options{Name: "second", Clock: clock})
	if err != nil {
		fmt.Println(err)
		return
	}
	perDay, err := weir.New(weir.FixedWindow(weir.PerDay(1000)), weir.Options{Name: "day", Clock: clock})
	if err != nil {
		fmt.Println(err)
		return
	}
	atATime, err := weir.NewConcurrency(3, weir.Options{Name: "at a time"})
	if err != nil {
		fmt.Println(err)
		return
	}
	limits, err := weir.NewChain(perSecond, perDay, atATime)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		lease := limits.TryAcquire(1)
		defer lease.Release() //nolint:gocritic // all are in flight until the end
		d := lease.Decision()
		fmt.Println(d.Allowed, d.Policy, d.Remaining, d.RetryAfter)
	}
	fmt.Println("left of the day:", perDay.Stats().Remaining, "at a time:", atATime.Stats().Remaining)
	// Output:
	// true second 1 0s
	// true second 0 0s
	// false second 0 500ms
	// left of the day: 998 at a time: 1
}

// Limit requests and tokens together where a request costs one of the one and many of the other: reserve both, and
// cancel the first if the second refuses.
func ExampleLease_Cancel() {
	clock := manualclock.New(0)
	requests, err := weir.New(weir.TokenBucket(weir.PerMinute(60), 0), weir.Options{Clock: clock})
	if err != nil {
		fmt.Println(err)
		return
	}
	tokens, err := weir.New(weir.TokenBucket(weir.PerMinute(10_000), 0), weir.Options{Clock: clock})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, estimate := range []int64{7000, 4000} {
		request := requests.TryReserve(1)
		lease := tokens.TryReserve(estimate)
		if request.Allowed() && lease.Allowed() {
			fmt.Println("ask for", estimate)
			continue
		}
		request.Cancel()
		lease.Cancel()
		fmt.Println("come back after", max(request.Decision().RetryAfter, lease.Decision().RetryAfter))
	}
	fmt.Println("requests left:", requests.Stats().Remaining)
	// Output:
	// ask for 7000
	// come back after 6s
	// requests left: 59
}

// Let no more than two tasks run at a time.
func ExampleConcurrency() {
	limiter, err := weir.NewConcurrency(2, weir.Options{QueueLimit: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan int64)
	for range 5 {
		go func() {
			lease, err := limiter.Acquire(context.Background(), 1)
			if err != nil || !lease.Allowed() {
				done <- -1
				return
			}
			defer lease.Release()
			done <- 2 - limiter.Stats().Remaining // how many run now
		}()
	}
	for range 5 {
		if running := <-done; running < 1 || running > 2 {
			fmt.Println("running:", running)
		}
	}
	fmt.Println("never more than two")
	// Output:
	// never more than two
}

// Give every user a limit of their own.
func ExampleKeyed() {
	limiter, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerHour(1), 2), weir.KeyedOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, user := range []string{"ann", "ann", "ann", "bob"} {
		fmt.Println(user, limiter.Allow(user))
	}
	// Output:
	// ann true
	// ann true
	// ann false
	// bob true
}

// Spread requests evenly over a sliding window.
func ExampleSlidingWindow() {
	clock := manualclock.New(0)
	limiter, err := weir.New(weir.SlidingWindow(weir.Per(4, 8*time.Second), 4), weir.Options{Clock: clock})
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter.TryAcquire(3)
	clock.Advance(2 * time.Second)
	limiter.TryAcquire(1)
	fmt.Println("two more after", limiter.TryAcquire(2).Decision().RetryAfter)
	// Output:
	// two more after 6s
}

// Read a limit from a configuration.
func ExampleParseRate() {
	for _, text := range []string{"10/s", "1000/24h", "0.5/min", "fast"} {
		rate, err := weir.ParseRate(text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%v: %d in %v\n", rate, rate.Permits, rate.Period)
	}
	// Output:
	// 10/s: 10 in 1s
	// 1000/day: 1000 in 24h0m0s
	// 1/2m: 1 in 2m0s
	// weir: rate "fast": must be permits/period such as 10/s, 8/min, 1000/24h or 0.5/s
}

// Sell a quota by the month of the customer's time zone.
func ExampleMonth() {
	vienna, err := time.LoadLocation("Europe/Vienna")
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Date(2026, time.November, 30, 23, 0, 0, 0, vienna)
	clock := manualclock.New(start.UnixNano()) // leave it out for the wall clock
	quota, err := weir.NewKeyed[string](weir.CalendarWindow(10_000, weir.Month(vienna)), weir.KeyedOptions{Clock: clock})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(quota.Allow("acme"), quota.Peek("acme", 1).Remaining)
	d := quota.Take("acme", 10_000)
	fmt.Println(d.Allowed, d.RetryAfter) // until December
	clock.Advance(d.RetryAfter)
	fmt.Println(quota.Take("acme", 10_000).Allowed)
	// Output:
	// true 9999
	// false 1h0m0s
	// true
}

// Run two jobs of a tenant at a time. Others of the tenant wait in order; those of other tenants do not.
func ExampleKeyedConcurrency_Do() {
	jobs, err := weir.NewKeyedConcurrency[string](2, weir.KeyedOptions{QueueLimit: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = jobs.Do(context.Background(), "acme", 1, func() error {
		fmt.Println("running, room for", jobs.Peek("acme", 1).Remaining, "more")
		return nil
	})
	fmt.Println(err, jobs.Peek("acme", 1).Remaining)
	// Output:
	// running, room for 1 more
	// <nil> 2
}
