package store_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/store"
)

// optimisticLimits are one of each algorithm.
func optimisticLimits() []weir.Limit {
	return []weir.Limit{
		weir.TokenBucket(weir.PerSecond(100), 50),
		weir.TokenBucket(weir.PerSecond(3), 20),
		weir.FixedWindow(weir.Per(60, 2*time.Second)),
		weir.SlidingWindow(weir.Per(60, 2*time.Second), 8),
		weir.SlidingCounter(weir.Per(60, 2*time.Second)),
		weir.CalendarWindow(60, algo.Calendar{Unit: algo.CalendarHour}),
	}
}

// admission is that of some permits.
type admission struct {
	at time.Time
	n  int64
}

// crowd is a number of nodes that share a limit and are asked by callers for more than it.
type crowd struct {
	limit    weir.Limit
	nodes    int
	callers  int // of each node
	pause    time.Duration
	most     int64 // permits in a request
	last     time.Duration
	drift    int
	failures bool // calls fail now and then
	idle     bool // all rest at the same time, until all permits are back
}

// run lets the crowd loose in a bubble and returns what was allowed, in order.
func (c crowd) run(t *testing.T) (admitted []admission) {
	t.Helper()
	shared := newMemory(t, store.MemoryOptions{})
	var lock sync.Mutex
	var all sync.WaitGroup
	var nodes []*store.Optimistic
	random := func(seed int, most time.Duration) func() time.Duration {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		var one sync.Mutex
		return func() time.Duration {
			one.Lock()
			defer one.Unlock()
			return time.Duration(r.Int64N(int64(most)))
		}
	}
	alive := t.Context()
	ctx, cancel := context.WithTimeout(alive, c.last)
	defer cancel()
	for i := range c.nodes {
		d, delay := &distant{Home: shared}, random(i, 30*time.Millisecond)
		d.delay.Store(&delay)
		s := newOptimistic(t, d, store.OptimisticOptions{Drift: c.drift})
		nodes = append(nodes, s)
		if c.failures {
			next := random(100+i, time.Second)
			all.Go(func() {
				for rest(ctx, next()) == nil {
					cut := []func(bool){d.down.Store, d.deaf.Store}[next()%2]
					cut(true)
					_ = rest(ctx, next()/2)
					cut(false)
				}
			})
		}
		for j := range c.callers {
			next := random(1000*i+j, c.pause)
			all.Go(func() {
				for calls := int64(0); rest(ctx, next()) == nil; calls++ {
					if c.idle && calls%50 == 49 {
						_ = rest(ctx, time.Until(time.Now().Truncate(3*time.Second).Add(3*time.Second)))
					}
					if calls%200 == 199 { // views get old, and permits come back
						_ = rest(ctx, 20*next())
					}
					n := 1 + calls%c.most
					g := &granted{}
					decisions := make([]weir.Decision, 1)
					err := store.Take(context.WithValue(alive, grantedKey{}, g), s,
						[]store.Charge{{Policy: "p", Limit: c.limit, N: n}}, decisions)
					if err != nil && !c.failures {
						t.Error(err)
					}
					if err != nil || !decisions[0].Allowed {
						continue
					}
					if g.at.IsZero() { // it was granted from memory just now
						g.at = time.Now()
					}
					lock.Lock()
					admitted = append(admitted, admission{g.at, n})
					lock.Unlock()
				}
			})
		}
	}
	all.Wait()
	for _, s := range nodes {
		if err := s.Close(); err != nil && !c.failures {
			t.Error(err)
		}
	}
	slices.SortFunc(admitted, func(a, b admission) int { return a.at.Compare(b.at) })
	return admitted
}

// above is by how much the permits that were allowed exceed the limit, on any interval.
func above(l weir.Limit, admitted []admission) (most int64) {
	most = -l.Rate().Permits - l.Permits()
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		for i := range admitted {
			sum := int64(0)
			for _, a := range admitted[i:] {
				sum += a.n
				t := int64(a.at.Sub(admitted[i].at))
				most = max(most, sum-l.Permits()-l.Rate().Permits*t/int64(l.Rate().Period))
			}
		}
	case weir.AlgorithmCalendarWindow:
		most = mostIn(admitted, time.Hour, 1) - l.Permits()
	case weir.AlgorithmSlidingWindow:
		most = mostIn(admitted, l.Rate().Period/time.Duration(l.Segments()), l.Segments()) - l.Rate().Permits
	case weir.AlgorithmSlidingCounter:
		most = max(mostIn(admitted, l.Rate().Period, 1), mostEstimated(admitted, l.Rate().Period)) - l.Rate().Permits
	default:
		most = mostIn(admitted, l.Rate().Period, 1) - l.Rate().Permits
	}
	return most
}

// mostIn is the most that was allowed in so many segments that follow each other.
func mostIn(admitted []admission, segment time.Duration, segments int) (most int64) {
	sums := make(map[int64]int64)
	for _, a := range admitted {
		at := a.at.UnixNano() / int64(segment)
		for i := range int64(segments) {
			sums[at+i] += a.n
			most = max(most, sums[at+i])
		}
	}
	return most
}

// mostEstimated is the highest estimate, rounded down, that a sliding counter has which hears of all at once.
func mostEstimated(admitted []admission, window time.Duration) (most int64) {
	sums := make(map[int64]int64)
	for _, a := range admitted {
		at, passed := a.at.UnixNano()/int64(window), a.at.UnixNano()%int64(window)
		sums[at] += a.n
		most = max(most, sums[at]+sums[at-1]*(int64(window)-passed)/int64(window))
	}
	return most
}

func total(admitted []admission) (n int64) {
	for _, a := range admitted {
		n += a.n
	}
	return n
}

// TestOptimisticBound has nodes far from their store ask for much more than the limit, and compares what was allowed on every
// interval with what the documentation of Optimistic says.
func TestOptimisticBound(t *testing.T) {
	for _, l := range optimisticLimits() {
		for _, c := range []crowd{
			{nodes: 1, callers: 4, pause: 10 * time.Millisecond, most: 1},
			{nodes: 1, callers: 6, pause: 15 * time.Millisecond, most: 9},
			{nodes: 1, callers: 4, pause: 10 * time.Millisecond, most: 9, failures: true},
			{nodes: 4, callers: 3, pause: 15 * time.Millisecond, most: 1},
			{nodes: 4, callers: 3, pause: 20 * time.Millisecond, most: 9},
			{nodes: 4, callers: 3, pause: 15 * time.Millisecond, most: 3, failures: true},
			{nodes: 3, callers: 3, pause: 15 * time.Millisecond, most: 2, drift: 50},
			{nodes: 10, callers: 1, pause: 15 * time.Millisecond, most: 2},
		} {
			c.limit, c.last = l, 6*time.Second
			synctest.Test(t, func(t *testing.T) {
				admitted := c.run(t)
				drift := store.OptimisticOptions{Drift: c.drift}.DriftOf(l)
				seen, bound := above(l, admitted), int64(c.nodes-1)*drift
				t.Logf("%v, %d nodes, drift %d, failures %v: admitted %d; above the limit %d, bound %d",
					l, c.nodes, drift, c.failures, total(admitted), seen, bound)
				if seen > bound {
					t.Errorf("exceeded by %d, which is more than %d", seen, bound)
				}
				if total(admitted) < 20 {
					t.Errorf("only %d permits", total(admitted))
				}
			})
		}
	}
}
