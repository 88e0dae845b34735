package durable_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/store"
)

// BenchmarkCovered grants permits by which the record in force is ahead: at the owner, through its node and store, and over a pipe
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
	r := durable.Request{Policy: "api", Key: "key", Limit: weir.TokenBucket(weir.PerSecond(1e9), 1e14), N: 1, Wait: time.Second, QueueLimit: 100}
	if a := asking.Acquire(b.Context(), r); a.Outcome != durable.Granted {
		b.Fatal(a)
	}
	grant := func(b *testing.B, f func() bool) {
		b.ReportAllocs()
		for b.Loop() {
			if !f() {
				b.Fatal("refused")
			}
		}
	}
	own := owner.Owner()
	b.Run("owner", func(b *testing.B) {
		grant(b, func() bool { return own.Acquire(b.Context(), r).Outcome == durable.Granted })
	})
	b.Run("node", func(b *testing.B) {
		grant(b, func() bool { return owner.Acquire(b.Context(), r).Outcome == durable.Granted })
	})
	take := func(s *durable.Store, charges ...store.Charge) func() bool {
		ds := make([]weir.Decision, len(charges))
		return func() bool { return store.Take(context.Background(), s, charges, ds) == nil && ds[0].Allowed }
	}
	c := store.Charge{Policy: r.Policy, Key: r.Key, Limit: r.Limit, N: 1}
	c2 := c
	c2.Key = "other"
	b.Run("store", func(b *testing.B) { grant(b, take(durable.NewStore(owner), c)) })
	b.Run("store, 2 charges", func(b *testing.B) { grant(b, take(durable.NewStore(owner), c, c2)) })
	b.Run("other node", func(b *testing.B) { grant(b, take(durable.NewStore(asking), c)) })
	b.Run("other node, 2 charges", func(b *testing.B) { grant(b, take(durable.NewStore(asking), c, c2)) })
	b.Run("other node, parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(64)
		b.RunParallel(func(pb *testing.PB) {
			f := take(durable.NewStore(asking), c)
			for pb.Next() {
				f()
			}
		})
	})
}
