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
	"github.com/weirhq/weir/durable/spectest"
)

// owned waits until a node knows an owner.
func owned(t *testing.T, n *durable.Node) {
	t.Helper()
	r := spectest.Request{Policy: "ready", Limit: weir.TokenBucket(weir.PerSecond(1), 0), Wait: time.Minute}
	if a := spectest.Acquire(t.Context(), n, r); a.Reason != weir.ReasonNone {
		t.Fatalf("there is no owner: %v %v", a.Reason, a.Err)
	}
}

// eventually waits until a condition holds that nothing tells of.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	end, again := time.NewTimer(time.Minute), time.NewTicker(time.Millisecond)
	defer end.Stop()
	defer again.Stop()
	for !holds() {
		select {
		case <-again.C:
		case <-end.C:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// TestNodesOverGRPC: a node asks the owner over a stream, and is told at once when it goes.
func TestNodesOverGRPC(t *testing.T) {
	memory, err := durable.NewMemory(durable.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var nodes []*durable.Node
	var servers []*grpc.Server
	for range 2 {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		n, err := durable.NewNode(durable.NodeOptions{
			Engine: memory.Engine(), Address: listener.Addr().String(), Dial: forward.Dial(forward.DialOptions{}), OwnerWait: time.Minute,
			Owner: durable.OwnerOptions{WriteTimeout: time.Minute}, // the machine may stand still
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
	limit := weir.TokenBucket(weir.Per(1, time.Hour), 1000)
	ask := spectest.Request{Policy: "api", Limit: limit, N: 1, Wait: time.Minute, Queue: 10}
	var work sync.WaitGroup
	for range 100 {
		work.Go(func() {
			for range 10 {
				if a := spectest.Acquire(t.Context(), nodes[1], ask); a.Reason != weir.ReasonNone {
					t.Errorf("%v %v", a.Reason, a.Err)
				}
			}
		})
	}
	work.Wait()
	work.Go(func() {
		if a := spectest.Acquire(t.Context(), nodes[1], ask); a.Reason != weir.ReasonClosed && a.Reason != weir.ReasonUnavailable {
			t.Errorf("%v %v", a.Reason, a.Err)
		}
	})
	eventually(t, "the caller waits", func() bool { return nodes[0].Owner().Waiting() > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if a := spectest.Acquire(ctx, nodes[1], ask); a.Reason != weir.ReasonDeadline {
		t.Errorf("%v %v", a.Reason, a.Err)
	}
	_ = nodes[0].Close()
	work.Wait()
	_ = nodes[1].Close()
	for _, s := range servers {
		s.Stop()
	}
}
