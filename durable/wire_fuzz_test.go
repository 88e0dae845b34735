package durable_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/store"
)

// FuzzMessage: whatever another node says is refused, or read as a message that says the same when it is written again.
func FuzzMessage(f *testing.F) {
	charges := []store.Charge{
		{Policy: "api", Key: "k", Limit: perSecond, N: 3, Queue: 7},
		{Policy: "month", Limit: weir.CalendarWindow(6, algo.Calendar{Unit: algo.CalendarDay}), N: 1},
	}
	all := []durable.Message{{Kind: durable.MessageWithdraw, ID: 2}, {Kind: durable.MessageTime, Time: 12345678}}
	for _, c := range someCalls() {
		c.Charges = charges
		all = append(all, durable.Message{Kind: durable.MessageCall, ID: 5, Call: c})
	}
	for _, r := range []*durable.Result{someResult(), {Reason: weir.ReasonUnavailable, Err: store.ErrUnavailable}, {
		Decisions: []weir.Decision{{Allowed: true, Limit: 5}, {Reason: weir.ReasonLimited}}, Hold: store.Hold{Taken: 8}, Lent: 2,
	}} {
		all = append(all, durable.Message{Kind: durable.MessageResult, ID: 6, Result: r})
	}
	for i := range all {
		b, err := durable.AppendMessage(nil, &all[i])
		if err != nil {
			f.Fatal(err)
		}
		if _, err := durable.ParseMessage(b); err != nil {
			f.Fatalf("%d: %v", all[i].Kind, err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := durable.ParseMessage(b)
		if err != nil {
			return
		}
		once, err := durable.AppendMessage(nil, &m)
		if _, option := errors.AsType[*weir.OptionError](err); option {
			return // no limit, which the owner refuses
		}
		if err != nil {
			t.Fatalf("%+v: %v", m, err)
		}
		again, err := durable.ParseMessage(once)
		if err != nil {
			t.Fatalf("%x was written as %x: %v", b, once, err)
		}
		if twice, err := durable.AppendMessage(nil, &again); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%x, %x, %v", once, twice, err)
		}
	})
}
