package postgres_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/examples/postgres"
	"github.com/weirhq/weir/store"
	"github.com/weirhq/weir/store/storetest"
)

// newStore is a store whose calls wait for long, as the machine may be busy.
func newStore(t testing.TB, locks store.Locks, clock weir.Clock) *store.Locked {
	t.Helper()
	s, err := store.NewLocked(locks, store.LockedOptions{Clock: clock, Lease: time.Minute, Wait: time.Minute, Skew: 3 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// outage kills the server until it is repaired.
func outage(t *testing.T, s *server) func() (repair func()) {
	t.Helper()
	return func() func() {
		if err := s.kill(); err != nil {
			t.Error(err)
		}
		return func() {
			if err := s.start(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestLocksConform(t *testing.T) {
	storetest.RunLocks(t, func(t *testing.T) storetest.LocksSubject {
		return storetest.LocksSubject{Locks: shared.locks(t), Other: shared.locks(t), Break: outage(t, shared)}
	})
}

// ahead is a clock that is ahead of that of the machine.
type ahead time.Duration

func (a ahead) Now() int64 { return time.Now().Add(time.Duration(a)).UnixNano() }

func (a ahead) AfterFunc(time.Duration, func()) func() bool { panic("a store waits for nothing") }

func TestStoreConforms(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		other := shared.locks(t)
		return storetest.Subject{
			Store: newStore(t, shared.locks(t), nil), Other: newStore(t, other, nil), Break: outage(t, shared),
			Skewed: func(d time.Duration) store.Home { return newStore(t, other, ahead(d)) },
			Steps:  60,
		}
	})
}

// TestEmptyIsNotAbsent has a value of no bytes, and bytes whose time has passed.
func TestEmptyIsNotAbsent(t *testing.T) {
	locks, ctx := shared.locks(t), context.Background()
	set := func(value []byte) {
		t.Helper()
		if _, err := locks.LockAndGet(ctx, "empty", "a", time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := locks.SetAndUnlock(ctx, "empty", "a", value, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	set([]byte{})
	if value, err := locks.LockAndGet(ctx, "empty", "a", time.Minute); err != nil || value == nil || len(value) > 0 {
		t.Errorf("%#v, %v, want no bytes", value, err)
	}
	var before time.Time
	if err := shared.admin.QueryRowContext(ctx, `SELECT clock_timestamp()`).Scan(&before); err != nil {
		t.Fatal(err)
	}
	set([]byte("x"))
	age(t, "empty", "59 minutes") // a later minute may begin any moment
	if value, err := locks.LockAndGet(ctx, "empty", "a", time.Minute); err != nil || string(value) != "x" {
		t.Errorf("%q, %v: dropped before its time", value, err)
	}
	var up bool
	err := shared.admin.QueryRowContext(ctx, `SELECT dropped >= $1::timestamptz + interval '1 minute' FROM weir_states WHERE key = 'empty'`,
		before).Scan(&up)
	if err != nil || !up {
		t.Errorf("%v, %v: its time is not rounded up", up, err)
	}
	set([]byte("x"))
	age(t, "empty", "1 hour 2 minutes")
	if value, err := locks.LockAndGet(ctx, "empty", "a", time.Minute); err != nil || value != nil {
		t.Errorf("%q, %v: kept after its time", value, err)
	}
}

// age moves the time of a key back, as if so much had passed.
func age(t *testing.T, key, by string) {
	t.Helper()
	_, err := shared.admin.ExecContext(context.Background(), `
UPDATE weir_states SET dropped = dropped - $2::text::interval, until = until - $2::text::interval WHERE key = $1`, []byte(key), by)
	if err != nil {
		t.Fatal(err)
	}
}

// empty deletes what tests have left in the shared server: an earlier run of the same one, too.
func empty(t *testing.T) {
	t.Helper()
	if _, err := shared.admin.ExecContext(context.Background(), `TRUNCATE weir_states`); err != nil {
		t.Fatal(err)
	}
}

// TestSweep deletes the rows that are not needed any more, at most so many at a time, and nothing else.
func TestSweep(t *testing.T) {
	locks, ctx := shared.locks(t), context.Background()
	empty(t)
	for _, key := range []string{"old", "old too", "old but locked", "fresh"} {
		if _, err := locks.LockAndGet(ctx, key, "a", time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := locks.SetAndUnlock(ctx, key, "a", []byte("x"), time.Hour); err != nil {
			t.Fatal(err)
		}
		if key != "fresh" {
			age(t, key, "2 hours")
		}
	}
	for _, key := range []string{"old but locked", "new", "left"} {
		if _, err := locks.LockAndGet(ctx, key, "a", time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if err := locks.Unlock(ctx, "left", "a"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int64{2, 1, 0} {
		if n, err := locks.Sweep(ctx, 2); err != nil || n != want {
			t.Errorf("%d rows were deleted, want %d; %v", n, want, err)
		}
	}
	var left string
	err := shared.admin.QueryRowContext(ctx, `SELECT string_agg(encode(key, 'escape'), ', ' ORDER BY key) FROM weir_states`).Scan(&left)
	if want := "fresh, new, old but locked"; err != nil || left != want {
		t.Errorf("left: %s, want %s; %v", left, want, err)
	}
}

// TestSweepUsesTheIndex looks at few rows of many.
func TestSweepUsesTheIndex(t *testing.T) {
	ctx := context.Background()
	for _, statement := range []string{
		`TRUNCATE weir_states`,
		`INSERT INTO weir_states SELECT sha256(n::text::bytea), 'x', now() + n * interval '1 hour', '', '-infinity'
			FROM generate_series(-9, 20000) n`,
		`ANALYZE weir_states`,
	} {
		if _, err := shared.admin.ExecContext(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	var plan string
	err := shared.admin.QueryRowContext(ctx, `EXPLAIN (FORMAT JSON)
SELECT key FROM weir_states WHERE dropped <= now() AND until <= now() ORDER BY dropped LIMIT 100 FOR UPDATE SKIP LOCKED`).Scan(&plan)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(plan, `"Index Name": "weir_states_dropped"`) {
		t.Errorf("the plan is %s", plan)
	}
	if n, err := shared.locks(t).Sweep(ctx, 100); err != nil || n != 10 {
		t.Errorf("%d rows were deleted, want 10; %v", n, err)
	}
}

// TestRowsAreUpdatedInPlace wants nearly all updates of a key that is used again and again to leave the indexes alone.
func TestRowsAreUpdatedInPlace(t *testing.T) {
	updates := func() (all, inPlace int64) {
		err := shared.admin.QueryRowContext(context.Background(), `
SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'weir_states'`).Scan(&all, &inPlace)
		if err != nil {
			t.Fatal(err)
		}
		return all, inPlace
	}
	allBefore, inPlaceBefore := updates()
	db, end, err := shared.open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	s := newStore(t, postgres.Locks{DB: db}, nil)
	c := []store.Charge{{Policy: "hot", Key: "k", Limit: weir.TokenBucket(weir.PerSecond(100), 1000), N: 1}}
	for range 200 {
		if err := store.Take(context.Background(), s, c, make([]weir.Decision, 1)); err != nil {
			t.Fatal(err)
		}
	}
	end() // the server counts what a connection did when it ends, and sooner only if it has been idle for ten seconds
	var all, inPlace int64
	until(t, "all updates are counted", func() bool {
		all, inPlace = updates()
		all, inPlace = all-allBefore, inPlace-inPlaceBefore
		return all >= 399
	})
	t.Logf("%d of %d updates were in place", inPlace, all)
	if inPlace < all*9/10 {
		t.Errorf("%d of %d updates were in place", inPlace, all)
	}
}

// TestSchemaByMany has processes begin at the same time.
func TestSchemaByMany(t *testing.T) {
	db := shared.locks(t).DB
	if _, err := db.ExecContext(context.Background(), `DROP TABLE weir_states`); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if _, err := db.ExecContext(context.Background(), postgres.Schema); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// countedConn counts what is sent at once.
type countedConn struct {
	net.Conn

	sent *atomic.Int64
}

func (c countedConn) Write(b []byte) (int, error) {
	c.sent.Add(1)
	return c.Conn.Write(b)
}

// TestOneRoundTrip counts what is sent for each call: once, and for the first of each kind over a connection twice, as the
// statement is prepared.
func TestOneRoundTrip(t *testing.T) {
	config, err := pgx.ParseConfig(shared.url())
	if err != nil {
		t.Fatal(err)
	}
	var sent atomic.Int64
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return countedConn{conn, &sent}, err
	}
	locks, ctx := postgres.Locks{DB: stdlib.OpenDB(*config)}, context.Background()
	defer locks.DB.Close()
	calls := []func() error{
		func() error { _, err := locks.LockAndGet(ctx, "trip", "a", time.Minute); return err },
		func() error { return locks.Unlock(ctx, "trip", "a") },
		func() error { _, err := locks.LockAndGet(ctx, "trip", "a", time.Minute); return err },
		func() error { return locks.SetAndUnlock(ctx, "trip", "a", []byte("x"), time.Minute) },
		func() error { _, err := locks.LockAndGet(ctx, "trip", "a", time.Minute); return err },
		func() error { return locks.SetAndUnlock(ctx, "trip", "a", nil, 0) },
	}
	for round := range 3 {
		for i, call := range calls {
			before := sent.Load()
			if err := call(); err != nil {
				t.Fatal(i, err)
			}
			if n := sent.Load() - before; round > 0 && n != 1 {
				t.Errorf("call %d: sent %d times", i, n)
			}
		}
	}
}
