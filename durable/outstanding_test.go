package durable_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/store"
)

// TestOutstandingBytes: what a peer asks, and what it would be answered, takes no more room than there is, however long it is.
func TestOutstandingBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{}))
		engine := m.Engine()
		n := must(durable.NewNode(durable.NodeOptions{Engine: engine, Address: "here"}))
		defer func() { _, _ = n.Close(), engine.Close() }()
		synctest.Wait()
		end, say, hear := talk(t, n)
		engine.Cut(true) // nothing is answered until it is told
		const most = 64 << 20
		list := durable.Message{Kind: durable.MessageCall, Call: &durable.Call{
			Kind: durable.CallAdjustments, Number: 1000, Charges: []store.Charge{{Policy: "p"}},
		}}
		asked := 0
		for list.ID = 1; ; list.ID++ {
			say(list)
			synctest.Wait()
			if asked++; len(end.in) > 0 {
				break
			}
			if asked*500_000 > most {
				t.Fatalf("%d lists of adjustments are outstanding", asked)
			}
		}
		if r := hear(); r.ID != list.ID || r.Result.Outcome != durable.Unavailable {
			t.Errorf("%+v", r.Result)
		}
		engine.Cut(false)
	})
}

// TestUnreadBytes: who asks without reading the answers is not asked for more once they are some megabytes.
func TestUnreadBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{}))
		engine := m.Engine()
		n := must(durable.NewNode(durable.NodeOptions{Engine: engine, Address: "here"}))
		defer func() { _, _ = n.Close(), engine.Close() }()
		synctest.Wait()
		for range 1000 {
			a := durable.Adjustment{Policy: "p", Permits: 1, By: strings.Repeat("b", 256), Reason: strings.Repeat("r", 256)}
			if _, err := n.Adjust(t.Context(), perSecond, a); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		end, _, _ := talk(t, n)
		list := durable.Message{Kind: durable.MessageCall, Call: &durable.Call{
			Kind: durable.CallAdjustments, Number: 1000, Charges: []store.Charge{{Policy: "p"}},
		}}
		taken := 0
		for list.ID = 1; list.ID < 150; list.ID++ {
			select {
			case end.out <- must(durable.AppendMessage(nil, &list)):
				taken++
			default:
			}
			synctest.Wait()
		}
		if taken > 100 {
			t.Errorf("%d lists of half a megabyte were asked for without one being read", taken)
		}
	})
}
