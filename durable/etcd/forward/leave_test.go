package forward_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/etcd/forward"
)

// TestOwnersLeaveUnderWaiters: owners leave in order, one after the other, while callers wait at other nodes. All of them are served
// by one owner or another.
func TestOwnersLeaveUnderWaiters(t *testing.T) {
	memory, err := durable.NewMemory(durable.MemoryOptions{Latency: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	const owners, callers = 12, 60
	var nodes []*durable.Node
	var servers []*grpc.Server
	for range owners + 1 {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		n, err := durable.NewNode(durable.NodeOptions{
			Engine: memory.Engine(), Address: listener.Addr().String(), Dial: forward.Dial(forward.DialOptions{}), Requeue: true,
			OwnerWait: time.Minute, Owner: durable.OwnerOptions{WriteTimeout: time.Minute}, // the machine may stand still
		})
		if err != nil {
			t.Fatal(err)
		}
		s := forward.NewServer(nil)
		forward.Register(s, n)
		go func() { _ = s.Serve(listener) }()
		nodes, servers = append(nodes, n), append(servers, s)
		owned(t, n)
	}
	last := nodes[owners] // which is elected last, and asks the others until then
	limit := weir.Limit{Rate: weir.PerSecond(200), Burst: 1}
	var mu sync.Mutex
	outcomes := map[durable.Outcome]int{}
	ctx, end := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for range callers {
		work.Go(func() {
			for ctx.Err() == nil {
				r := durable.Request{Policy: "api", Limit: limit, N: 1, Wait: time.Minute, QueueLimit: 1000}
				a := last.Acquire(context.Background(), r) //nolint:contextcheck // a caller that is still there
				mu.Lock()
				outcomes[a.Outcome]++
				mu.Unlock()
				if a.Outcome != durable.Granted {
					t.Errorf("%v (%v)", a.Outcome, a.Err)
				}
			}
		})
	}
	for i := range owners {
		eventually(t, "callers wait at the owner", func() bool {
			return nodes[i].Owner() != nil && nodes[i].Stats().Owned.WaitingRequests >= callers/2
		})
		_ = nodes[i].Close()
		servers[i].Stop()
	}
	end()
	work.Wait()
	t.Log(outcomes)
	_ = last.Close()
	servers[owners].Stop()
}
