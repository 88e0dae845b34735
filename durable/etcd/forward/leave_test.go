package forward_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/etcd/forward"
	"github.com/weirhq/weir/durable/spectest"
)

// TestOwnersLeaveUnderWaiters: owners leave in order, one after the other, while callers wait at other nodes. All of them are served
// by one owner or another.
func TestOwnersLeaveUnderWaiters(t *testing.T) {
	memory, err := durable.NewMemory(durable.MemoryOptions{Latency: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	const owners, callers = 12, 60
	options := durable.NodeOptions{
		Dial: forward.Dial(forward.DialOptions{}), Requeue: true,
		OwnerWait: time.Minute, Owner: durable.OwnerOptions{WriteTimeout: time.Minute}, // the machine may stand still
	}
	node := func() *durable.Node {
		o := options
		o.Engine = memory.Engine()
		n, err := durable.NewNode(o)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	type served struct {
		*durable.Node

		server *grpc.Server
	}
	var nodes []served
	for range owners + 1 {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		options.Address = listener.Addr().String()
		n := node()
		s := forward.NewServer(nil)
		forward.Register(s, n)
		go func() { _ = s.Serve(listener) }()
		nodes = append(nodes, served{n, s})
	}
	options.Follower = true
	last := node() // which asks whichever owner there is
	owned(t, last)
	limit := weir.TokenBucket(weir.PerSecond(200), 1)
	var mu sync.Mutex
	outcomes := map[weir.Reason]int{}
	ctx, end := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for range callers {
		work.Go(func() {
			for ctx.Err() == nil {
				r := spectest.Request{Policy: "api", Limit: limit, N: 1, Wait: time.Minute, Queue: 1000}
				a := spectest.Acquire(context.Background(), last, r) //nolint:contextcheck // a caller that is still there
				mu.Lock()
				outcomes[a.Reason]++
				mu.Unlock()
				if a.Reason != weir.ReasonNone {
					t.Errorf("%v (%v)", a.Reason, a.Err)
				}
			}
		})
	}
	for range owners {
		var at int
		eventually(t, "callers wait at the owner", func() bool {
			// Owners need not follow each other in order: one that stands still for a TTL loses its term.
			at = slices.IndexFunc(nodes, func(n served) bool {
				return n.Owner() != nil && n.Stats().Owned.WaitingRequests >= callers/2
			})
			return at >= 0
		})
		_ = nodes[at].Close()
		nodes[at].server.Stop()
		nodes = slices.Delete(nodes, at, at+1)
	}
	end()
	work.Wait()
	t.Log(outcomes)
	_ = last.Close()
	_ = nodes[0].Close()
	nodes[0].server.Stop()
}
