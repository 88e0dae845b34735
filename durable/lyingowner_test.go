package durable_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/store"
)

// lied runs f with a node that takes the other end of a pipe for the owner. That sends what answer returns of each call, or nothing.
func lied(
	t *testing.T, o durable.NodeOptions, answer func(id uint64, c *durable.Call) []byte, f func(t *testing.T, n *durable.Node),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, []string{"a"}, durable.NodeOptions{})
		engine := c.memory.Engine()
		var serving sync.WaitGroup
		o.Engine, o.Follower = engine, true
		o.Dial = func(context.Context, string) (durable.Peer, error) {
			mine, other := newPipe()
			serving.Go(func() {
				for {
					b, err := other.Receive()
					if err != nil {
						return
					}
					m := must(durable.ParseMessage(b))
					if m.Kind != durable.MessageCall {
						continue
					}
					if b = answer(m.ID, m.Call); b != nil && other.Send(b) != nil {
						return
					}
				}
			})
			return durable.NewStreamPeer(mine), nil
		}
		n := must(durable.NewNode(o))
		synctest.Wait()
		f(t, n)
		_, _ = n.Close(), engine.Close()
		serving.Wait()
	})
}

func result(id uint64, r *durable.Result) []byte {
	return must(durable.AppendMessage(nil, &durable.Message{Kind: durable.MessageResult, ID: id, Result: r}))
}

// TestLyingOwnerAllowsNothing: a result that contradicts itself, or the call, is none. Its request is not allowed.
func TestLyingOwnerAllowsNothing(t *testing.T) {
	take := store.Ask{}
	reserve := store.Ask{Hold: time.Minute}
	lend := store.Ask{Mode: store.ModeLend, Least: 1}
	peek := store.Ask{Mode: store.ModePeek}
	for name, c := range map[string]struct {
		ask  store.Ask
		lies func(r *durable.Result, d *weir.Decision)
	}{
		"refused, but allowed": {take, func(r *durable.Result, _ *weir.Decision) { r.Reason = weir.ReasonLimited }},
		"allowed, but refused": {take, func(_ *durable.Result, d *weir.Decision) {
			d.Allowed, d.Reason = false, weir.ReasonLimited
		}},
		"allowed for a reason": {take, func(_ *durable.Result, d *weir.Decision) { d.Reason = weir.ReasonLimited }},
		"refused for none": {take, func(r *durable.Result, d *weir.Decision) {
			r.Reason, d.Allowed = weir.ReasonLimited, false
		}},
		"remaining above the limit": {take, func(_ *durable.Result, d *weir.Decision) { d.Remaining = d.Limit + 1 }},
		"remaining below 0":         {take, func(_ *durable.Result, d *weir.Decision) { d.Remaining = -1 }},
		"limit below 0": {take, func(_ *durable.Result, d *weir.Decision) {
			d.Limit, d.Remaining = math.MinInt64, math.MinInt64
		}},
		"retry after in the past": {take, func(_ *durable.Result, d *weir.Decision) { d.RetryAfter = -1 }},
		"reset after in the past": {take, func(_ *durable.Result, d *weir.Decision) { d.ResetAfter = math.MinInt64 }},
		"a reservation of none":   {take, func(r *durable.Result, _ *weir.Decision) { r.Hold.ID = "x" }},
		"no reservation":          {reserve, func(*durable.Result, *weir.Decision) {}},
		"a reservation that is long": {reserve, func(r *durable.Result, _ *weir.Decision) {
			r.Hold.ID = strings.Repeat("x", 65)
		}},
		"a loan of none":           {take, func(r *durable.Result, _ *weir.Decision) { r.Lent = 1 }},
		"nothing lent":             {lend, func(*durable.Result, *weir.Decision) {}},
		"more lent than asked for": {lend, func(r *durable.Result, _ *weir.Decision) { r.Lent = math.MaxInt64 }},
		"less lent than none":      {lend, func(r *durable.Result, _ *weir.Decision) { r.Lent = -5 }},
		"lent and refused": {lend, func(r *durable.Result, d *weir.Decision) {
			r.Lent, d.Allowed, d.Reason = 1, false, weir.ReasonLimited
		}},
		"no decision": {take, func(r *durable.Result, _ *weir.Decision) { r.Decisions = nil }},
		"two decisions": {take, func(r *durable.Result, d *weir.Decision) {
			r.Decisions = []weir.Decision{*d, *d}
		}},
		"states that are not asked": {take, func(r *durable.Result, _ *weir.Decision) {
			r.States = make([]store.State, 1)
		}},
		"changes that are not asked": {take, func(r *durable.Result, _ *weir.Decision) {
			r.Adjustments = make([]durable.Adjustment, 1)
		}},
		"a probe that is refused":     {peek, func(r *durable.Result, _ *weir.Decision) { r.Reason = weir.ReasonLimited }},
		"a probe that says below 0":   {peek, func(_ *durable.Result, d *weir.Decision) { d.Remaining = -1 }},
		"a probe allowed by a reason": {peek, func(_ *durable.Result, d *weir.Decision) { d.Reason = weir.ReasonNever }},
	} {
		t.Run(name, func(t *testing.T) {
			answer := func(id uint64, _ *durable.Call) []byte {
				r := &durable.Result{Decisions: []weir.Decision{{Allowed: true, Limit: 5, Remaining: 4, ResetAfter: time.Second}}}
				c.lies(r, &r.Decisions[0])
				return result(id, r)
			}
			lied(t, durable.NodeOptions{}, answer, func(t *testing.T, n *durable.Node) {
				decisions := make([]weir.Decision, 1)
				h, err := n.Do(t.Context(), c.ask, []store.Charge{tokens("x", 3, 5, 1)}, decisions)
				if !errors.Is(err, store.ErrUnavailable) || decisions[0].Allowed || h.ID != "" || len(h.Charges) > 0 {
					t.Errorf("%+v, %+v, %v", decisions, h, err)
				}
			})
		})
	}
}
