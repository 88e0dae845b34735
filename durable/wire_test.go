package durable_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/store"
)

func someCall(kind durable.CallKind) *durable.Call {
	c := &durable.Call{
		Kind: kind, Wait: time.Second, Expiry: time.Minute, ID: "id", Expires: 77, Actual: []int64{1, 2}, Number: 3, Taken: 4,
		Adjustment: durable.Adjustment{Permits: -5, By: "somebody", Reason: "a reason"},
	}
	for i := range 2 {
		charge := store.Charge{Policy: "p", Key: fmt.Sprint(i), N: int64(i), Queue: 9}
		if kind != durable.CallCommit && kind != durable.CallCancel && kind != durable.CallReset && kind != durable.CallAdjustments {
			charge.Limit = weir.TokenBucket(weir.PerSecond(3), 5)
		}
		c.Charges = append(c.Charges, charge)
	}
	return c
}

func someResult() *durable.Result {
	d := weir.Decision{Allowed: true, Reason: weir.ReasonQueueFull, Limit: 4, Remaining: 3, RetryAfter: weir.Never, ResetAfter: 5}
	return &durable.Result{
		Outcome: durable.Granted, Decisions: []weir.Decision{d, {}}, ID: "id", Expires: 5, Lent: 6, Taken: 7,
		State:       store.State{Known: true, Reserved: 2, Reservations: 1, Forgotten: 99, Decision: d},
		Adjustments: []durable.Adjustment{{Time: time.Unix(0, 12345), Permits: -2, Remaining: 3, By: "b", Reason: "r"}},
	}
}

// same reports whether two messages, which have no errors, say the same.
func same(a, b durable.Message) bool {
	text := func(m *durable.Message) string { return fmt.Sprintf("%d %d %+v %+v", m.Kind, m.ID, m.Call, m.Result) }
	return text(&a) == text(&b)
}

// TestCallsTravel: what is sent is what arrives.
func TestCallsTravel(t *testing.T) {
	for kind := durable.CallTake; kind <= durable.CallAdjustments; kind++ {
		m := durable.Message{Kind: durable.MessageCall, ID: 5, Call: someCall(kind)}
		got, err := durable.ParseMessage(must(durable.AppendMessage(nil, &m)))
		if err != nil || !same(got, m) {
			t.Errorf("%+v, %v, want %+v", got.Call, err, m.Call)
		}
	}
	m := durable.Message{Kind: durable.MessageResult, ID: 5, Result: someResult()}
	got, err := durable.ParseMessage(must(durable.AppendMessage(nil, &m)))
	if err != nil || !same(got, m) {
		t.Errorf("%+v, %v, want %+v", got.Result, err, m.Result)
	}
}

// TestErrorsTravel: what an error is survives, and its fields if it says what is wrong with an option.
func TestErrorsTravel(t *testing.T) {
	misuse := &weir.OptionError{Option: "Charge.N", Value: "-1", Accepted: "from 0 to 10^15"}
	for _, c := range []struct{ sent, is error }{
		{durable.ErrNotReserved, store.ErrNotReserved},
		{durable.ErrNoOwner, store.ErrUnavailable},
		{fmt.Errorf("%w: %s", store.ErrUnavailable, strings.Repeat("x", 5000)), store.ErrUnavailable},
		{fmt.Errorf("what is wrong: %w", misuse), nil},
		{errors.New("anything"), nil},
	} {
		for _, m := range []durable.Message{
			{Kind: durable.MessageResult, Result: &durable.Result{Outcome: durable.Unavailable, Err: c.sent}},
			{Kind: durable.MessageAnswer, Answer: durable.Answer{Outcome: durable.Unavailable, Err: c.sent}},
		} {
			got, err := durable.ParseMessage(must(durable.AppendMessage(nil, &m)))
			if err != nil {
				t.Fatal(err)
			}
			err = got.Answer.Err
			if got.Result != nil {
				err = got.Result.Err
			}
			option, ok := errors.AsType[*weir.OptionError](err)
			switch {
			case err == nil || c.is != nil && !errors.Is(err, c.is) || errors.Is(err, store.ErrUnavailable) != errors.Is(c.sent, store.ErrUnavailable):
				t.Errorf("%v arrived as %v", c.sent, err)
			case ok != errors.Is(c.sent, misuse) || ok && *option != *misuse:
				t.Errorf("%v arrived as %v", c.sent, err)
			}
		}
	}
}

// TestMalformedCalls: whatever is cut short, changed or too long is refused, or is another message; nothing panics, and nothing is
// made larger than what was sent.
func TestMalformedCalls(t *testing.T) {
	for _, m := range []durable.Message{
		{Kind: durable.MessageCall, Call: someCall(durable.CallTake)}, {Kind: durable.MessageResult, Result: someResult()},
	} {
		b := must(durable.AppendMessage(nil, &m))
		for n := range b {
			if _, err := durable.ParseMessage(b[:n]); err == nil {
				t.Errorf("%d of %d bytes are a message", n, len(b))
			}
			for _, v := range []byte{0, 1, 0x7f, 0x80, 0xff} {
				bad := append([]byte(nil), b...)
				bad[n] = v
				_, _ = durable.ParseMessage(bad)
			}
		}
		if _, err := durable.ParseMessage(append(b, 0)); err == nil {
			t.Error("a message with something behind it")
		}
	}
	long := someCall(durable.CallTake)
	long.Charges[0].Key = strings.Repeat("k", 200_000)
	b := must(durable.AppendMessage(nil, &durable.Message{Kind: durable.MessageCall, Call: long}))
	if _, err := durable.ParseMessage(b); err == nil {
		t.Error("a call that is too long")
	}
	many := &durable.Call{Kind: durable.CallPeek}
	for i := range store.MostCharges + 1 {
		many.Charges = append(many.Charges, store.Charge{Policy: "p", Key: fmt.Sprint(i), Limit: weir.TokenBucket(weir.PerSecond(1), 0)})
	}
	b = must(durable.AppendMessage(nil, &durable.Message{Kind: durable.MessageCall, Call: many}))
	if _, err := durable.ParseMessage(b); err == nil {
		t.Error("too many charges")
	}
}

// TestMisuseOfCalls: the owner checks what other nodes send.
func TestMisuseOfCalls(t *testing.T) {
	bubble(t, durable.OwnerOptions{}, func(t *testing.T, _ *durable.Memory, o *durable.Owner, _ *durable.MemoryEngine) {
		good := store.Charge{Policy: "p", Key: "k", Limit: perSecond, N: 1}
		none, queue := good, good
		none.Limit, queue.Queue = weir.Limit{}, -1
		for option, c := range map[string]*durable.Call{
			"Call.Kind":     {Kind: 0},
			"Call.Kind ":    {Kind: 99, Charges: []store.Charge{good}},
			"Call.Charges":  {Kind: durable.CallLend},
			"Call.Charges ": {Kind: durable.CallInspect, Charges: []store.Charge{good, good}},
			"Limit.Rate":    {Kind: durable.CallRefund, Charges: []store.Charge{none}},
			"Charge.Key":    {Kind: durable.CallDebit, Charges: []store.Charge{good, good}},
			"Ask.Wait":      {Kind: durable.CallTake, Charges: []store.Charge{good}, Wait: 25 * time.Hour},
			"Ask.Hold":      {Kind: durable.CallTake, Charges: []store.Charge{good}, Expiry: -1},
			"Charge.Queue":  {Kind: durable.CallTake, Charges: []store.Charge{queue}},
			"actual":        {Kind: durable.CallCommit, Charges: []store.Charge{good}, ID: "x"},
			"Hold.ID":       {Kind: durable.CallCancel, Charges: []store.Charge{good}, ID: strings.Repeat("x", 65)},
			"Ask.Least":     {Kind: durable.CallLend, Charges: []store.Charge{good}, Number: 2},
			"actual ":       {Kind: durable.CallReturn, Charges: []store.Charge{good}, Number: 2},
			"most":          {Kind: durable.CallAdjustments, Charges: []store.Charge{good}, Number: 1001},
			"Adjustment.By": {Kind: durable.CallAdjust, Charges: []store.Charge{good}},
		} {
			r := o.Call(t.Context(), c)
			misuse, ok := errors.AsType[*weir.OptionError](r.Err)
			if !ok || misuse.Option != strings.TrimSpace(option) || r.Outcome != durable.Unavailable {
				t.Errorf("%s: %+v", option, r)
			}
		}
	})
}
