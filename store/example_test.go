package store_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// A request costs one permit of the client and one of all clients: both or none.
func ExampleNewMemory() {
	s, err := store.NewMemory(store.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer func() { _ = s.Close() }()
	perClient, everybody := weir.TokenBucket(weir.PerHour(2), 0), weir.TokenBucket(weir.PerHour(100), 0)
	charges := []store.Charge{
		{Policy: "client", Key: "alice", Limit: perClient, N: 1},
		{Policy: "everybody", Limit: everybody, N: 1},
	}
	decisions := make([]weir.Decision, len(charges))
	for range 3 {
		if err := store.Take(context.Background(), s, charges, decisions); err != nil {
			panic(err)
		}
		binding := decisions[store.Binding(decisions)]
		fmt.Println(binding.Allowed, binding.Policy, binding.Remaining, "and of all", decisions[1].Remaining)
	}
	// Output:
	// true client 1 and of all 99
	// true client 0 and of all 98
	// false client 0 and of all 98
}

// A cost that is known only afterwards is reserved, and then committed. If the caller dies, the reservation expires.
func ExampleNewLocked() {
	s, err := store.NewLocked(store.NewMemoryLocks(nil), store.LockedOptions{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	charges := []store.Charge{{Policy: "tokens", Key: "alice", Limit: weir.TokenBucket(weir.PerDay(10_000), 0), N: 4000}}
	decisions := make([]weir.Decision, 1)
	r, err := store.Reserve(ctx, s, charges, decisions, time.Minute)
	if err != nil {
		panic(err)
	}
	fmt.Println("reserved, left", decisions[0].Remaining)
	if err := store.Commit(ctx, s, r, []int64{1000}); err != nil {
		panic(err)
	}
	if err := store.Peek(ctx, s, charges, decisions); err != nil {
		panic(err)
	}
	fmt.Println("committed, left", decisions[0].Remaining)
	// Output:
	// reserved, left 6000
	// committed, left 9000
}
