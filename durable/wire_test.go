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

// someCalls are calls of every kind, with all that counts for them.
func someCalls() (all []*durable.Call) {
	for mode := store.ModeTake; mode <= store.ModeReset; mode++ {
		ask := store.Ask{Mode: mode, Wait: time.Second, Hold: time.Minute, Least: 3}
		all = append(all, &durable.Call{Verb: durable.VerbDo, Ask: ask})
	}
	all = append(all,
		&durable.Call{Verb: durable.VerbDo, Ask: store.Ask{Mode: store.ModePeek, States: make([]store.State, 2)}},
		&durable.Call{Verb: durable.VerbSettle, Hold: store.Hold{ID: "id", Expires: 77}, Actual: []int64{1, 2}},
		&durable.Call{Verb: durable.VerbSettle, Hold: store.Hold{ID: "id", Expires: 77}},
		&durable.Call{Verb: durable.VerbSettle, Hold: store.Hold{Taken: 4}, Actual: []int64{1}},
		&durable.Call{Verb: durable.VerbAdjust, Adjustment: &durable.Adjustment{Permits: -5, By: "somebody", Reason: "a reason"}},
		&durable.Call{Verb: durable.VerbAdjustments, Most: 3},
	)
	for _, c := range all {
		for i := range 2 {
			charge := store.Charge{Policy: "p", Key: fmt.Sprint(i), N: int64(i), Queue: 9}
			if c.Ask.Mode != store.ModeReset && c.Verb != durable.VerbAdjustments {
				charge.Limit = weir.TokenBucket(weir.PerSecond(3), 5)
			}
			c.Charges = append(c.Charges, charge)
		}
	}
	return all
}

func someResult() *durable.Result {
	d := weir.Decision{Allowed: true, Reason: weir.ReasonQueueFull, Limit: 4, Remaining: 3, RetryAfter: weir.Never, ResetAfter: 5}
	return &durable.Result{
		Reason: weir.ReasonQueueFull, Decisions: []weir.Decision{d, {}}, Hold: store.Hold{ID: "id", Expires: 5, Taken: 7}, Lent: 6,
		States:      []store.State{{Known: true, Reserved: 2, Reservations: 1, Forgotten: 99, Decision: d}},
		Adjustments: []durable.Adjustment{{Time: time.Unix(0, 12345), Permits: -2, Remaining: 3, By: "b", Reason: "r"}},
	}
}

// same reports whether two messages, which have no errors, say the same.
func same(a, b durable.Message) bool {
	text := func(m *durable.Message) string {
		if m.Call == nil {
			return fmt.Sprintf("%d %d %+v", m.Kind, m.ID, m.Result)
		}
		c := *m.Call
		c.Adjustment = nil
		return fmt.Sprintf("%d %d %+v %+v", m.Kind, m.ID, c, m.Call.Adjustment)
	}
	return text(&a) == text(&b)
}

// TestCallsTravel: what is sent is what arrives.
func TestCallsTravel(t *testing.T) {
	for _, c := range someCalls() {
		m := durable.Message{Kind: durable.MessageCall, ID: 5, Call: c}
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
		m := durable.Message{Kind: durable.MessageResult, Result: &durable.Result{Reason: weir.ReasonUnavailable, Err: c.sent}}
		got, err := durable.ParseMessage(must(durable.AppendMessage(nil, &m)))
		if err != nil {
			t.Fatal(err)
		}
		err = got.Result.Err
		option, ok := errors.AsType[*weir.OptionError](err)
		switch {
		case err == nil || c.is != nil && !errors.Is(err, c.is) || errors.Is(err, store.ErrUnavailable) != errors.Is(c.sent, store.ErrUnavailable):
			t.Errorf("%v arrived as %v", c.sent, err)
		case ok != errors.Is(c.sent, misuse) || ok && *option != *misuse:
			t.Errorf("%v arrived as %v", c.sent, err)
		}
	}
}

// TestMalformedCalls: whatever is cut short, changed or too long is refused, or is another message; nothing panics, and nothing is
// made larger than what was sent.
func TestMalformedCalls(t *testing.T) {
	messages := []durable.Message{{Kind: durable.MessageResult, Result: someResult()}}
	for _, c := range someCalls() {
		messages = append(messages, durable.Message{Kind: durable.MessageCall, Call: c})
	}
	for _, m := range messages {
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
	before := must(durable.AppendMessage(nil, &messages[0]))
	before[0] = 2 // without the limits of what is settled
	if _, err := durable.ParseMessage(before); err == nil {
		t.Error("a message of the version before")
	}
	long := someCalls()[0]
	long.Charges[0].Key = strings.Repeat("k", 200_000)
	b := must(durable.AppendMessage(nil, &durable.Message{Kind: durable.MessageCall, Call: long}))
	if _, err := durable.ParseMessage(b); err == nil {
		t.Error("a call that is too long")
	}
	many := &durable.Call{Verb: durable.VerbDo, Ask: store.Ask{Mode: store.ModePeek}}
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
		one, two := []store.Charge{good}, []store.Charge{good, good}
		for option, c := range map[string]*durable.Call{
			"charges":       {Verb: durable.VerbDo, Ask: store.Ask{Mode: store.ModeLend}},
			"charges ":      {Verb: durable.VerbSettle, Charges: two},
			"charges  ":     {Verb: durable.VerbAdjust, Adjustment: new(durable.Adjustment)},
			"charges   ":    {Verb: durable.VerbAdjustments, Charges: two, Most: 1},
			"Limit.Rate":    {Verb: durable.VerbDo, Ask: store.Ask{Mode: store.ModeRefund}, Charges: []store.Charge{none}},
			"Charge.Key":    {Verb: durable.VerbDo, Ask: store.Ask{Mode: store.ModeDebit}, Charges: two},
			"Ask.Wait":      {Verb: durable.VerbDo, Ask: store.Ask{Wait: 25 * time.Hour}, Charges: one},
			"Ask.Hold":      {Verb: durable.VerbDo, Ask: store.Ask{Hold: -1}, Charges: one},
			"Charge.Queue":  {Verb: durable.VerbDo, Charges: []store.Charge{queue}},
			"actual":        {Verb: durable.VerbSettle, Hold: store.Hold{ID: "x"}, Charges: one, Actual: []int64{}},
			"Hold.ID":       {Verb: durable.VerbSettle, Hold: store.Hold{ID: strings.Repeat("x", 65)}, Charges: one},
			"Ask.Least":     {Verb: durable.VerbDo, Ask: store.Ask{Mode: store.ModeLend, Least: 2}, Charges: one},
			"actual ":       {Verb: durable.VerbSettle, Charges: one, Actual: []int64{2}},
			"most":          {Verb: durable.VerbAdjustments, Charges: one, Most: 1001},
			"Adjustment.By": {Verb: durable.VerbAdjust, Adjustment: new(durable.Adjustment), Charges: one},
		} {
			r := durable.Carry(t.Context(), o, c)
			misuse, ok := errors.AsType[*weir.OptionError](r.Err)
			if !ok || misuse.Option != strings.TrimSpace(option) || r.Reason != weir.ReasonUnavailable {
				t.Errorf("%s: %+v", option, r)
			}
		}
	})
}
