package durable_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/store"
)

// lied runs f with a node that takes the other end of a pipe for the owner, which sends for each call what answer returns, if
// anything.
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

// TestSilentOwner: an owner that can be reached, but never says what has become of a request, does not hold it up for good.
func TestSilentOwner(t *testing.T) {
	silent := func(uint64, *durable.Call) []byte { return nil }
	lied(t, durable.NodeOptions{Requeue: true}, silent, func(t *testing.T, n *durable.Node) {
		charge := tokens("x", 3, 5, 1)
		charge.Queue = 10
		held := store.Hold{ID: "x", Charges: []store.Charge{charge}}
		for name, ask := range map[string]func() error{
			"take": func() error {
				_, err := n.Do(t.Context(), store.Ask{}, []store.Charge{charge}, make([]weir.Decision, 1))
				return err
			},
			"wait": func() error {
				_, err := n.Do(t.Context(), store.Ask{Wait: 10 * time.Second}, []store.Charge{charge}, make([]weir.Decision, 1))
				return err
			},
			"settle": func() error { return n.Settle(t.Context(), held, nil) },
		} {
			begin := time.Now()
			if err := ask(); !errors.Is(err, store.ErrUnavailable) || time.Since(begin) > 30*time.Second {
				t.Errorf("%s: %v after %v", name, err, time.Since(begin))
			}
		}
	})
}

// TestOwnerThatGoesOn: a request that waits for the next owner does not ask one all the time that always says that it goes.
func TestOwnerThatGoesOn(t *testing.T) {
	for _, reason := range []weir.Reason{weir.ReasonClosed, weir.ReasonCanceled} {
		var asked atomic.Int64
		goes := func(id uint64, _ *durable.Call) []byte {
			asked.Add(1)
			return result(id, &durable.Result{Reason: reason, Decisions: []weir.Decision{{Reason: reason}}})
		}
		lied(t, durable.NodeOptions{Requeue: true}, goes, func(t *testing.T, n *durable.Node) {
			charge := tokens("x", 3, 5, 1)
			charge.Queue = 10
			decisions := make([]weir.Decision, 1)
			_, err := n.Do(t.Context(), store.Ask{Wait: time.Second}, []store.Charge{charge}, decisions)
			if err != nil || decisions[0].Allowed || asked.Load() < 10 || asked.Load() > 100 {
				t.Errorf("%v: asked %d times in a second: %+v, %v", reason, asked.Load(), decisions, err)
			}
		})
	}
}

// TestTimesOfNoOwner: a node believes no time with which it could not be the owner itself: others would not hear it out.
func TestTimesOfNoOwner(t *testing.T) {
	for _, unix := range []int64{1 << 62, 1<<62 - int64(time.Hour), -1, -1 << 62} {
		synctest.Test(t, func(t *testing.T) {
			mine, other := newPipe()
			p := durable.NewStreamPeer(mine)
			_ = other.Send(must(durable.AppendMessage(nil, &durable.Message{Kind: durable.MessageTime, Time: unix})))
			synctest.Wait()
			if got, at := p.Time(); !at.IsZero() {
				t.Errorf("%d was heard as %d", unix, got)
			}
			now := time.Now().UnixNano()
			_ = other.Send(must(durable.AppendMessage(nil, &durable.Message{Kind: durable.MessageTime, Time: now})))
			synctest.Wait()
			if got, _ := p.Time(); got != now {
				t.Errorf("%d was heard as %d", now, got)
			}
			_ = p.Close()
		})
	}
}

// TestConnectionsThatDoNotLast: a node whose connections to the owner are lost at once tries a few times a second, and logs it
// once.
func TestConnectionsThatDoNotLast(t *testing.T) {
	log := new(lines)
	var dialed atomic.Int64
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, []string{"a"}, durable.NodeOptions{})
		engine := c.memory.Engine()
		n := must(durable.NewNode(durable.NodeOptions{
			Engine: engine, Follower: true, Logger: log.logger(), Dial: func(context.Context, string) (durable.Peer, error) {
				dialed.Add(1)
				mine, other := newPipe()
				_ = other.Close()
				return durable.NewStreamPeer(mine), nil
			},
		}))
		time.Sleep(5 * time.Second)
		_, _ = n.Close(), engine.Close()
	})
	if n := dialed.Load(); n < 10 || n > 50 {
		t.Errorf("%d connections in 5 s", n)
	}
	if all := log.with(""); len(all) > 4 {
		t.Errorf("%d lines in 5 s: %q", len(all), all)
	}
}
