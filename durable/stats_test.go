package durable_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
	"github.com/weirhq/weir/store"
)

// TestStats: what was granted, refused, written and waited for is counted, across terms, and by the node that did it.
func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, []string{"a", "b"}, durable.NodeOptions{Owner: durable.OwnerOptions{Reserve: 4}})
		for range 3 {
			want(t, spectest.Acquire(t.Context(), c.nodes["b"], ask(1, 0)), weir.ReasonNone)
		}
		want(t, spectest.Acquire(t.Context(), c.nodes["a"], ask(3, 0)), weir.ReasonLimited)
		want(t, spectest.Acquire(t.Context(), c.nodes["a"].Owner(), ask(6, 0)), weir.ReasonNever)
		s := c.nodes["b"]
		acquire(t.Context(), s, minute, tokens("x", 2, 5, 1), tokens("y", 6, 5, 1)).want(t, "none never 1ms")
		acquire(t.Context(), s, minute, tokens("x", 2, 5, 1), tokens("y", 5, 5, 1)).want(t, "none none 1ms")
		waiting, ticket := collect(c.nodes["a"].Owner(), ask(4, time.Minute))
		synctest.Wait()
		got := c.nodes["a"].Stats()
		o := &got.Owned
		if !got.Owns || got.Owner != "a" || got.Terms != 1 || got.Epoch != 1 || o.Epoch != 1 {
			t.Errorf("%+v", got)
		}
		if o.Allowed != 5 || o.GrantedPermits != 10 || o.Refused != (durable.RefusedStats{Refused: 1, Never: 3}) || o.Keys != 3 {
			t.Errorf("%+v", o)
		}
		if o.WaitingPermits != 4 || o.WaitingRequests != 1 || o.Writes < 2 || o.Records < 3 || o.FailedWrites != 0 {
			t.Errorf("%+v", o)
		}
		if other := c.nodes["b"].Stats(); other.Owns || other.Owner != "a" || other.Terms != 0 || other.Owned.Allowed != 0 || other.WithoutOwner != 0 {
			t.Errorf("%+v", other)
		}
		text := string(must(json.Marshal(got)))
		for _, name := range []string{`"owned":{"epoch":1`, `"waiting_permits":4`, `"queue_full":0`, `"without_owner_ns":0`, `"permits_ahead":`} {
			if !strings.Contains(text, name) {
				t.Errorf("%s has no %s", text, name)
			}
		}
		ticket()
		want(t, waiting.answer(), weir.ReasonCanceled)
		c.engines["a"].Cut(true)
		time.Sleep(5 * time.Second)
		got, other := c.nodes["a"].Stats(), c.nodes["b"].Stats()
		if got.Owns || got.Terms != 1 || got.Owned.Allowed != 5 || got.Owned.Refused.Canceled != 1 {
			t.Errorf("%+v", got)
		}
		if !other.Owns || other.Epoch != 2 || other.Owned.Epoch != 2 {
			t.Errorf("%+v", other)
		}
	})
}

// TestEveryNodeAdjusts: what an administrator asks for is done by the owner, whichever node is asked.
func TestEveryNodeAdjusts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, []string{"a", "b"}, durable.NodeOptions{})
		month := weir.CalendarWindow(100, algo.Calendar{Unit: algo.CalendarMonth})
		for i, name := range []string{"b", "a", "b"} {
			n := c.nodes[name]
			a, err := n.Adjust(t.Context(), month, durable.Adjustment{Policy: "tokens", Key: "acme", Permits: -10, By: name, Reason: "r"})
			if err != nil || a.Remaining != int64(90-10*i) || a.Policy != "tokens" || a.Key != "acme" || a.Time.IsZero() {
				t.Errorf("%+v, %v", a, err)
			}
			time.Sleep(time.Second)
		}
		for _, n := range c.nodes {
			if d, err := spectest.Peek(t.Context(), n, "tokens", "acme", month); err != nil || d.Remaining != 70 || d.Policy != "tokens" || d.Limit != 100 {
				t.Errorf("%+v, %v", d, err)
			}
			all, err := n.Adjustments(t.Context(), "tokens", "acme", 2)
			if err != nil || len(all) != 2 || all[0].Remaining != 70 || all[1].By != "a" || all[1].Key != "acme" {
				t.Errorf("%+v, %v", all, err)
			}
			_, err = n.Adjust(t.Context(), month, durable.Adjustment{Policy: "tokens", Key: "acme", Permits: 1, By: "x"})
			if misuse, ok := errors.AsType[*weir.OptionError](err); !ok || misuse.Option != "Adjustment.Reason" {
				t.Errorf("%v", err)
			}
		}
		_ = c.nodes["a"].Close() // the other one takes over, and is asked while it does
		if d, err := spectest.Peek(t.Context(), c.nodes["b"], "tokens", "acme", month); err != nil || d.Remaining != 70 {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

// TestRetryAfterCountsTheQueue: a caller that does not wait is told when it would have its turn, behind those who do.
func TestRetryAfterCountsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{}))
		o, _ := owned(t, m, durable.OwnerOptions{})
		window := ask(1, 0)
		window.Policy, window.Limit = "window", weir.FixedWindow(weir.Per(5, time.Minute))
		for _, r := range []spectest.Request{ask(1, 0), window} {
			r.N = 5
			want(t, spectest.Acquire(t.Context(), o, r), weir.ReasonNone)
			r.N, r.Wait = 4, time.Hour
			collect(o, r)
			collect(o, r)
			collect(o, r)
			r.N, r.Wait = 1, 0
			a := spectest.Acquire(t.Context(), o, r)
			want(t, a, weir.ReasonLimited)
			turn := 13 * time.Second
			if r.Policy == "window" {
				turn = 3*time.Minute - 13*time.Second // which have passed of the first one
			}
			if a.RetryAfter != turn {
				t.Errorf("%s: %v", r.Policy, a.RetryAfter)
			}
			time.Sleep(a.RetryAfter - time.Millisecond)
			want(t, spectest.Acquire(t.Context(), o, r), weir.ReasonLimited)
			time.Sleep(time.Millisecond)
			want(t, spectest.Acquire(t.Context(), o, r), weir.ReasonNone)
		}
	})
}

// TestStoreSaysWhy: a store answers as it says for callers that go away, and for an owner that cannot write.
func TestStoreSaysWhy(t *testing.T) {
	inBubble(t, func(t *testing.T, s, _ *durable.Node) {
		c := tokens("a", 5, 5, 1)
		acquire(t.Context(), s, minute, c).want(t, "none 0s")
		acquire(t.Context(), s, store.Ask{Wait: time.Second}, c).want(t, "deadline 1s")
		acquire(t.Context(), s, store.Ask{}, c).want(t, "limited 0s")
		c.Queue = 3
		acquire(t.Context(), s, minute, c).want(t, "queue-full 0s")
		c.N = 6
		acquire(t.Context(), s, minute, c).want(t, "never 0s")
		c.N, c.Queue = 5, 10
		_ = s.Close()
		if got := acquire(t.Context(), s, minute, c); !errors.Is(got.err, store.ErrClosed) {
			t.Errorf("%+v", got)
		}
	})
}
