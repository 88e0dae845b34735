package keyset_test

import (
	"fmt"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
)

// Hold one key to another limit for an hour, and see who is under pressure.
func ExampleView_Override() {
	limiter, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerDay(100), 0), weir.KeyedOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter.Take("scraper", 60)
	limiter.Take("ann", 10)
	if err := keyset.Of(limiter).Override("scraper", weir.TokenBucket(weir.PerHour(5), 0), time.Hour); err != nil {
		fmt.Println(err)
		return
	}
	limiter.Take("scraper", 5)
	for _, s := range keyset.Of(limiter).Top(2) {
		fmt.Printf("%-8s %d of %d left\n", s.Key, s.Remaining, s.Limit)
	}
	// Output:
	// scraper  0 of 5 left
	// ann      90 of 100 left
}
