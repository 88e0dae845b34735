package durable_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
	"github.com/weirhq/weir/store"
)

// TestLostConnection: those who wait are told, and the owner, which is still the same, is asked over another connection.
func TestLostConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, []string{"a", "b"}, durable.NodeOptions{})
		want(t, spectest.Acquire(t.Context(), c.nodes["b"], ask(5, 0)), weir.ReasonNone)
		for range 5 {
			got := make(chan spectest.Answer, 1)
			go func() { got <- spectest.Acquire(t.Context(), c.nodes["b"], ask(4, time.Minute)) }()
			synctest.Wait()
			_ = c.pipes[len(c.pipes)-1].Close()
			if a := <-got; a.Reason != weir.ReasonUnavailable || !errors.Is(a.Err, store.ErrUnavailable) {
				t.Errorf("%v %v", a.Reason, a.Err)
			}
			begin := time.Now()
			want(t, spectest.Acquire(t.Context(), c.nodes["b"], ask(0, 0)), weir.ReasonLimited)
			if d := time.Since(begin); d > 100*time.Millisecond {
				t.Errorf("connected again after %v", d)
			}
		}
		time.Sleep(5 * time.Second) // a call that was cut off has withdrawn
		want(t, spectest.Acquire(t.Context(), c.nodes["b"], ask(5, 0)), weir.ReasonNone)
	})
}

// TestLongRequest: a request that is too long to be sent fails by itself, and no other one with it.
func TestLongRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, []string{"a", "b"}, durable.NodeOptions{})
		waiting := make(chan spectest.Answer, 1)
		want(t, spectest.Acquire(t.Context(), c.nodes["b"], ask(5, 0)), weir.ReasonNone)
		go func() { waiting <- spectest.Acquire(t.Context(), c.nodes["b"], ask(1, time.Minute)) }()
		synctest.Wait()
		for _, n := range []int{1025, 5000, 1 << 20} {
			r := ask(1, 0)
			r.Key = strings.Repeat("k", n)
			want(t, spectest.Acquire(t.Context(), c.nodes["b"], r), weir.ReasonUnavailable)
			held := store.Hold{ID: "x", Charges: []store.Charge{{Policy: "api", Key: r.Key, N: 1}}, Expires: 1}
			if err := c.nodes["b"].Settle(t.Context(), held, []int64{1}); err == nil {
				t.Error("a reservation was settled that there is not")
			}
		}
		want(t, <-waiting, weir.ReasonNone)
	})
}

// TestSettleAcrossOwners: a reservation is settled with the node that owns the limits by then.
func TestSettleAcrossOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, []string{"a", "b", "c"}, durable.NodeOptions{})
		r := ask(5, 0)
		r.Hold = time.Hour
		a := spectest.Acquire(t.Context(), c.nodes["c"], r)
		want(t, a, weir.ReasonNone)
		_ = c.nodes["a"].Close()
		if err := c.nodes["c"].Settle(t.Context(), a.Hold, []int64{2}); err != nil {
			t.Fatal(err)
		}
		want(t, spectest.Acquire(t.Context(), c.nodes["c"], ask(3, 0)), weir.ReasonNone)
	})
}
