package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/durable"
)

// staleEngine is an engine whose election stands still while it has no majority: it says that the last owner is still the owner,
// and elects none.
type staleEngine struct {
	durable.Engine

	owners   chan durable.Ownership
	majority chan struct{}
}

func (e *staleEngine) Watch(context.Context) (<-chan durable.Ownership, error) { return e.owners, nil }

func (e *staleEngine) Campaign(ctx context.Context, address string) (durable.Term, error) {
	select {
	case <-e.majority:
		return e.Engine.Campaign(ctx, address)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestUnreached: for how long a node reaches no owner is told although the election still names one: by the one that was the
// owner, by one that is connected to it, and by one that is not.
func TestUnreached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := must(durable.NewMemory(durable.MemoryOptions{}))
		first := memory.Engine()
		majority := make(chan struct{}, 1)
		var serving sync.WaitGroup
		var mu sync.Mutex
		var last *pipe
		var down atomic.Bool
		var a *durable.Node
		node := func(address string, engine *durable.MemoryEngine) *durable.Node {
			owners := make(chan durable.Ownership, 1)
			owners <- durable.Ownership{Address: "a", Epoch: 1}
			return must(durable.NewNode(durable.NodeOptions{
				Engine: &staleEngine{engine, owners, majority}, Address: address, Follower: address != "a",
				Dial: func(context.Context, string) (durable.Peer, error) {
					if down.Load() {
						return nil, errors.New("connection refused")
					}
					mine, other := newPipe()
					mu.Lock()
					last = mine
					mu.Unlock()
					serving.Go(func() { //nolint:contextcheck // it lasts until the pipe is closed
						_ = a.Serve(context.Background(), &halfPipe{pipe: other, left: make(chan struct{})})
					})
					return durable.NewStreamPeer(mine), nil
				},
			}))
		}
		majority <- struct{}{}
		a = node("a", first)
		b := node("b", memory.Engine())
		defer func() { _, _ = b.Close(), a.Close(); serving.Wait() }()
		check := func(what string, n *durable.Node, least, most time.Duration) {
			t.Helper()
			synctest.Wait()
			s := n.Stats()
			if got := n.OwnerUnreached(); got < least || got > most || s.OwnerUnreached != got || s.Owner != "a" || s.WithoutOwner < got {
				t.Errorf("%s: %v, %+v, want from %v to %v", what, got, s, least, most)
			}
		}
		check("the owner", a, 0, 0)
		time.Sleep(time.Minute)
		check("the owner", a, 0, 0)
		check("the other one", b, 0, 0)

		first.Cut(true) // its term ends within 4/3 s
		time.Sleep(20 * time.Second)
		check("the former owner", a, 18*time.Second, 20*time.Second)
		check("the other one, which is connected", b, 15*time.Second, 21*time.Second)
		if text := string(must(json.Marshal(b.Stats()))); !strings.Contains(text, `"owner_unreached_ns":1`) {
			t.Error(text)
		}
		first.Cut(false)
		majority <- struct{}{}
		check("the owner again", a, 0, 0)
		time.Sleep(2 * time.Second)
		check("the other one again", b, 0, 0)
		before := b.Stats().WithoutOwner
		time.Sleep(time.Minute)
		if got := b.Stats().WithoutOwner; got != before || got < 15*time.Second || got > 25*time.Second {
			t.Errorf("%v, then %v without an owner", before, got)
		}

		down.Store(true)
		mu.Lock()
		_ = last.Close()
		mu.Unlock()
		time.Sleep(20 * time.Second)
		check("one that is not connected", b, 20*time.Second, 20*time.Second)
		check("the owner that it cannot reach", a, 0, 0)
		down.Store(false)
		time.Sleep(time.Second)
		check("one that is connected again", b, 0, 0)
	})
}
