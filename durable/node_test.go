package durable_test

import (
	"context"
	"errors"
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

// pipe is one end of a stream in memory.
type pipe struct {
	in, out chan []byte
	done    chan struct{}
	once    *sync.Once
}

func newPipe() (a, b *pipe) {
	x, y, done, once := make(chan []byte, 16), make(chan []byte, 16), make(chan struct{}), new(sync.Once)
	return &pipe{x, y, done, once}, &pipe{y, x, done, once}
}

// Send sends nothing once the pipe is closed: its error means that the call was not carried out.
func (p *pipe) Send(m []byte) error {
	select {
	case <-p.done:
		return io.ErrClosedPipe
	default:
	}
	select {
	case p.out <- m:
		return nil
	case <-p.done:
		return io.ErrClosedPipe
	}
}

func (p *pipe) Receive() ([]byte, error) {
	select {
	case m := <-p.in:
		return m, nil
	case <-p.done:
	}
	select {
	case m := <-p.in: // was sent before
		return m, nil
	default:
		return nil, io.EOF
	}
}

func (p *pipe) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

// cluster is some nodes that find each other.
type cluster struct {
	memory  *durable.Memory
	nodes   map[string]*durable.Node
	engines map[string]*durable.MemoryEngine
	serving sync.WaitGroup
	mu      sync.Mutex
	pipes   []*pipe
}

func newCluster(t *testing.T, names []string, o durable.NodeOptions) *cluster {
	t.Helper()
	c := &cluster{
		memory: must(durable.NewMemory(durable.MemoryOptions{Latency: time.Millisecond})),
		nodes:  map[string]*durable.Node{}, engines: map[string]*durable.MemoryEngine{},
	}
	for _, name := range names {
		o.Address, c.engines[name] = name, c.memory.Engine()
		o.Engine = c.engines[name]
		o.Dial = func(_ context.Context, address string) (durable.Peer, error) {
			mine, other := newPipe()
			c.mu.Lock()
			node := c.nodes[address]
			c.pipes = append(c.pipes, mine)
			c.mu.Unlock()
			c.serving.Go(func() { //nolint:contextcheck // it lasts until the pipe is closed
				_ = node.Serve(context.Background(), &halfPipe{pipe: other, left: make(chan struct{})})
				_ = other.Close()
			})
			return durable.NewStreamPeer(mine), nil
		}
		node := must(durable.NewNode(o))
		c.mu.Lock()
		c.nodes[name] = node
		c.mu.Unlock()
		synctest.Wait() // the first becomes the owner
	}
	t.Cleanup(func() {
		for name, n := range c.nodes {
			_ = n.Close()
			_ = c.engines[name].Close()
		}
		c.serving.Wait()
	})
	return c
}

// TestNodesAskTheOwner: whatever node is asked, the limit is one, and those who wait are one queue.
func TestNodesAskTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, []string{"a", "b", "c"}, durable.NodeOptions{})
		if o := c.nodes["b"].Ownership(); o.Address != "a" {
			t.Fatalf("%+v", o)
		}
		for _, name := range []string{"a", "b", "c", "b", "c"} {
			want(t, spectest.Acquire(t.Context(), c.nodes[name], ask(1, 0)), weir.ReasonNone)
		}
		want(t, spectest.Acquire(t.Context(), c.nodes["c"], ask(1, 0)), weir.ReasonLimited)
		want(t, spectest.Acquire(t.Context(), c.nodes["b"], ask(6, 0)), weir.ReasonNever)
		var mu sync.Mutex
		var order []string
		var work sync.WaitGroup
		for _, name := range []string{"c", "a", "b"} {
			work.Go(func() {
				want(t, spectest.Acquire(t.Context(), c.nodes[name], ask(2, time.Minute)), weir.ReasonNone)
				mu.Lock()
				defer mu.Unlock()
				order = append(order, name)
			})
			time.Sleep(10 * time.Millisecond)
		}
		work.Wait()
		if order[0] != "c" || order[1] != "a" || order[2] != "b" {
			t.Error(order)
		}
	})
}

// TestOwnerGoes: those who wait are told at once, and the next owner goes on from what was granted.
func TestOwnerGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, []string{"a", "b", "c"}, durable.NodeOptions{})
		want(t, spectest.Acquire(t.Context(), c.nodes["b"], ask(5, 0)), weir.ReasonNone)
		begin := time.Now()
		var work sync.WaitGroup
		work.Go(func() {
			a := spectest.Acquire(t.Context(), c.nodes["c"], ask(4, time.Minute))
			if a.Reason != weir.ReasonClosed && !errors.Is(a.Err, store.ErrUnavailable) {
				t.Errorf("%+v", a)
			}
			if d := time.Since(begin); d > 3*time.Second {
				t.Errorf("it took %v", d)
			}
		})
		synctest.Wait()
		c.engines["a"].Cut(true) // and its term is over a second later
		work.Wait()
		a := spectest.Acquire(t.Context(), c.nodes["c"], ask(5, time.Minute))
		if want(t, a, weir.ReasonNone); time.Since(begin) < 5*time.Second {
			t.Errorf("granted after %v", time.Since(begin))
		}
	})
}

// TestRequeue: a request goes on waiting with the next owner if it is to.
func TestRequeue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, []string{"a", "b"}, durable.NodeOptions{Requeue: true})
		want(t, spectest.Acquire(t.Context(), c.nodes["b"], ask(5, 0)), weir.ReasonNone)
		begin := time.Now()
		var work sync.WaitGroup
		work.Go(func() { want(t, spectest.Acquire(t.Context(), c.nodes["b"], ask(4, time.Minute)), weir.ReasonNone) })
		synctest.Wait()
		_ = c.nodes["a"].Close()
		work.Wait()
		if d := time.Since(begin); d < 4*time.Second || d > 5*time.Second {
			t.Errorf("granted after %v", d)
		}
		if o := c.nodes["b"].Ownership(); o.Address != "b" {
			t.Errorf("%+v", o)
		}
	})
}

// TestHandOver: a node that is about to leave hands its term over at once, burns nothing, and asks the next owner. It is the owner again
// after its time, and not earlier.
func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, []string{"a", "b"}, durable.NodeOptions{})
		want(t, spectest.Acquire(t.Context(), c.nodes["a"], ask(2, 0)), weir.ReasonNone)
		begin := time.Now()
		for _, name := range []string{"a", "a"} { // once more changes nothing
			if err := c.nodes[name].HandOver(t.Context(), time.Hour); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if o := c.nodes["a"].Ownership(); o.Address != "b" || c.nodes["a"].Owner() != nil || c.nodes["b"].Owner() == nil {
			t.Fatalf("%+v", o)
		}
		want(t, spectest.Acquire(t.Context(), c.nodes["a"], ask(3, 0)), weir.ReasonNone)
		if d := time.Since(begin); d > 100*time.Millisecond {
			t.Errorf("handed over in %v", d)
		}
		_ = c.nodes["b"].Close()
		time.Sleep(time.Hour - time.Since(begin) - time.Second)
		if synctest.Wait(); c.nodes["a"].Owner() != nil {
			t.Error("it is the owner again, too early")
		}
		time.Sleep(2 * time.Second)
		if synctest.Wait(); c.nodes["a"].Owner() == nil {
			t.Error("it is not the owner again")
		}
		if err := c.nodes["a"].HandOver(t.Context(), 0); err == nil {
			t.Error("for no time")
		}
		if err := c.nodes["b"].HandOver(t.Context(), 1); !errors.Is(err, durable.ErrNodeClosed) {
			t.Error(err)
		}
	})
}
