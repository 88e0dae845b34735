package durable_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
)

// TestEarlyKeepOrder: what a node is asked before it knows that it is the owner is served in the order in which it came, and
// before what comes afterwards. Writes take a while, as callers of one record may get their results after those of the next one.
func TestEarlyKeepOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{Latency: time.Millisecond}))
		before, e := owned(t, m, durable.OwnerOptions{})
		engine := m.Engine()
		n := must(durable.NewNode(durable.NodeOptions{Engine: engine, Address: "here"}))
		defer func() { _, _ = n.Close(), engine.Close() }()
		synctest.Wait()
		_, say, hear := talk(t, n)
		const count = 100
		for id := range uint64(count) {
			if id == count/2 {
				_ = before.Stop(context.Background())
				_ = e.Close()
			}
			say(asking(id, ask(1, time.Hour)))
		}
		for id := range uint64(count) {
			if a := hear(); a.ID != id || a.Result.Reason != weir.ReasonNone {
				t.Fatalf("%d was answered in place of %d: %v %v", a.ID, id, a.Result.Reason, a.Result.Err)
			}
		}
	})
}
