package durable_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// owned is an owner in a cluster of its own.
func owned(t *testing.T, m *durable.Memory, o durable.OwnerOptions) (*durable.Owner, *durable.MemoryEngine) {
	t.Helper()
	e := m.Engine()
	term, err := e.Campaign(t.Context(), "here")
	if err != nil {
		t.Fatal(err)
	}
	owner, err := durable.NewOwner(term, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := owner.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		_ = e.Close()
	})
	return owner, e
}

var perSecond = weir.TokenBucket(weir.PerSecond(1), 5)

func ask(n int64, wait time.Duration) spectest.Request {
	return spectest.Request{Policy: "api", Limit: perSecond, N: n, Wait: wait, Queue: durable.DefaultQueueLimit}
}

func want(t *testing.T, a spectest.Answer, outcome weir.Reason) {
	t.Helper()
	if a.Reason != outcome || a.Allowed != (outcome == weir.ReasonNone) {
		t.Errorf("%v (%v), want %v", a.Reason, a.Err, outcome)
	}
}

// TestGrantedAtOnce: permits that are there are granted without waiting, after a write.
func TestGrantedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{Latency: time.Millisecond}))
		o, _ := owned(t, m, durable.OwnerOptions{Reserve: 1})
		for i := range 5 {
			begin := time.Now()
			want(t, spectest.Acquire(t.Context(), o, ask(1, 0)), weir.ReasonNone)
			if d := time.Since(begin); i > 0 && d != time.Millisecond {
				t.Errorf("it took %v", d)
			}
		}
		want(t, spectest.Acquire(t.Context(), o, ask(1, 0)), weir.ReasonLimited)
		if n := m.Writes(); n != 5 {
			t.Errorf("%d writes", n)
		}
	})
}

// TestQueueIsFIFO: those who wait are granted in order, as permits come.
func TestQueueIsFIFO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{}))
		o, _ := owned(t, m, durable.OwnerOptions{})
		want(t, spectest.Acquire(t.Context(), o, ask(5, 0)), weir.ReasonNone)
		begin := time.Now()
		var mu sync.Mutex
		var order []int
		var at []time.Duration
		for i := range 3 {
			enqueue(o, ask(int64(1+i), time.Minute), func(a spectest.Answer) {
				want(t, a, weir.ReasonNone)
				mu.Lock()
				defer mu.Unlock()
				order, at = append(order, i), append(at, time.Since(begin))
			})
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(order) != 3 || order[0] != 0 || order[1] != 1 || order[2] != 2 {
			t.Fatal(order)
		}
		if at[0] != time.Second || at[1] != 3*time.Second || at[2] != 6*time.Second {
			t.Error(at)
		}
	})
}
