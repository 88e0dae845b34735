package durable_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/store"
)

// TestOutstandingBytes: what a peer asks, and what it would be answered, takes no more room than there is, however long it is and
// however many charges it has.
func TestOutstandingBytes(t *testing.T) {
	var charges []store.Charge
	for i := range store.MostCharges {
		charges = append(charges, tokens(fmt.Sprint(i), 1, 1, 1))
	}
	for name, c := range map[string]struct {
		call  durable.Call
		takes int // bytes
	}{
		"adjustments": {durable.Call{Verb: durable.VerbAdjustments, Most: 1000, Charges: []store.Charge{{Policy: "p"}}}, 500_000},
		"charges":     {durable.Call{Verb: durable.VerbDo, Charges: charges}, 32_000},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { outstandingBytes(t, &c.call, c.takes) }) })
	}
}

func outstandingBytes(t *testing.T, c *durable.Call, takes int) {
	t.Helper()
	m := must(durable.NewMemory(durable.MemoryOptions{}))
	engine := m.Engine()
	n := must(durable.NewNode(durable.NodeOptions{Engine: engine, Address: "here"}))
	defer func() { _, _ = n.Close(), engine.Close() }()
	synctest.Wait()
	end, say, hear := talk(t, n)
	engine.Cut(true) // nothing is answered until it is told
	synctest.Wait()
	if m := must(durable.ParseMessage(<-end.in)); m.Kind != durable.MessageTime {
		t.Fatalf("%+v came first", m)
	}
	const most = 128 << 20
	asks := durable.Message{Kind: durable.MessageCall, Call: c}
	asked := 0
	for asks.ID = 1; ; asks.ID++ {
		say(asks)
		synctest.Wait()
		if asked++; len(end.in) > 0 {
			break
		}
		if asked*takes > most {
			t.Fatalf("%d calls are outstanding", asked)
		}
	}
	if r := hear(); r.ID != asks.ID || r.Result.Reason != weir.ReasonUnavailable {
		t.Errorf("%+v", r.Result)
	}
	engine.Cut(false)
}

// TestUnreadBytes: a peer that asks without reading the answers is not read from once they are some megabytes.
func TestUnreadBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{}))
		engine := m.Engine()
		n := must(durable.NewNode(durable.NodeOptions{Engine: engine, Address: "here"}))
		defer func() { _, _ = n.Close(), engine.Close() }()
		synctest.Wait()
		for range 200 {
			a := durable.Adjustment{Policy: "p", Permits: 1, By: strings.Repeat("b", 256), Reason: strings.Repeat("r", 256)}
			if _, err := n.Adjust(t.Context(), perSecond, a); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		end, _, _ := talk(t, n)
		list := durable.Message{Kind: durable.MessageCall, Call: &durable.Call{
			Verb: durable.VerbAdjustments, Most: 1000, Charges: []store.Charge{{Policy: "p"}},
		}}
		taken := 0
		for list.ID = 1; list.ID < 200; list.ID++ {
			select {
			case end.out <- must(durable.AppendMessage(nil, &list)):
				taken++
			default:
			}
			synctest.Wait()
		}
		if taken > 150 {
			t.Errorf("%d lists of 100 kB were asked for without one being read", taken)
		}
	})
}

// TestOutstandingCalls: calls that wait have goroutines, so that fewer of them than of requests can be outstanding, and as many as are
// answered can be made again.
func TestOutstandingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{}))
		engine := m.Engine()
		n := must(durable.NewNode(durable.NodeOptions{Engine: engine, Address: "here"}))
		defer func() { _, _ = n.Close(), engine.Close() }()
		mine, other := newPipe()
		served := make(chan error, 1)
		go func() { served <- n.Serve(t.Context(), other) }()
		p := durable.NewStreamPeer(mine)
		a, b := tokens("a", 1, 1, 1), tokens("b", 1, 1, 1)
		a.Queue, b.Queue, a.Limit = 1e6, 1e6, limits.WithRate(a.Limit, weir.Per(1, time.Hour))
		take := &durable.Call{Verb: durable.VerbDo, Ask: store.Ask{Wait: time.Minute}, Charges: []store.Charge{a, b}}
		if r := p.Call(t.Context(), take); r.Reason != weir.ReasonNone {
			t.Fatalf("%+v", r)
		}
		most := int64(17_000) // a few more than can wait
		if race.Enabled {
			most = 2000
		}
		for _, calls := range []int64{most, 1000} {
			var work sync.WaitGroup
			var expired, busy atomic.Int64
			for range calls {
				work.Go(func() {
					switch r := p.Call(t.Context(), take); {
					case r.Reason == weir.ReasonDeadline:
						expired.Add(1)
					case errors.Is(r.Err, store.ErrUnavailable):
						busy.Add(1)
					default:
						t.Errorf("%+v", r)
					}
				})
			}
			work.Wait()
			if n := expired.Load(); n < min(calls, 10_000) || (busy.Load() == 0) == (calls > 10_000) {
				t.Errorf("%d waited, and %d could not", n, busy.Load())
			}
		}
		_ = p.Close()
		<-served
	})
}
