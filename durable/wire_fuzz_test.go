package durable_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

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
	reservation := durable.Reservation{ID: "id", Policy: "api", Key: "k", Permits: 3, Expires: 12345678}
	all := []durable.Message{
		{Kind: durable.MessageAsk, ID: 1, Request: durable.Request{Policy: "api", Key: "k", Limit: perSecond, N: 2, Wait: time.Second, QueueLimit: 5}},
		{Kind: durable.MessageWithdraw, ID: 2},
		{Kind: durable.MessageSettle, ID: 3, Reservation: reservation, Actual: 5, Cancel: true},
		{Kind: durable.MessageAnswer, ID: 4, Answer: durable.Answer{
			Outcome: durable.Unavailable, Reservation: reservation, Err: store.ErrUnavailable,
			Decision: weir.Decision{Reason: weir.ReasonUnavailable, Policy: "api", Remaining: 3, RetryAfter: time.Second},
		}},
	}
	for kind := durable.CallTake; kind <= durable.CallAdjustments; kind++ {
		all = append(all, durable.Message{Kind: durable.MessageCall, ID: 5, Call: &durable.Call{
			Kind: kind, Charges: charges, Wait: time.Second, Expiry: time.Minute, ID: "id", Expires: 77, Actual: []int64{1, 2}, Number: 3, Taken: 4,
			Adjustment: durable.Adjustment{Permits: -3, By: "a", Reason: "b"},
		}})
	}
	all = append(all, durable.Message{Kind: durable.MessageResult, ID: 6, Result: &durable.Result{
		Outcome: durable.Granted, Decisions: []weir.Decision{{Allowed: true, Limit: 5}, {Reason: weir.ReasonLimited}}, ID: "id", Expires: 8, Lent: 2, Taken: 3,
		Adjustments: []durable.Adjustment{{Policy: "p", Key: "k", Permits: 1, By: "a", Reason: "b", Time: time.Unix(5, 0)}},
	}})
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
