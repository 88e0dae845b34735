package verify_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/manualclock"
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
			available, in, out := state.(int64), input.(call), output.(answer) //nolint:forcetypeassert // as Init and do made them
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

// recorder keeps what one client did, with the times at which each call began and ended.
type recorder struct {
	client  int
	start   time.Time
	history []porcupine.Operation
}

func (r *recorder) do(in call, f func() answer) {
	began := time.Since(r.start).Nanoseconds()
	out := f()
	ended := time.Since(r.start).Nanoseconds()
	r.history = append(r.history, porcupine.Operation{
		ClientId: r.client, Input: in, Output: out, Call: began, Return: ended,
	})
}

// unit is how many permits a client takes for each that the model counts. The rest hides what a cancellation
// need not give back: the fraction of a permit that was regained since it was taken.
const unit = 1000

func modeledPermits(permits int64) int64 { return permits / unit }

// TestLinearizable lets clients take, reserve, settle, refund and peek at once, and looks for an order in which one
// caller alone would have seen the same. Calls that go without the lock mix with calls that take it.
func TestLinearizable(t *testing.T) {
	const (
		modeled = 12
		limit   = modeled*unit + unit/2
	)
	limiters := map[string]func() weir.Acquirer{
		"token bucket": func() weir.Acquirer {
			return must(weir.New(weir.TokenBucket(weir.PerDay(1), limit), weir.Options{}))
		},
		"token bucket under the lock": func() weir.Acquirer {
			return must(weir.New(weir.TokenBucket(weir.Per(1, 24*time.Hour), limit), weir.Options{
				Clock: manualclock.New(0),
			}))
		},
		"fixed window": func() weir.Acquirer {
			return must(weir.New(weir.FixedWindow(weir.PerDay(limit)), weir.Options{}))
		},
		"calendar window": func() weir.Acquirer {
			return must(weir.New(weir.CalendarWindow(limit, algo.Calendar{Unit: algo.CalendarYear}), weir.Options{
				Clock: manualclock.New(0),
			}))
		},
		"sliding window": func() weir.Acquirer {
			return must(weir.New(weir.SlidingWindow(weir.PerDay(limit), 0), weir.Options{}))
		},
		"concurrency": func() weir.Acquirer {
			return must(weir.NewConcurrency(limit, weir.Options{}))
		},
		"chain": func() weir.Acquirer {
			return must(weir.NewChain(
				must(weir.New(weir.TokenBucket(weir.PerDay(1), limit), weir.Options{})),
				must(weir.NewConcurrency(limit+unit, weir.Options{})),
			))
		},
	}
	rounds := 1500
	if race.Enabled || testing.Short() {
		rounds = 200
	}
	for name, newLimiter := range limiters {
		t.Run(name, func(t *testing.T) {
			for round := range rounds {
				history := clash(newLimiter(), round)
				result := porcupine.CheckOperationsTimeout(model(modeled), history, 5*time.Minute)
				if result != porcupine.Ok {
					t.Fatalf("round %d: %v: %d operations:\n%v", round, result, len(history), history)
				}
			}
		})
	}
}

// clash has clients that start at the same moment use l, and returns what all of them saw.
func clash(l weir.Acquirer, round int) []porcupine.Operation {
	const clients = 3
	var (
		waiting atomic.Int64
		done    sync.WaitGroup
		start   = time.Now()
		all     [clients]recorder
	)
	waiting.Store(clients)
	for client := range all {
		r := &all[client]
		*r = recorder{client: client, start: start, history: make([]porcupine.Operation, 0, 60)}
		rng := rand.New(rand.NewPCG(uint64(round), uint64(client)))
		done.Go(func() {
			for waiting.Add(-1); waiting.Load() > 0; {
				runtime.Gosched()
			}
			play(l, r, rng)
		})
	}
	done.Wait()
	var history []porcupine.Operation
	for _, r := range all {
		history = append(history, r.history...)
	}
	return history
}

func play(l weir.Acquirer, r *recorder, rng *rand.Rand) {
	for range 24 {
		n := rng.Int64N(4) + 1
		switch b, _ := l.(*weir.Limiter); rng.IntN(4) {
		case 0:
			r.do(call{"peek", n}, func() answer {
				d := l.Peek(n * unit)
				return answer{d.Allowed, modeledPermits(d.Remaining)}
			})
		case 1:
			if b == nil {
				continue
			}
			r.do(call{"take", n}, func() answer {
				d := b.TryAcquire(n * unit).Decision()
				return answer{d.Allowed, modeledPermits(d.Remaining)}
			})
			r.do(call{"give", 1}, func() answer { b.Refund(unit); return answer{} })
		default:
			reserve(l, r, n, rng)
		}
	}
}

func reserve(l weir.Acquirer, r *recorder, n int64, rng *rand.Rand) {
	var lease weir.Lease
	r.do(call{"take", n}, func() answer {
		if _, chain := l.(*weir.Chain); chain || rng.IntN(2) == 0 {
			lease = l.TryReserve(n * unit)
		} else {
			lease, _ = l.Reserve(context.Background(), n*unit)
		}
		return answer{lease.Allowed(), modeledPermits(lease.Decision().Remaining)}
	})
	if lease.Allowed() && rng.IntN(4) > 0 {
		r.do(call{"give", n}, func() answer {
			lease.Cancel()
			lease.Cancel()
			return answer{}
		})
	}
}
