package redis

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/store"
)

// TestClientsClocksApart has three clients whose clocks are an hour apart ask for the same permits, of calendars too, whose windows
// clients choose by what they believe the server's clock to show. The permits are those of one window of the server's clock.
func TestClientsClocksApart(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	const most = 200
	limits := endless(most)
	for _, unit := range []algo.CalendarUnit{algo.CalendarMinute, algo.CalendarHour, algo.CalendarDay, algo.CalendarMonth} {
		limits = append(limits, weir.CalendarWindow(most, algo.Calendar{Unit: unit}))
	}
	now := time.Date(2031, time.March, 1, 0, 30, 0, 0, time.UTC) // an hour earlier, it was another month
	var clients []*Store
	for i := range 3 {
		s := server.open(Options{})
		s.virtual.Store(now.UnixMicro())
		s.ahead.Store(time.Until(now.Add(time.Duration(i-1) * time.Hour)).Microseconds())
		clients = append(clients, s)
	}
	for _, l := range limits {
		c := []store.Charge{{Policy: l.String(), Key: "k", Limit: l, N: 1}}
		var admitted, others atomic.Int64
		var wait sync.WaitGroup
		for i := range 12 {
			wait.Go(func() {
				d := make([]weir.Decision, 1)
				for range 50 {
					clients[i%3].ahead.Store(time.Until(now.Add(time.Duration(i%3-1) * time.Hour)).Microseconds()) // it has learnt
					if err := store.Take(context.Background(), clients[i%3], c, d); err != nil {
						t.Error(err)
						return
					}
					if d[0].Allowed {
						admitted.Add(1)
					} else {
						others.Add(1)
					}
				}
			})
		}
		wait.Wait()
		t.Logf("%v: admitted %d, allowed %d, refused %d", l, admitted.Load(), most, others.Load())
		if admitted.Load() != most {
			t.Errorf("%v: admitted %d, want %d", l, admitted.Load(), most)
		}
	}
}

// TestClockOfServerJumps moves the server's clock at random, by a few seconds and by hours, forwards and backwards, and callers
// ask for permits in between: no more are granted than the burst and what comes back in the time by which the clock went
// forwards, and that is every time it is not merely catching up.
func TestClockOfServerJumps(t *testing.T) {
	t.Parallel()
	const burst = 50
	for round := range rounds(t) {
		s := startServer(t).open(Options{})
		clock := time.Now().UnixMicro()
		s.virtual.Store(clock)
		random := rand.New(rand.NewPCG(1, uint64(round)))
		l := newLoad(t, []store.Charge{
			{Policy: "bucket", Key: "k", Limit: weir.TokenBucket(weir.PerSecond(1), burst), N: 1},
			{Policy: "window", Key: "k", Limit: weir.SlidingWindow(weir.Per(burst, time.Minute), 0), N: 1},
		}, s)
		l.pause = 0
		var forwards, regained, passed time.Duration
		const jumps = 100
		for range jumps {
			jump := time.Duration(random.IntN(20_000_000)-10_000_000) * time.Microsecond
			if random.IntN(5) == 0 {
				jump *= 1000 // hours
			}
			if jump > 0 { // the bucket is full after 50 s, and the window is empty after a minute
				forwards += jump
				regained += min(jump, burst*time.Second)
				passed += min(jump, time.Minute+6*time.Second)
			}
			clock += jump.Microseconds()
			s.virtual.Store(clock)
			l.stopped.Store(false)
			l.start(8).more(40)
			l.stop() // a call that is under way has the time of before, and a server has one clock
		}
		bucket, window := l.admitted[0].Load(), l.admitted[1].Load()
		mostOfBucket := burst + int64(regained/time.Second)
		mostOfWindow := burst * (1 + int64(passed/time.Minute))
		t.Logf("%d jumps, %v forwards: admitted of the bucket %d, allowed at most %d; of the window %d, allowed at most %d; %d refused, %d failed",
			jumps, forwards, bucket, mostOfBucket, window, mostOfWindow, l.refused.Load(), l.failed.Load())
		if bucket > mostOfBucket || window > mostOfWindow || bucket < burst || window < burst || l.failed.Load() > 0 {
			t.Errorf("admitted %d and %d", bucket, window)
		}
	}
}

// TestClocksOfServersApart has a replica take over whose clock is behind by some seconds, and another by an hour: what is taken
// stays so, and comes back by the clock of the new master.
func TestClocksOfServersApart(t *testing.T) {
	t.Parallel()
	for _, behind := range []time.Duration{5 * time.Second, time.Hour, -time.Hour} {
		master := startServer(t, "--repl-diskless-sync-delay", "0")
		s := master.open(Options{})
		now := time.Now().UnixMicro()
		s.virtual.Store(now)
		replica := startServer(t, "--repl-diskless-sync-delay", "0", "--replicaof", "127.0.0.1 "+master.address()[len("127.0.0.1:"):])
		c := []store.Charge{{Policy: "p", Key: "k", Limit: weir.TokenBucket(weir.Per(10, 100*time.Hour), 0), N: 1}}
		d := make([]weir.Decision, 1)
		admitted := 0
		take := func(s *Store) {
			t.Helper()
			if err := store.Take(context.Background(), s, c, d); err != nil {
				t.Fatal(err)
			}
			if d[0].Allowed {
				admitted++
			}
		}
		for range 7 {
			take(s)
		}
		until(t, "the replica has them", func() bool {
			return replica.info("replication", "master_link_status") == "up" &&
				replica.info("replication", "slave_repl_offset") == master.info("replication", "master_repl_offset")
		})
		master.kill()
		replica.ask("REPLICAOF", "NO", "ONE")
		s = replica.open(Options{})
		s.virtual.Store(now - behind.Microseconds())
		for range 20 {
			take(s)
		}
		t.Logf("the clock of the new master is behind by %v: admitted %d, allowed 10", behind, admitted)
		if admitted != 10 {
			t.Errorf("admitted %d, want 10", admitted)
		}
	}
}
