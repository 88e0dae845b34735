package store_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/store"
)

// FuzzParseLimit: bytes are refused, or are a limit that is good and has one binary form, which reads as the same limit.
func FuzzParseLimit(f *testing.F) {
	for _, l := range []weir.Limit{
		weir.TokenBucket(weir.PerSecond(5), 20),
		weir.TokenBucket(weir.Rate{Permits: 1e15, Period: 1}, 0),
		weir.FixedWindow(weir.PerSecond(6)),
		weir.SlidingWindow(weir.PerSecond(6), 3),
		weir.SlidingCounter(weir.PerSecond(6)),
		weir.CalendarWindow(6, algo.Calendar{Unit: algo.CalendarMonth, Day: 31, Hour: 5}),
		weir.CalendarWindow(6, algo.Calendar{Unit: algo.CalendarDay, Zone: time.FixedZone("", 3600)}),
		weir.AtOnce(6),
	} {
		if b, err := store.AppendLimit(nil, l); err == nil {
			f.Add(b)
		}
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := store.ParseLimit(b)
		if err != nil {
			return
		}
		if wrong := l.Check(); wrong != nil {
			t.Fatalf("%x was read as %+v: %v", b, l, wrong)
		}
		form, err := store.AppendLimit(nil, l)
		if err != nil {
			t.Fatalf("%+v: %v", l, err)
		}
		same, err := store.ParseLimit(form)
		if err != nil || same.String() != l.String() {
			t.Fatalf("%x was read as %v, which is read as %v: %v", b, l, same, err)
		}
		if again, err := store.AppendLimit(nil, same); err != nil || !bytes.Equal(again, form) {
			t.Fatalf("%x, %x: %v", form, again, err)
		}
		if r, err := store.NewRecord(l, time.Hour.Nanoseconds()); err != nil || r.Peek(r.Most()+1).Allowed {
			t.Fatalf("%+v: %v", l, err)
		}
	})
}
