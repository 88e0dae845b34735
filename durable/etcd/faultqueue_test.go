//go:build linux

package etcd_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/etcd/forward"
	"github.com/weirhq/weir/durable/spectest"
	"github.com/weirhq/weir/store"
)

// queueClient lets requests wait at the owner, in an order that is known: those of one stream arrive in the order in which they
// are sent. They are reservations, whose expiry tells when the owner granted them.
type queueClient struct {
	cluster *cluster
	config  loadConfig
	ctx     context.Context //nolint:containedctx // until stop
	end     context.CancelFunc
	work    sync.WaitGroup
}

// mostQueued is how many of them wait at a time.
const mostQueued = 12

func (c *cluster) startQueue(config loadConfig) *queueClient {
	q := &queueClient{cluster: c, config: config}
	q.ctx, q.end = context.WithCancel(context.Background())
	for i := range c.nodes {
		q.work.Go(func() {
			for stream := i; q.ctx.Err() == nil; stream += len(c.nodes) {
				q.connect(c.nodes[i].config.Address, stream)
				pause(q.ctx, 100*time.Millisecond)
			}
		})
	}
	return q
}

func (q *queueClient) stop() {
	q.end()
	q.work.Wait()
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// connect uses a stream to a node until it fails.
func (q *queueClient) connect(address string, stream int) {
	ctx, cancel := context.WithTimeout(q.ctx, time.Second)
	peer, err := forward.Dial(forward.DialOptions{})(ctx, address)
	cancel()
	if err != nil {
		return
	}
	defer peer.Close()
	sent := peer.(*durable.StreamPeer) //nolint:forcetypeassert // as it was made
	// A generation is requests that were sent to an owner that goes on: it ends when one is answered by an owner that does not.
	for generation := 1; q.ctx.Err() == nil && q.owns(sent); generation++ {
		q.generation(sent, event{Round: q.config.Round, Process: testProcess, Key: queuedKey, N: 1, Stream: stream, Generation: generation})
	}
}

// owns waits until the node at the other end is the owner, or the stream has failed.
func (q *queueClient) owns(peer *durable.StreamPeer) bool {
	r := q.config.request(queuedKey)
	for q.ctx.Err() == nil {
		got := make(chan *durable.Result, 1)
		peer.Enqueue(callOf(r), func(a *durable.Result) { got <- a })
		select {
		case a := <-got:
			if a.Reason == weir.ReasonNone || a.Reason == weir.ReasonLimited {
				return true
			}
		case <-time.After(callTimeout): // nothing is heard: another stream may do better
			return false
		case <-q.ctx.Done():
			return false
		}
		select {
		case <-peer.Done():
			return false
		default:
			pause(q.ctx, 50*time.Millisecond)
		}
	}
	return false
}

// callOf is the call of a request.
func callOf(r spectest.Request) *durable.Call {
	return &durable.Call{Verb: durable.VerbDo, Ask: r.Ask(), Charges: []store.Charge{r.Charge()}}
}

// generation sends requests until one of them is answered by an owner that has lost its term.
func (q *queueClient) generation(peer *durable.StreamPeer, e event) {
	var wait sync.WaitGroup
	defer wait.Wait()
	ctx, lost := context.WithCancel(q.ctx)
	defer lost()
	room := make(chan struct{}, mostQueued)
	random := rand.New(rand.NewPCG(uint64(q.config.Round), uint64(e.Stream)))
	var cancels []func()
	for ctx.Err() == nil {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			continue
		}
		e.Number++
		r := q.config.request(queuedKey)
		r.N, r.Hold, r.Wait = 1, queuedExpiry, callTimeout
		if random.IntN(4) == 0 { // its deadline comes before its turn, in most cases
			r.Wait = time.Duration(1+random.IntN(300)) * time.Millisecond
		}
		own := e
		own.Asked = monotonic()
		wait.Add(1)
		cancel := peer.Enqueue(callOf(r), func(a *durable.Result) {
			own.Answered = monotonic()
			own.Reason, own.ID, own.Expires = a.Reason, a.Hold.ID, a.Hold.Expires
			if a.Err != nil {
				own.Err = a.Err.Error()
			} else {
				own.Remaining = a.Decisions[0].Remaining
			}
			q.cluster.history.add(own)
			if a.Reason == weir.ReasonUnavailable || a.Reason == weir.ReasonClosed {
				lost()
			}
			<-room
			wait.Done()
		})
		switch random.IntN(8) {
		case 0: // it is withdrawn
			cancel()
		default:
			cancels = append(cancels, cancel)
		}
		pause(ctx, 5*time.Millisecond)
	}
	for _, cancel := range cancels { // what has been answered does not mind
		cancel()
	}
	timer := time.AfterFunc(callTimeout, func() { _ = peer.Close() }) // a peer that does not respond is not waited for
	defer timer.Stop()
	wait.Wait()
}
