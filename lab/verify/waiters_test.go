package verify_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
)

// TestThousandWaiters has 1000 callers wait on 1000/s and cancels every second of them after 100 ms: the others move
// up, are served in strict order, and are done after 0.55 s instead of the whole second.
func TestThousandWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 1000
		b := must(weir.New(weir.TokenBucket(weir.PerSecond(1000), 1), weir.Options{QueueLimit: callers}))
		b.Allow()
		start := time.Now()
		impatient, cancel := context.WithCancel(t.Context())
		var (
			mu       sync.Mutex
			order    []int
			last     time.Duration
			canceled int
		)
		for i := range callers {
			ctx := t.Context()
			if i%2 == 1 {
				ctx = impatient
			}
			go func() {
				l, err := b.Acquire(ctx, 1)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					canceled++
				case l.Allowed():
					order = append(order, i)
					last = time.Since(start)
				default:
					t.Errorf("caller %d refused: %+v", i, l.Decision())
				}
			}()
			synctest.Wait() // one after the other, so that the order is known
		}
		time.Sleep(100*time.Millisecond + 1)
		cancel()
		synctest.Wait()
		if s := b.Stats(); s.Waiters != callers-100-canceled || canceled != 450 {
			t.Fatalf("after 100 ms %d are canceled: %+v", canceled, s)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for i := 1; i < len(order); i++ {
			if order[i] <= order[i-1] {
				t.Fatalf("caller %d was served after caller %d", order[i], order[i-1])
			}
		}
		if len(order) != 550 || last != 550*time.Millisecond {
			t.Errorf("%d served, the last after %v; want 550 after 550ms", len(order), last)
		}
	})
}

// TestNoWaiterIsLost has callers of all kinds arrive, give up and finish at random under real concurrency. In the end every call
// has returned, and every permit is back: a lost wake-up would leave a caller waiting for ever.
func TestNoWaiterIsLost(t *testing.T) {
	t.Parallel()
	for _, order := range []bool{false, true} {
		t.Run(strconv.FormatBool(order), func(t *testing.T) {
			t.Parallel()
			c := must(weir.NewConcurrency(5, weir.Options{QueueLimit: 200, NewestFirst: order}))
			b := must(weir.New(weir.TokenBucket(weir.PerSecond(200_000), 5), weir.Options{
				QueueLimit: 200, NewestFirst: order,
			}))
			chain := must(weir.NewChain(c, b))
			limiters := []weir.Acquirer{c, b, chain}
			var callers sync.WaitGroup
			for worker := range 32 {
				rng := rand.New(rand.NewPCG(1, uint64(worker)))
				callers.Go(func() {
					for range 300 {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.Int64N(2_000_000)))
						l, _ := limiters[rng.IntN(len(limiters))].Reserve(ctx, rng.Int64N(5))
						if rng.IntN(2) == 0 {
							l.Cancel()
						}
						l.Commit(rng.Int64N(8))
						cancel()
					}
				})
			}
			callers.Wait()
			for _, l := range limiters {
				if s := l.Stats(); s.Queued != 0 || s.Waiters != 0 {
					t.Errorf("%T: %+v", l, s)
				}
			}
			if s := c.Stats(); s.Remaining != 5 {
				t.Errorf("permits are missing: %+v", s)
			}
		})
	}
}

// TestCloseAnswersEverybody closes limiters while callers come and wait.
func TestCloseAnswersEverybody(t *testing.T) {
	for range 50 {
		b := must(weir.New(weir.TokenBucket(weir.PerHour(1), 1), weir.Options{QueueLimit: 100}))
		c := must(weir.NewConcurrency(1, weir.Options{QueueLimit: 100}))
		chain := must(weir.NewChain(b, c))
		var callers sync.WaitGroup
		for _, l := range []weir.Acquirer{b, c, chain} {
			for range 8 {
				callers.Go(func() {
					for {
						lease, err := l.Acquire(t.Context(), 1)
						lease.Release()
						if err != nil {
							if !errors.Is(err, weir.ErrClosed) {
								t.Errorf("%T: %v", l, err)
							}
							return
						}
					}
				})
			}
		}
		for _, l := range []closable{chain, b, c} {
			callers.Go(func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
	}
}
