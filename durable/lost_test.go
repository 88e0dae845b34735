package durable_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/store"
)

// TestLostConnection: those who wait are told, and the owner, which is still the same, is asked over another connection.
func TestLostConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, []string{"a", "b"}, durable.NodeOptions{})
		want(t, c.nodes["b"].Acquire(t.Context(), ask(5, 0)), durable.Granted)
		for range 5 {
			got := make(chan durable.Answer, 1)
			go func() { got <- c.nodes["b"].Acquire(t.Context(), ask(4, time.Minute)) }()
			synctest.Wait()
			_ = c.pipes[len(c.pipes)-1].Close()
			if a := <-got; a.Outcome != durable.Unavailable || !errors.Is(a.Err, store.ErrUnavailable) {
				t.Errorf("%v %v", a.Outcome, a.Err)
			}
			begin := time.Now()
			want(t, c.nodes["b"].Acquire(t.Context(), ask(0, 0)), durable.Refused)
			if d := time.Since(begin); d > 100*time.Millisecond {
				t.Errorf("connected again after %v", d)
			}
		}
		time.Sleep(5 * time.Second) // who was cut off has withdrawn
		want(t, c.nodes["b"].Acquire(t.Context(), ask(5, 0)), durable.Granted)
	})
}

// TestLongRequest: a request that is too long to be sent fails by itself, and nobody else with it.
func TestLongRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, []string{"a", "b"}, durable.NodeOptions{})
		waiting := make(chan durable.Answer, 1)
		want(t, c.nodes["b"].Acquire(t.Context(), ask(5, 0)), durable.Granted)
		go func() { waiting <- c.nodes["b"].Acquire(t.Context(), ask(1, time.Minute)) }()
		synctest.Wait()
		for _, n := range []int{1025, 5000, 1 << 20} {
			r := ask(1, 0)
			r.Key = strings.Repeat("k", n)
			want(t, c.nodes["b"].Acquire(t.Context(), r), durable.Unavailable)
			if err := c.nodes["b"].Commit(t.Context(), durable.Reservation{ID: "x", Policy: "api", Key: r.Key, Permits: 1, Expires: 1}, 1); err == nil {
				t.Error("a reservation was settled that there is not")
			}
		}
		want(t, <-waiting, durable.Granted)
	})
}

// TestSettleAcrossOwners: a reservation is settled with whoever owns the limits by then.
func TestSettleAcrossOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, []string{"a", "b", "c"}, durable.NodeOptions{})
		r := ask(5, 0)
		r.Reserve = time.Hour
		a := c.nodes["c"].Acquire(t.Context(), r)
		want(t, a, durable.Granted)
		_ = c.nodes["a"].Close()
		if err := c.nodes["c"].Commit(t.Context(), a.Reservation, 2); err != nil {
			t.Fatal(err)
		}
		want(t, c.nodes["c"].Acquire(t.Context(), ask(3, 0)), durable.Granted)
	})
}
