package durable_test

import (
	"context"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
	"github.com/weirhq/weir/store"
)

// BenchmarkCovered grants permits by which the record in force is ahead: at the owner, through its node, and over a pipe
// in memory from another node.
func BenchmarkCovered(b *testing.B) {
	m := must(durable.NewMemory(durable.MemoryOptions{}))
	mine, other := m.Engine(), m.Engine()
	owner := must(durable.NewNode(durable.NodeOptions{Engine: mine, Address: "owner", Owner: durable.OwnerOptions{Reserve: 1e12}}))
	l := new(link)
	asking := must(durable.NewNode(durable.NodeOptions{
		Engine: other, Follower: true,
		Dial: func(context.Context, string) (durable.Peer, error) { return l.dial(owner) }, //nolint:contextcheck // until it is cut
	}))
	b.Cleanup(func() {
		_ = asking.Close()
		_ = owner.Close()
		l.serving.Wait()
		_, _ = mine.Close(), other.Close()
	})
	c := store.Charge{Policy: "api", Key: "key", Limit: weir.TokenBucket(weir.PerSecond(1e9), 1e14), N: 1, Queue: 100}
	c2 := c
	c2.Key = "other"
	grant := func(b *testing.B, f func() bool) {
		b.ReportAllocs()
		for b.Loop() {
			if !f() {
				b.Fatal("refused")
			}
		}
	}
	take := func(h spectest.Asked, charges ...store.Charge) func() bool {
		ds := make([]weir.Decision, len(charges))
		return func() bool {
			_, err := h.Do(context.Background(), store.Ask{}, charges, ds)
			return err == nil && ds[0].Allowed
		}
	}
	if !take(asking, c)() {
		b.Fatal("refused")
	}
	b.Run("owner", func(b *testing.B) { grant(b, take(owner.Owner(), c)) })
	b.Run("node", func(b *testing.B) { grant(b, take(owner, c)) })
	b.Run("node, 2 charges", func(b *testing.B) { grant(b, take(owner, c, c2)) })
	b.Run("other node", func(b *testing.B) { grant(b, take(asking, c)) })
	b.Run("other node, 2 charges", func(b *testing.B) { grant(b, take(asking, c, c2)) })
	b.Run("other node, parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(64)
		b.RunParallel(func(pb *testing.PB) {
			f := take(asking, c)
			for pb.Next() {
				f()
			}
		})
	})
}
