package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/store"
)

// rounds is how often the tests of faults repeat what they do: once, or as often as WEIR_ROUNDS says.
func rounds(tb testing.TB) int {
	tb.Helper()
	n := 1
	if text := os.Getenv("WEIR_ROUNDS"); text != "" {
		if _, err := fmt.Sscan(text, &n); err != nil || n < 1 {
			tb.Fatalf("WEIR_ROUNDS: %q", text)
		}
	}
	return n
}

// yearly is a limit whose permits do not come back while a test runs.
func yearly(n int64) weir.Limit { return weir.TokenBucket(weir.Per(n, 3000*24*time.Hour), 0) }

// year is a calendar whose year does not begin while a test runs.
func year() algo.Calendar {
	return algo.Calendar{Unit: algo.CalendarYear, Month: 1 + (time.Now().UTC().Month()+5)%12}
}

// endless are limits of n permits, one of every algorithm, that do not come back while a test runs.
func endless(n int64) []weir.Limit {
	// The windows have begun long ago, and end after the test: a year may end at any time, the others are of 10 years.
	const decade = 3652 * 24 * time.Hour
	return []weir.Limit{
		yearly(n),
		weir.FixedWindow(weir.Per(n, decade)),
		weir.SlidingWindow(weir.Per(n, decade), 0),
		weir.SlidingCounter(weir.Per(n, decade)),
	}
}

// faultCharges are keys of limits that are used up soon and of some that are not, so that a fault meets both.
func faultCharges(small, large int64) []store.Charge {
	var charges []store.Charge
	for _, n := range []int64{small, large} {
		for _, l := range endless(n) {
			charges = append(charges, store.Charge{
				Policy: fmt.Sprint(l.Algorithm(), n), Key: fmt.Sprint("key", len(charges)), Limit: l, N: 1,
			})
		}
	}
	return charges
}

// load has callers take permits until it is stopped, and counts what happened.
type load struct {
	tb      testing.TB
	stores  []store.Home
	charges []store.Charge
	// requests are the places in charges of what is asked for together.
	requests [][]int
	// reserving has one call of so many reserve and commit instead of take; 0 is none.
	reserving int
	pause     time.Duration
	timeout   time.Duration // that of the callers' contexts, if it is not 0

	granted, refused, failed, unsettled atomic.Int64
	admitted                            []atomic.Int64 // permits of each charge
	served, missed                      []atomic.Int64 // calls that each store has answered, and that have failed
	slowest                             atomic.Int64
	last, gap                           atomic.Int64
	crowd                               atomic.Int64 // the most that were in flight in a redis.Store
	began                               time.Time
	stopped                             atomic.Bool
	wait                                sync.WaitGroup
}

// newLoad is a load of charges that are taken one at a time, or together as requests says.
func newLoad(tb testing.TB, charges []store.Charge, stores ...store.Home) *load {
	l := &load{tb: tb, stores: stores, charges: charges, pause: 2 * time.Millisecond, began: time.Now()}
	l.admitted = make([]atomic.Int64, len(charges))
	l.served, l.missed = make([]atomic.Int64, len(stores)), make([]atomic.Int64, len(stores))
	for i := range charges {
		l.requests = append(l.requests, []int{i})
	}
	return l
}

// startLoad is a load of one charge without pauses.
func startLoad(tb testing.TB, s *Store, c store.Charge, callers int) *load {
	l := newLoad(tb, []store.Charge{c}, s)
	l.pause = 0
	return l.start(callers)
}

// start starts callers, which use the stores in turn.
func (l *load) start(callers int) *load {
	for i := range callers {
		s := l.stores[i%len(l.stores)]
		l.wait.Go(func() {
			d := make([]weir.Decision, len(l.charges))
			for n := 1; !l.stopped.Load(); n++ {
				request := l.requests[rand.IntN(len(l.requests))]
				failed := l.call(s, request, d[:len(request)], l.reserving > 0 && n%l.reserving == 0)
				if failed {
					l.missed[i%len(l.stores)].Add(1)
				} else {
					l.served[i%len(l.stores)].Add(1)
				}
				if r, ok := s.(*Store); ok {
					highest(&l.crowd, r.dispatch.inFlight.Load())
				}
				if pause := l.pause; failed { // a caller does something with the error
					time.Sleep(max(pause, time.Millisecond))
				} else if pause > 0 {
					time.Sleep(pause)
				}
			}
		})
	}
	return l
}

func highest(of *atomic.Int64, v int64) {
	for {
		if was := of.Load(); v <= was || of.CompareAndSwap(was, v) {
			return
		}
	}
}

func (l *load) call(s store.Home, request []int, d []weir.Decision, reserve bool) (failed bool) {
	charges := make([]store.Charge, len(request))
	for i, at := range request {
		charges[i] = l.charges[at]
	}
	ctx := context.Background()
	if l.timeout > 0 {
		c, cancel := context.WithTimeout(ctx, l.timeout)
		defer cancel()
		ctx = c
	}
	began := time.Now()
	var err error
	var r store.Hold
	if reserve {
		r, err = store.Reserve(ctx, s, charges, d, 2*time.Second)
	} else {
		err = store.Take(ctx, s, charges, d)
	}
	now := time.Now()
	highest(&l.slowest, int64(now.Sub(began)))
	allowed := err == nil
	unavailable := errors.Is(err, store.ErrUnavailable)
	for i := range d {
		allowed = allowed && d[i].Allowed
		unavailable = unavailable || d[i].Reason == weir.ReasonUnavailable // that is what a fleet says
		if err != nil && d[i] != (weir.Decision{}) {
			l.tb.Errorf("a decision with an error: %+v, %v", d[i], err)
		}
	}
	switch {
	case unavailable:
		l.failed.Add(1)
		clear(d)
		return true
	case err != nil:
		l.tb.Error(err)
		l.stopped.Store(true)
		return true
	case !allowed:
		l.refused.Add(1)
	case reserve && store.Commit(ctx, s, r, ones(len(request))) != nil:
		l.unsettled.Add(1) // it is canceled in the end, or was committed: the request was not served
	default:
		l.granted.Add(1)
		for _, at := range request {
			l.admitted[at].Add(1)
		}
	}
	clear(d)
	at := int64(now.Sub(l.began))
	if was := l.last.Swap(at); was > 0 {
		highest(&l.gap, at-was)
	}
	return false
}

// followed waits until the replicas have what has been allowed until now, and returns how many permits that is.
func (l *load) followed(master *server, replicas ...*server) int64 {
	l.tb.Helper()
	admitted := l.admittedSum()
	offset := func(s *server, name string) int64 {
		n, err := strconv.ParseInt(s.info("replication", name), 10, 64)
		if err != nil {
			l.tb.Fatal(err)
		}
		return n
	}
	written := offset(master, "master_repl_offset")
	for _, s := range replicas {
		until(l.tb, "the replica has what was written", func() bool { return offset(s, "slave_repl_offset") >= written })
	}
	return admitted
}

func ones(n int) []int64 {
	list := make([]int64, n)
	for i := range list {
		list[i] = 1
	}
	return list
}

func (l *load) stop() {
	l.stopped.Store(true)
	l.wait.Wait()
}

// more waits until n more calls have been answered.
func (l *load) more(n int64) {
	l.tb.Helper()
	goal := l.answers() + n
	until(l.tb, fmt.Sprint(n, " calls are answered"), func() bool { return l.answers() >= goal })
}

// recovery is how long it takes until each of the stores has answered a call that was made from now on.
func (l *load) recovery(stores ...int) time.Duration {
	l.tb.Helper()
	began := time.Now()
	l.each("are answered", l.served, 20, stores) // more than can have been on the way
	return time.Since(began)
}

// each waits until the counters of the stores have grown by n.
func (l *load) each(what string, of []atomic.Int64, n int64, stores []int) {
	l.tb.Helper()
	goals := make([]int64, len(of))
	for i := range goals {
		goals[i] = of[i].Load() + n
	}
	until(l.tb, fmt.Sprint("calls of all of ", stores, " ", what), func() bool {
		for _, i := range stores {
			if of[i].Load() < goals[i] {
				return false
			}
		}
		return true
	})
}

// fail waits until calls have failed, each caller's at least once. A server that does not respond makes them fail by their
// timeouts alone.
func (l *load) fail(callers int64) {
	l.tb.Helper()
	goal := l.failed.Load() + 2*callers
	until(l.tb, "calls fail", func() bool { return l.failed.Load() >= goal })
}

func (l *load) answers() int64 { return l.granted.Load() + l.refused.Load() }

// goOn lets the load run for a while.
func (l *load) goOn(d time.Duration) {
	end := time.Now().Add(d)
	until(l.tb, "time has passed", func() bool { return time.Now().After(end) })
}

// tally is what came of a load.
type tally struct {
	admitted, allowed, above int64
	// taken is what the states say was taken while the load ran.
	taken int64
	// most is how often the limit of a key was allowed at the worst.
	most float64
	// each is what was allowed of each charge.
	each []int64
}

// drain takes what is left of every limit, and then compares what was allowed with what the limit permits. It is stopped before.
func (l *load) drain(s store.Home) tally {
	l.tb.Helper()
	var sum tally
	d := make([]weir.Decision, 1)
	for i := range l.charges {
		c := []store.Charge{l.charges[i]}
		until(l.tb, "what is left is known", func() bool {
			state, err := store.Inspect(context.Background(), s, c[0])
			return err == nil && state.Reservations == 0 && store.Peek(context.Background(), s, c, d) == nil
		})
		most := d[0].Limit
		left := d[0].Remaining
		admitted := l.admitted[i].Load()
		sum.taken += most - left
		if c[0].N = left; left > 0 {
			if err := store.Take(context.Background(), s, c, d); err != nil {
				l.tb.Fatal(err)
			}
			if !d[0].Allowed {
				l.tb.Errorf("%+v, but %d were left", d[0], left)
			}
			admitted += left
		}
		c[0].N = 1
		for { // what a process gives back late may come in between
			if err := store.Take(context.Background(), s, c, d); err != nil {
				l.tb.Fatal(err)
			}
			if !d[0].Allowed || admitted > 4*most { // which is more than any bound
				break
			}
			admitted++
		}
		sum.each = append(sum.each, admitted)
		sum.admitted += admitted
		sum.allowed += most
		sum.above += max(0, admitted-most)
		sum.most = max(sum.most, float64(admitted)/float64(most))
	}
	return sum
}

// report logs what came of a load in a line.
func (l *load) report(what string, sum tally) {
	l.tb.Helper()
	l.tb.Logf("%s: admitted %d, allowed %d, above the limit %d (at most %.3f of a limit); calls granted %d, refused %d, failed %d, "+
		"unsettled %d; without service %v, slowest call %v, in flight at most %d",
		what, sum.admitted, sum.allowed, sum.above, sum.most, l.granted.Load(), l.refused.Load(), l.failed.Load(),
		l.unsettled.Load(), time.Duration(l.gap.Load()).Round(time.Millisecond),
		time.Duration(l.slowest.Load()).Round(time.Millisecond), l.crowd.Load())
}

// patience is how long anything may take that must come about: sentinels do nothing for 30 s once the machine has stood still.
const patience = 3 * time.Minute

// until polls a condition.
func until(tb testing.TB, what string, f func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(patience); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// admittedSum is how many permits were allowed under load.
func (l *load) admittedSum() int64 {
	sum := int64(0)
	for i := range l.admitted {
		sum += l.admitted[i].Load()
	}
	return sum
}
