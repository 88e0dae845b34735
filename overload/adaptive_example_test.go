package overload_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/overload"
)

var errOverloaded = errors.New("backend overloaded")

// A backend is called with as many requests at a time as it answers without queueing.
func ExampleAdaptive() {
	limiter, err := overload.NewAdaptive(overload.AdaptiveOptions{Name: "backend", InitialLimit: 10, QueueLimit: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	call := func(ctx context.Context, backend func() error) error {
		lease, err := limiter.Acquire(ctx, 1)
		if err != nil {
			return err // refused, or ctx has ended
		}
		switch err = backend(); {
		case errors.Is(err, errOverloaded):
			lease.Drop() // the limit is too high
		case errors.Is(err, context.Canceled):
			lease.Cancel() // our caller has gone, which says nothing about the backend
		default:
			lease.Release() // how long it took is what the limiter learns from
		}
		return err
	}

	ctx := context.Background()
	fmt.Println(call(ctx, func() error { return nil }))
	fmt.Println(call(ctx, func() error { return errOverloaded }))
	fmt.Println("limit:", limiter.Stats().Limit)
	// Output:
	// <nil>
	// backend overloaded
	// limit: 10
}

// When four fifths of the permits are out, background work is refused, and normal and critical requests are not.
func ExampleShedder() {
	limiter, err := weir.NewConcurrency(10, weir.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	shedder, err := overload.NewShedder(overload.ShedderOptions{
		Sources:    []overload.Pressure{overload.LimiterPressure("permits in use", limiter)}, // default: the processors
		Interval:   time.Millisecond,
		Rise:       -1, // this example does not wait until an average has risen
		Bands:      map[overload.Priority]overload.ShedBand{overload.PriorityBackground: {From: 0.5, To: 0.75}},
		RetryAfter: 2 * time.Second,
		Clock:      exampleClock,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.TryAcquire(8).Release()
	exampleClock.Advance(time.Second)

	for _, p := range []overload.Priority{overload.PriorityBackground, overload.PriorityNormal, overload.PriorityCritical} {
		d := shedder.Decide(p)
		fmt.Println(p, d.Allowed, d.Reason, d.RetryAfter)
	}
	// Output:
	// background false overloaded 10s
	// normal true none 0s
	// critical true none 0s
}

var exampleClock = manualclock.New(0)
