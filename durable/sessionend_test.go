package durable_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
	"github.com/weirhq/weir/store"
)

// halfPipe is the end of a pipe at the owner that ends as a stream of gRPC does: Close lets Receive go, and what is sent still arrives
// until Serve has returned.
type halfPipe struct {
	*pipe

	once sync.Once
	left chan struct{}
}

func (p *halfPipe) Receive() ([]byte, error) {
	select {
	case <-p.left:
		return nil, io.EOF
	default:
	}
	select {
	case m := <-p.in:
		return m, nil
	case <-p.done:
		return nil, io.EOF
	case <-p.left:
		return nil, io.EOF
	}
}

func (p *halfPipe) Close() error {
	p.once.Do(func() { close(p.left) })
	return nil
}

// TestEndOfOwnerIsNoCancellation: the owner leaves in order while callers of another node wait. The next owner serves those that
// asked for that, and the others get the error that the owner stops. None gets the error of a caller that has gone away.
func TestEndOfOwnerIsNoCancellation(t *testing.T) {
	for _, requeue := range []bool{true, false} {
		t.Run(fmt.Sprintf("requeue %v", requeue), func(t *testing.T) {
			for range 20 {
				synctest.Test(t, func(t *testing.T) { leaveInOrder(t, requeue) })
			}
		})
	}
}

func leaveInOrder(t *testing.T, requeue bool) {
	t.Helper()
	const waiting = 100
	c := newCluster(t, []string{"a", "b"}, durable.NodeOptions{Requeue: requeue})
	var work sync.WaitGroup
	for i := range waiting {
		r := ask(5, time.Minute)
		r.Key = fmt.Sprint(i)
		want(t, spectest.Acquire(t.Context(), c.nodes["b"], r), weir.ReasonNone)
		work.Go(func() {
			charges := []store.Charge{tokens("x", 5, 5, 1), tokens("y", 1, 5, 1)}
			charges[0].Key, charges[1].Key = r.Key, r.Key
			decisions := make([]weir.Decision, len(charges))
			if i%2 == 0 {
				r.N = 1
				a := spectest.Acquire(t.Context(), c.nodes["b"], r)
				if requeue && a.Reason != weir.ReasonNone || !requeue && a.Reason != weir.ReasonClosed {
					t.Errorf("%v (%v)", a.Reason, a.Err)
				}
				return
			}
			s := c.nodes["b"]
			for range 2 { // of which the second has to wait
				_, err := store.Acquire(t.Context(), s, store.Ask{Wait: time.Minute}, charges, decisions)
				d := decisions[0]
				if errors.Is(err, weir.ErrRefused) == d.Allowed {
					t.Errorf("%v of %+v", err, decisions)
				} else if !d.Allowed {
					err = nil
				}
				if err != nil || requeue && !d.Allowed || !requeue && !d.Allowed && d.Reason != weir.ReasonClosed {
					t.Errorf("%v (%v)", d.Reason, err)
				}
			}
		})
	}
	synctest.Wait()
	_ = c.nodes["a"].Close()
	work.Wait()
}

// TestSettledWhileTheOwnerEnds: what is given back while the owner leaves is given back once, and no caller is taken
// for gone.
func TestSettledWhileTheOwnerEnds(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, []string{"a", "b"}, durable.NodeOptions{})
			var held []store.Hold
			for i := range 50 {
				r := ask(5, time.Minute)
				r.Key, r.Hold = fmt.Sprint(i), time.Hour
				a := spectest.Acquire(t.Context(), c.nodes["b"], r)
				want(t, a, weir.ReasonNone)
				held = append(held, a.Hold)
			}
			var work sync.WaitGroup
			for _, r := range held {
				work.Go(func() {
					err := c.nodes["b"].Settle(t.Context(), r, nil) // which may have been done without a word
					if err != nil && !errors.Is(err, store.ErrUnavailable) {
						t.Error(err)
					}
				})
			}
			_ = c.nodes["a"].Close()
			work.Wait()
			for _, r := range held {
				again := ask(5, 0)
				again.Key = r.Charges[0].Key
				want(t, spectest.Acquire(t.Context(), c.nodes["b"], again), weir.ReasonNone)
			}
		})
	}
}

// canceling is a peer that says of every caller that it has gone, the first time.
type canceling struct {
	durable.Peer

	mu    sync.Mutex
	asked int
}

func (p *canceling) first() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	return p.asked == 1
}

func (p *canceling) Call(ctx context.Context, c *durable.Call) durable.Result {
	if !p.first() {
		return p.Peer.Call(ctx, c)
	}
	return durable.Result{Reason: weir.ReasonCanceled, Decisions: make([]weir.Decision, len(c.Charges))}
}

// TestOthersDoNotCancel: a node whose caller is still there does not take the word of an owner that it has gone.
func TestOthersDoNotCancel(t *testing.T) {
	for name, acquire := range map[string]func(t *testing.T, n *durable.Node) error{
		"one": func(t *testing.T, n *durable.Node) error {
			t.Helper()
			if a := spectest.Acquire(t.Context(), n, ask(1, time.Minute)); a.Reason != weir.ReasonNone {
				return fmt.Errorf("%v: %w", a.Reason, a.Err)
			}
			return nil
		},
		"several": func(t *testing.T, n *durable.Node) error {
			t.Helper()
			x, y := tokens("x", 1, 5, 1), tokens("y", 1, 5, 1)
			x.Queue = 10
			r := all(t.Context(), n, store.Ask{Wait: time.Minute}, x, y)
			if r.Reason != weir.ReasonNone {
				return fmt.Errorf("%v: %w", r.Reason, r.Err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, []string{"a"}, durable.NodeOptions{})
				engine := c.memory.Engine()
				n := must(durable.NewNode(durable.NodeOptions{
					Engine: engine, Follower: true, Requeue: true,
					Dial: func(context.Context, string) (durable.Peer, error) {
						mine, other := newPipe()
						c.serving.Go(func() { _ = c.nodes["a"].Serve(context.Background(), other) }) //nolint:contextcheck // it outlasts the dialing
						return &canceling{Peer: durable.NewStreamPeer(mine)}, nil
					},
				}))
				defer func() { _, _ = n.Close(), engine.Close() }()
				if err := acquire(t, n); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
