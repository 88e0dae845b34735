package verify_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/weirhq/weir"
)

// call is one operation on a limiter whose permits do not come back with time while the test lasts.
type call struct {
	op string
	n  int64
}

type answer struct {
	allowed   bool
	remaining int64
}

// model is a counter of available permits.
func model(limit int64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return limit },
		Step: func(state, input, output any) (bool, any) {
			available, in, out := state.(int64), input.(call), output.(answer)
			switch in.op {
			case "take":
				if !out.allowed {
					return available < in.n && out.remaining == available, available
				}
				return available >= in.n && out.remaining == available-in.n, available - in.n
			case "give":
				return true, min(limit, available+in.n)
			case "charge":
				return true, available - in.n
			default: // peek
				return out.allowed == (available >= max(in.n, 1)) && out.remaining == max(available, 0), available
			}
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	}
}

// recorder collects what the clients did, with the times at which each call began and ended.
type recorder struct {
	mu      sync.Mutex
	start   time.Time
	history []porcupine.Operation
}

func (r *recorder) do(client int, in call, f func() answer) {
	began := time.Since(r.start).Nanoseconds()
	out := f()
	ended := time.Since(r.start).Nanoseconds()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, porcupine.Operation{
		ClientId: client, Input: in, Output: out, Call: began, Return: ended,
	})
}

// TestLinearizable lets clients take, reserve, settle, refund and peek at once, and looks for an order in which one
// caller alone would have seen the same. Calls that go without the lock mix with calls that take it.
func TestLinearizable(t *testing.T) {
	const limit = 12
	limiters := map[string]func() weir.Limiter{
		"token bucket": func() weir.Limiter {
			return must(weir.NewTokenBucket(weir.TokenBucketOptions{Rate: weir.PerDay(1), Burst: limit}))
		},
		"token bucket under the lock": func() weir.Limiter {
			return must(weir.NewTokenBucket(weir.TokenBucketOptions{
				Rate: weir.Per(1, 24*time.Hour), Burst: limit, Clock: weir.NewManualClock(0),
			}))
		},
		"fixed window": func() weir.Limiter {
			return must(weir.NewFixedWindow(weir.FixedWindowOptions{Limit: limit, Window: 24 * time.Hour}))
		},
		"sliding window": func() weir.Limiter {
			return must(weir.NewSlidingWindow(weir.SlidingWindowOptions{Limit: limit, Window: 24 * time.Hour}))
		},
		"concurrency": func() weir.Limiter {
			return must(weir.NewConcurrency(weir.ConcurrencyOptions{Limit: limit}))
		},
		"chain": func() weir.Limiter {
			return must(weir.NewChain(
				must(weir.NewTokenBucket(weir.TokenBucketOptions{Rate: weir.PerDay(1), Burst: limit})),
				must(weir.NewConcurrency(weir.ConcurrencyOptions{Limit: limit + 1})),
			))
		},
	}
	rounds := 500
	if raceEnabled || testing.Short() {
		rounds = 100
	}
	for name, newLimiter := range limiters {
		t.Run(name, func(t *testing.T) {
			for round := range rounds {
				l := newLimiter()
				r := &recorder{start: time.Now()}
				var clients sync.WaitGroup
				for client := range 6 {
					rng := rand.New(rand.NewPCG(uint64(round), uint64(client)))
					clients.Go(func() { play(l, r, client, rng) })
				}
				clients.Wait()
				result, info := porcupine.CheckOperationsVerbose(model(limit), r.history, 30*time.Second)
				if result != porcupine.Ok {
					t.Fatalf("round %d: %v: %d operations: %v", round, result, len(r.history), info)
				}
			}
		})
	}
}

func play(l weir.Limiter, r *recorder, client int, rng *rand.Rand) {
	for range 14 {
		n := rng.Int64N(4) + 1
		switch rng.IntN(4) {
		case 0:
			r.do(client, call{"peek", n}, func() answer {
				d := l.Peek(n)
				return answer{d.Allowed, d.Remaining}
			})
		case 1:
			if b, ok := l.(*weir.TokenBucket); ok {
				r.do(client, call{"take", n}, func() answer {
					d := b.TryAcquire(n).Decision()
					return answer{d.Allowed, d.Remaining}
				})
				r.do(client, call{"give", 1}, func() answer { b.Refund(1); return answer{} })
				continue
			}
			fallthrough
		default:
			var lease weir.Lease
			r.do(client, call{"take", n}, func() answer {
				if rng.IntN(2) == 0 {
					lease, _ = l.Reserve(context.Background(), n)
				} else {
					lease = l.TryReserve(n)
				}
				return answer{lease.Allowed(), lease.Decision().Remaining}
			})
			if lease.Allowed() && rng.IntN(4) > 0 {
				r.do(client, call{"give", n}, func() answer {
					lease.Cancel()
					lease.Cancel()
					return answer{}
				})
			}
		}
	}
}
