package verify_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/manualclock"
)

const mostLimits = 65_534

// TestKeyedLimitsRetireInUse has limits forgotten, and their tags given to others, while keys begin to use them: no key is
// ever told another limit than its own, is granted more than that holds, or is refused for lack of room.
func TestKeyedLimitsRetireInUse(t *testing.T) {
	const limits = 5000
	steps := 30_000
	if race.Enabled || testing.Short() {
		steps = 4000
	}
	var clock manualclock.Clock // stands still
	type key struct{ id, limit int64 }
	k := must(weir.NewKeyedFunc(weir.TokenBucket(weir.PerDay(1), 3), weir.KeyedOptions{Clock: &clock}, func(of key) weir.Limit {
		return weir.TokenBucket(weir.Per(1+of.limit%7, time.Minute), 3+of.limit)
	}))
	defer func() { _ = k.Close() }()
	var shared atomic.Int64
	var all sync.WaitGroup
	for worker := range int64(4) {
		rng := rand.New(rand.NewPCG(uint64(worker), 5))
		all.Go(func() {
			for step := range steps {
				of := key{worker<<32 + int64(step), rng.Int64N(limits)}
				if step%2 == 0 {
					of = key{-1, 40 + shared.Load()%50} // that of others, a short time after it was made
				}
				l := k.TryReserve(of, 2)
				if d := l.Decision(); d.Limit != 3+of.limit || !d.Allowed && d.Reason != weir.ReasonLimited {
					t.Errorf("%+v is told %+v", of, d)
					return
				}
				l.Cancel()
				if of.id >= 0 {
					if d := k.Peek(of, 1); d.Remaining != 3+of.limit {
						t.Errorf("%+v has not got back what was canceled: %+v", of, d)
					}
				}
				k.Reset(of)
				shared.Add(1)
			}
		})
	}
	all.Wait()
}

// TestKeyedCommitAfterLimitRetired commits more than was reserved for a key that was forgotten since, under a limit that was
// forgotten too: it is charged all the same.
func TestKeyedCommitAfterLimitRetired(t *testing.T) {
	var clock manualclock.Clock
	k, limit := chosen(t, weir.TokenBucket(weir.PerSecond(1), 10), &clock)
	mine := weir.TokenBucket(weir.PerSecond(1), 5)
	limit(mine)
	l := k.TryReserve(0, 1)
	k.Reset(0)
	for n := range int64(3000) {
		limit(weir.TokenBucket(weir.PerSecond(1), 20+n))
		k.Peek(1, 1)
	}
	l.Commit(6)
	limit(mine)
	if d, s := k.Peek(0, 1), k.Stats(); d.Remaining != 0 || d.RetryAfter != time.Second || s.Forgiven != 0 {
		t.Errorf("after 5 permits more than were reserved: %+v %+v", d, s)
	}
}
