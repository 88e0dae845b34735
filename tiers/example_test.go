package tiers_test

import (
	"fmt"
	"net/netip"

	"github.com/weirhq/weir/guard"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/tiers"
)

func ExampleTiers() {
	ts, err := tiers.New(tiers.Options{Clock: manualclock.New(0)}) // a clock that stands, for this example
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ts.Close()

	search, err := ts.Tier(&tiers.Attribute{RPS: 5, Burst: 2.5})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(search)
	const opSearch = 7
	for range 5 {
		d := search.Check(opSearch, netip.MustParseAddr("192.0.2.1"))
		fmt.Println(d.Allowed, d.Reason, guard.Credit(d))
	}
	// Output:
	// 8/s burst 4
	// true none 3
	// true none 2
	// true none 1
	// true none 0
	// false soft-throttle 0
}
