package verify_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// toldStore keeps under which limit it was debited last, which is what a bucket goes on under.
type toldStore struct {
	store.Home

	mu   sync.Mutex
	last int64
}

func (s *toldStore) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	for range rand.N(10) {
		runtime.Gosched() // so that calls overtake each other
	}
	if ask.Mode == store.ModeDebit {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.last = charges[0].Limit.Permits()
		return store.Hold{}, nil
	}
	return s.Home.Do(ctx, ask, charges, decisions)
}

func (s *toldStore) burst() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// overridden is a register: overrides and their ends write it, and a look into the store reads it.
func overridden(limit int64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return limit },
		Step: func(state, input, output any) (bool, any) {
			in, out := input.(call), output.(answer) //nolint:forcetypeassert // as do made them
			switch {
			case in.op == "override":
				return true, in.n
			case in.op == "look":
				return out.remaining == state, state
			case out.allowed: // there was one to restore from
				return true, limit
			default:
				return true, state
			}
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	}
}

// TestOverridesReachTheStoreInOrder changes one key of a shared policy from several sides at once: there must be an order of the
// changes in which each of them is in the store when its call returns.
func TestOverridesReachTheStoreInOrder(t *testing.T) {
	const limit = 1000
	rounds := 300
	if race.Enabled || testing.Short() {
		rounds = 60
	}
	for round := range rounds {
		kept := &toldStore{last: limit}
		e := must(policy.NewEngine(&policy.Set{Policies: []policy.Policy{{
			Name: "shared", Key: policy.ClientIP(), Consistency: policy.ConsistencyCoherent,
			Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(1), limit)}},
		}}}, policy.EngineOptions{Store: kept}))
		start := time.Now()
		recorders := make([]recorder, 4)
		var all sync.WaitGroup
		for i := range recorders {
			r := &recorders[i]
			*r = recorder{client: i, start: start}
			all.Go(func() {
				for range 8 {
					override(t, e, kept, r)
				}
			})
		}
		all.Wait()
		var history []porcupine.Operation
		for i := range recorders {
			history = append(history, recorders[i].history...)
		}
		if result := porcupine.CheckOperationsTimeout(overridden(limit), history, 5*time.Minute); result != porcupine.Ok {
			t.Fatalf("round %d: %v: %+v", round, result, history)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

func override(t *testing.T, e *policy.Engine, kept *toldStore, r *recorder) {
	t.Helper()
	switch n := 1 + rand.N[int64](100); rand.N(4) {
	case 0, 1:
		r.do(call{"override", n}, func() answer {
			o := policy.Override{
				Policy: "shared", Key: "k", For: time.Hour, Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(1), n)}},
			}
			if err := e.Override(&o); err != nil {
				t.Error(err)
			}
			return answer{}
		})
	case 2:
		r.do(call{op: "restore"}, func() answer { return answer{allowed: e.Restore("shared", "k")} })
	default:
		r.do(call{op: "look"}, func() answer { return answer{remaining: kept.burst()} })
	}
}
