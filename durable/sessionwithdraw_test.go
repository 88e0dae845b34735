package durable_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
	"github.com/weirhq/weir/store"
)

// talk sends messages over a stream, and returns how to receive the next one.
func talk(t *testing.T, n *durable.Node) (end *pipe, say func(durable.Message), hear func() durable.Message) {
	t.Helper()
	mine, other := newPipe()
	served := make(chan error, 1)
	go func() { served <- n.Serve(context.Background(), other) }()
	t.Cleanup(func() {
		_ = mine.Close()
		<-served
	})
	say = func(m durable.Message) {
		t.Helper()
		if err := mine.Send(must(durable.AppendMessage(nil, &m))); err != nil {
			t.Error(err)
		}
	}
	hear = func() durable.Message {
		t.Helper()
		for {
			b, err := mine.Receive()
			if err != nil {
				t.Fatal(err)
			}
			if m := must(durable.ParseMessage(b)); m.Kind != durable.MessageTime {
				return m
			}
		}
	}
	return mine, say, hear
}

// asking is the message that asks for permits.
func asking(id uint64, r spectest.Request) durable.Message {
	return durable.Message{Kind: durable.MessageCall, ID: id, Call: &durable.Call{
		Verb: durable.VerbDo, Ask: r.Ask(), Charges: []store.Charge{r.Charge()},
	}}
}

// TestWithdrawnDuringElection: what is asked of a node before it has heard that it is the owner can be withdrawn, and takes nothing.
func TestWithdrawnDuringElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{Latency: time.Millisecond}))
		before, e := owned(t, m, durable.OwnerOptions{})
		engine := m.Engine()
		n := must(durable.NewNode(durable.NodeOptions{Engine: engine, Address: "here"}))
		defer func() { _, _ = n.Close(), engine.Close() }()
		synctest.Wait()
		_, say, hear := talk(t, n)
		withdrawn := ask(5, time.Hour)
		say(asking(1, withdrawn))
		synctest.Wait()
		begin := time.Now()
		say(durable.Message{Kind: durable.MessageWithdraw, ID: 1})
		if a := hear(); a.ID != 1 || a.Result.Reason != weir.ReasonCanceled || time.Since(begin) > 0 {
			t.Errorf("%+v after %v", a, time.Since(begin))
		}
		say(asking(2, ask(5, time.Second)))
		synctest.Wait()
		_ = before.Stop(t.Context())
		_ = e.Close()
		if a := hear(); a.ID != 2 || a.Result.Reason != weir.ReasonNone {
			t.Errorf("%+v", a)
		}
	})
}

// TestNumberInUse: a peer that uses the number of a request again before that is answered is not served any more, and leaves nothing
// behind that waits.
func TestNumberInUse(t *testing.T) {
	for name, second := range map[string]durable.Message{
		"one": asking(1, ask(4, time.Hour)),
		"two": {Kind: durable.MessageCall, ID: 1, Call: &durable.Call{
			Verb: durable.VerbDo, Ask: store.Ask{Wait: time.Hour}, Charges: []store.Charge{tokens("api", 1, 5, 1), tokens("x", 1, 5, 1)},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := must(durable.NewMemory(durable.MemoryOptions{}))
				engine := m.Engine()
				n := must(durable.NewNode(durable.NodeOptions{Engine: engine, Address: "here"}))
				defer func() { _, _ = n.Close(), engine.Close() }()
				want(t, spectest.Acquire(t.Context(), n, ask(5, time.Minute)), weir.ReasonNone)
				end, say, _ := talk(t, n)
				say(asking(1, ask(5, time.Hour)))
				say(second)
				synctest.Wait()
				for { // there may be a reply to what was asked before
					b, err := end.Receive()
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					if m := must(durable.ParseMessage(b)); m.Kind != durable.MessageTime && m.Result.Reason == weir.ReasonNone {
						t.Fatalf("%+v", m)
					}
				}
				if waiting := n.Stats().Owned.WaitingRequests; waiting != 0 {
					t.Errorf("%d requests wait without a caller", waiting)
				}
			})
		})
	}
}
