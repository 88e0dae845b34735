package manualclock_test

import (
	"fmt"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
)

// Simulate an hour of traffic in no time.
func ExampleClock() {
	clock := manualclock.New(0)
	limiter, err := weir.New(weir.TokenBucket(weir.PerMinute(1), 5), weir.Options{Clock: clock})
	if err != nil {
		fmt.Println(err)
		return
	}
	allowed := 0
	for range 3600 {
		if limiter.Allow() {
			allowed++
		}
		clock.Advance(time.Second)
	}
	fmt.Println(allowed)
	// Output:
	// 64
}
