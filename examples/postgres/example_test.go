package postgres_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/examples/postgres"
	"github.com/weirhq/weir/store"
)

// Four lines make a database a store of limits. What comes after them is the same for every store.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, shared.url())
	orPanic(err)
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(ctx, postgres.Schema)
	orPanic(err)
	s, err := store.NewLocked(postgres.Locks{DB: db}, store.LockedOptions{})
	orPanic(err)

	perClient := weir.TokenBucket(weir.PerHour(2), 0)
	charges := []store.Charge{{Policy: "client", Key: "alice", Limit: perClient, N: 1}}
	decisions := make([]weir.Decision, 1)
	for range 3 {
		orPanic(store.Take(ctx, s, charges, decisions))
		fmt.Println(decisions[0].Allowed, decisions[0].Remaining)
	}
	// Output:
	// true 1
	// true 0
	// false 0
}

func orPanic(err error) {
	if err != nil {
		panic(err)
	}
}
