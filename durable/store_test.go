package durable_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/store"
	"github.com/weirhq/weir/store/storetest"
)

// link is how one node reaches another, until it is cut.
type link struct {
	mu      sync.Mutex
	cut     bool
	streams []*pipe
	serving sync.WaitGroup
}

func (l *link) dial(to *durable.Node) (durable.Peer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return nil, errors.New("the link is cut")
	}
	mine, other := newPipe()
	l.streams = append(l.streams, mine)
	l.serving.Go(func() { _ = to.Serve(context.Background(), other) })
	return durable.NewStreamPeer(mine), nil
}

// sever cuts the link, or mends it.
func (l *link) sever(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	for _, s := range l.streams {
		_ = s.Close()
	}
	l.streams = nil
}

// pair is a node that owns the limits, and one that asks it.
func pair(t *testing.T, o durable.OwnerOptions) (owner, asking *durable.Node, l *link) {
	t.Helper()
	m := must(durable.NewMemory(durable.MemoryOptions{}))
	mine, other := m.Engine(), m.Engine()
	owner = must(durable.NewNode(durable.NodeOptions{Engine: mine, Address: "owner", Owner: o}))
	l = new(link)
	asking = must(durable.NewNode(durable.NodeOptions{
		Engine: other, Follower: true, OwnerWait: 100 * time.Millisecond,
		Dial: func(context.Context, string) (durable.Peer, error) { return l.dial(owner) }, //nolint:contextcheck // it lasts until the link is cut
	}))
	t.Cleanup(func() {
		_ = asking.Close()
		_ = owner.Close()
		l.serving.Wait()
		_, _ = mine.Close(), other.Close()
	})
	return owner, asking, l
}

// handle is a use of a node that ends before the node.
type handle struct {
	*durable.Node

	closed atomic.Bool
}

func (h *handle) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	if h.closed.Load() {
		return store.Hold{}, store.ErrClosed
	}
	return h.Node.Do(ctx, ask, charges, decisions)
}

func (h *handle) Settle(ctx context.Context, held store.Hold, actual []int64) error {
	if h.closed.Load() {
		return store.ErrClosed
	}
	return h.Node.Settle(ctx, held, actual)
}

func (h *handle) Close() error {
	h.closed.Store(true)
	return nil
}

// TestStoreConforms: the limits of a cluster are a store, asked at their owner or at another node, whatever is written for each
// grant.
func TestStoreConforms(t *testing.T) {
	for name, c := range map[string]struct {
		options durable.OwnerOptions
		asked   bool
	}{
		"owner":              {},
		"owner, K is 1":      {options: durable.OwnerOptions{Reserve: 1}},
		"other node":         {asked: true},
		"other node, K is 1": {options: durable.OwnerOptions{Reserve: 1}, asked: true},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.RunVirtual(t, func(t *testing.T) storetest.Subject {
				owner, asking, l := pair(t, c.options)
				s := storetest.Subject{Store: &handle{Node: owner}, Other: asking, Steps: 800}
				if c.asked {
					s.Store, s.Other = s.Other, s.Store
					s.Break = func() func() {
						l.sever(true)
						return func() { l.sever(false) }
					}
				}
				return s
			})
		})
	}
}
