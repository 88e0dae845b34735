package store_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// cut is a store whose connection can be cut.
type cut struct {
	store.Home

	away *atomic.Bool
}

func (c cut) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	if c.away.Load() {
		return store.Hold{}, store.ErrUnavailable
	}
	return c.Home.Do(ctx, ask, charges, decisions)
}

// Two processes share a limit of four through a store: here one in memory, in production that of package redis. Each takes
// what the other has left. While the store is away each goes on with its half.
func ExampleNewFleet() {
	memory, err := store.NewMemory(store.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	var away atomic.Bool
	var processes []*store.Fleet
	for range 2 {
		f, err := store.NewFleet(cut{memory, &away}, store.FleetOptions{
			// Processes count one another by default. Here it is told how many there are.
			Replicas: store.ReplicasOptions{Disabled: true, Assumed: 2},
		})
		if err != nil {
			panic(err)
		}
		processes = append(processes, f)
	}
	defer processes[0].Close()
	defer processes[1].Close()
	take := func(process int) {
		charges := []store.Charge{{
			Policy: "mails", Key: "alice", Limit: weir.TokenBucket(weir.PerHour(4), 0), N: 1,
			Consistency: store.ConsistencyCoherent, Fail: store.FailLocal,
		}}
		decisions := make([]weir.Decision, len(charges))
		if err := store.Take(context.Background(), processes[process], charges, decisions); err != nil {
			panic(err) // the context has ended, or the charges are wrong
		}
		fmt.Println("process", process, decisions[0].Allowed, "left", decisions[0].Remaining, "of", decisions[0].Limit)
	}
	for i := range 5 {
		take(i % 2)
	}
	away.Store(true)
	for range 3 {
		take(0)
	}
	fmt.Println("decided alone:", processes[0].Stats().Fallback.LocalAllowed)
	// Output:
	// process 0 true left 3 of 4
	// process 1 true left 2 of 4
	// process 0 true left 1 of 4
	// process 1 true left 0 of 4
	// process 0 false left 0 of 4
	// process 0 true left 1 of 2
	// process 0 true left 0 of 2
	// process 0 false left 0 of 2
	// decided alone: 2
}
