package postgres_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// yearly is a limit whose permits do not come back while a test runs.
func yearly(n int64) weir.Limit { return weir.TokenBucket(weir.Per(n, 3000*24*time.Hour), 0) }

func charge(policy, key string, n int64) store.Charge {
	return store.Charge{Policy: policy, Key: key, Limit: yearly(n), N: 1}
}

// until polls a condition.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 3 minutes: %s", what)
		}
	}
}

// disk is a server of this test alone, which waits for the disk as PostgreSQL does by itself.
func disk(tb testing.TB) *server {
	tb.Helper()
	s, err := newServer()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.stop)
	return s
}

// load are callers that take permits until stop is called.
type load struct {
	granted, refused, failed atomic.Int64
	slowest                  atomic.Int64
	stopped                  atomic.Bool
	wait                     sync.WaitGroup
}

func startLoad(t *testing.T, callers int, take func(caller int, d []weir.Decision) error) *load {
	t.Helper()
	l := new(load)
	for caller := range callers {
		l.wait.Go(func() {
			for !l.stopped.Load() {
				d := make([]weir.Decision, 2)
				began := time.Now()
				err := take(caller, d)
				for took := int64(time.Since(began)); ; {
					if was := l.slowest.Load(); took <= was || l.slowest.CompareAndSwap(was, took) {
						break
					}
				}
				switch {
				case errors.Is(err, store.ErrUnavailable):
					l.failed.Add(1)
					time.Sleep(time.Millisecond) // a caller does something with the error
				case err != nil:
					t.Error(err)
					return
				case d[0].Allowed && (d[1].Allowed || d[1].Policy == ""):
					l.granted.Add(1)
				default:
					l.refused.Add(1)
				}
			}
		})
	}
	t.Cleanup(l.stop)
	return l
}

func (l *load) stop() {
	l.stopped.Store(true)
	l.wait.Wait()
}

// taken is how many permits of a charge are gone, by what another store says.
func taken(t *testing.T, server *server, c store.Charge) int64 {
	t.Helper()
	d := make([]weir.Decision, 1)
	if err := store.Peek(context.Background(), newStore(t, server.locks(t), nil), []store.Charge{c}, d); err != nil {
		t.Fatal(err)
	}
	return c.Limit.Rate().Permits - d[0].Remaining
}

// quick are stores, each over a handle of its own, whose locks end soon if their owners are gone.
func quick(t *testing.T, server *server, o store.LockedOptions) [2]store.Home {
	t.Helper()
	var stores [2]store.Home
	for i := range stores {
		s, err := store.NewLocked(server.locks(t), o)
		if err != nil {
			t.Fatal(err)
		}
		stores[i] = s
	}
	return stores
}

// TestServerKilled kills the server again and again while callers take the permits of a limit, one by one and together with one
// of another limit, and starts it again. What was granted stays taken, never more is granted than is allowed, and of two limits
// that are charged together both are or none.
func TestServerKilled(t *testing.T) {
	server := disk(t)
	stores := quick(t, server, store.LockedOptions{Lease: 300 * time.Millisecond, Skew: time.Millisecond})
	const most, kills = 300, 3
	one, first, second := charge("one", "k", most), charge("two", "a", most), charge("two", "b", 2*most)
	ones := startLoad(t, 8, func(caller int, d []weir.Decision) error {
		return store.Take(context.Background(), stores[caller%2], []store.Charge{one}, d[:1])
	})
	twos := startLoad(t, 8, func(caller int, d []weir.Decision) error {
		return store.Take(context.Background(), stores[caller%2], []store.Charge{first, second}, d)
	})
	for i := range int64(kills) {
		until(t, "permits are granted", func() bool { return ones.granted.Load() > 60*i+30 && twos.granted.Load() > 20*i+10 })
		if err := server.kill(); err != nil {
			t.Fatal(err)
		}
		failed, failedTwos := ones.failed.Load(), twos.failed.Load()
		until(t, "calls fail", func() bool { return ones.failed.Load() > failed+8 && twos.failed.Load() > failedTwos+8 })
		if err := server.start(); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "nothing is left", func() bool { return ones.refused.Load() > 0 && twos.refused.Load() > 0 })
	ones.stop()
	twos.stop()
	t.Logf("admitted %d one by one and %d together of %d allowed, with the server killed %d times; %d and %d calls failed",
		ones.granted.Load(), twos.granted.Load(), most, kills, ones.failed.Load(), twos.failed.Load())
	for _, c := range []struct {
		load *load
		c    store.Charge
	}{{ones, one}, {twos, first}, {twos, second}} {
		n := taken(t, server, c.c)
		if n != most || c.load.granted.Load() > most {
			t.Errorf("%s: %d were granted, %d are taken, allowed are %d", c.c.Key, c.load.granted.Load(), n, most)
		}
		// A call that failed may have taken a permit: one for each caller and kill, as the rest did not reach the server.
		if lost := n - c.load.granted.Load(); lost > 8*kills {
			t.Errorf("%s: %d are taken that no call was granted", c.c.Key, lost)
		}
	}
}

// TestServerStopped freezes the server under load: every call returns nevertheless, with the error that the store is
// unavailable.
func TestServerStopped(t *testing.T) {
	server := disk(t)
	const wait, most = 200 * time.Millisecond, 100_000
	stores := quick(t, server, store.LockedOptions{Lease: 400 * time.Millisecond, Wait: wait})
	keys := [...]string{"a", "b", "c", "d"}
	l := startLoad(t, 16, func(caller int, d []weir.Decision) error {
		return store.Take(context.Background(), stores[caller%2], []store.Charge{charge("p", keys[caller/4], most)}, d[:1])
	})
	until(t, "permits are granted", func() bool { return l.granted.Load() > 100 })
	thaw, err := server.freeze()
	if err != nil {
		t.Fatal(err)
	}
	l.slowest.Store(0)
	granted, failed, frozen := l.granted.Load(), l.failed.Load(), time.Now()
	until(t, "each caller has failed", func() bool { return l.failed.Load() > failed+32 && time.Since(frozen) > 3*wait })
	slowest, after := time.Duration(l.slowest.Load()), l.granted.Load()-granted
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := store.Take(ctx, stores[0], []store.Charge{charge("p", "e", most)}, make([]weir.Decision, 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call whose context ends: %v", err)
	}
	took := time.Since(began)
	if err := thaw(); err != nil {
		t.Fatal(err)
	}
	thawed, before := time.Now(), l.granted.Load()
	until(t, "permits are granted again", func() bool { return l.granted.Load() > before+100 })
	back := time.Since(thawed)
	l.stop()
	sum := int64(0)
	for _, key := range keys {
		sum += taken(t, server, charge("p", key, most))
	}
	t.Logf("granted %d, taken %d, failed %d; of a stopped server the slowest call took %v of %v, one with a deadline of 50ms %v; back after %v",
		l.granted.Load(), sum, l.failed.Load(), slowest, wait, took, back)
	if after > 16 {
		t.Errorf("%d were granted by a server that did not run", after)
	}
	if sum < l.granted.Load() || sum > l.granted.Load()+l.failed.Load() {
		t.Errorf("%d were granted, %d are taken, %d calls failed", l.granted.Load(), sum, l.failed.Load())
	}
}

// TestConnectionsCut has an administrator end all connections, again and again.
func TestConnectionsCut(t *testing.T) {
	const most, cuts = 100_000, 20
	empty(t)
	stores := quick(t, shared, store.LockedOptions{Lease: 100 * time.Millisecond})
	c := charge("cut "+t.Name(), "k", most)
	l := startLoad(t, 16, func(caller int, d []weir.Decision) error {
		return store.Take(context.Background(), stores[caller%2], []store.Charge{c}, d[:1])
	})
	for i := range int64(cuts) {
		until(t, "permits are granted", func() bool { return l.granted.Load() > 30*i })
		_, err := shared.admin.ExecContext(context.Background(), `
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`)
		if err != nil {
			t.Fatal(err)
		}
	}
	until(t, "permits are granted", func() bool { return l.granted.Load() > 30*cuts })
	l.stop()
	n := taken(t, shared, c)
	t.Logf("granted %d, taken %d, failed %d in %d cuts; the slowest took %v",
		l.granted.Load(), n, l.failed.Load(), cuts, time.Duration(l.slowest.Load()))
	if n < l.granted.Load() || n > l.granted.Load()+l.failed.Load() {
		t.Errorf("%d were granted, %d are taken, %d calls failed", l.granted.Load(), n, l.failed.Load())
	}
}

// TestOwnerDies leaves a lock behind: others go on when its lease has passed, by the clock of the database, and not before.
func TestOwnerDies(t *testing.T) {
	locks, ctx := shared.locks(t), context.Background()
	empty(t)
	c := charge("dead", "k", 10)
	const name, lease = "4:dead:k", 250 * time.Millisecond
	s := newStore(t, locks, nil)
	began := time.Now()
	if _, err := locks.LockAndGet(ctx, name, "dead", lease); err != nil {
		t.Fatal(err)
	}
	d := make([]weir.Decision, 1)
	if err := store.Take(ctx, s, []store.Charge{c}, d); err != nil || d[0].Remaining != 9 {
		t.Errorf("%+v, %v", d[0], err)
	}
	if passed := time.Since(began); passed < lease-time.Millisecond {
		t.Errorf("the lease of %v has passed after %v", lease, passed)
	}
	if err := locks.SetAndUnlock(ctx, name, "dead", []byte("x"), time.Hour); !errors.Is(err, store.ErrNotOwner) {
		t.Errorf("the dead wrote: %v", err)
	}
	if _, err := locks.LockAndGet(ctx, name, "slow", time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := locks.SetAndUnlock(ctx, name, "dead", nil, 0); !errors.Is(err, store.ErrNotOwner) {
		t.Errorf("the dead deleted what another has locked: %v", err)
	}
	age(t, name, "61 minutes")
	if err := locks.SetAndUnlock(ctx, name, "slow", nil, 0); !errors.Is(err, store.ErrNotOwner) {
		t.Errorf("the slow deleted after its lease: %v", err)
	}
	if err := locks.SetAndUnlock(ctx, name, "slow", []byte("x"), time.Hour); !errors.Is(err, store.ErrNotOwner) {
		t.Errorf("the slow wrote after its lease: %v", err)
	}
	if err := locks.Unlock(ctx, name, "slow"); !errors.Is(err, store.ErrNotOwner) {
		t.Errorf("the slow unlocked after its lease: %v", err)
	}
	if err := store.Take(ctx, s, []store.Charge{c}, d); err != nil || d[0].Remaining != 8 {
		t.Errorf("%+v, %v", d[0], err)
	}
}

// TestContention has 64 callers of two handles ask for more than there is: as many are allowed as the limit permits.
func TestContention(t *testing.T) {
	const callers, each, most = 64, 10, 300
	empty(t)
	stores := [2]store.Home{newStore(t, shared.locks(t), nil), newStore(t, shared.locks(t), nil)}
	c := charge("contention", "k", most)
	var admitted atomic.Int64
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			d := make([]weir.Decision, 1)
			for range each {
				if err := store.Take(context.Background(), stores[caller%2], []store.Charge{c}, d); err != nil {
					t.Error(err)
					return
				}
				if d[0].Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	all.Wait()
	n := taken(t, shared, c)
	t.Logf("admitted %d of %d, allowed %d", admitted.Load(), callers*each, most)
	if admitted.Load() != most || n != most {
		t.Errorf("%d were admitted, %d are taken, allowed are %d", admitted.Load(), n, most)
	}
}
