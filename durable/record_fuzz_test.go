package durable

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/store"
)

// FuzzRecord: whatever a record says, it is refused or read as what it says, and nothing that can be done with it then grants more
// than its limit.
func FuzzRecord(f *testing.F) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()
	for _, l := range []weir.Limit{
		weir.TokenBucket(weir.PerSecond(5), 20),
		weir.FixedWindow(weir.PerSecond(6)),
		weir.SlidingWindow(weir.PerSecond(6), 3),
		weir.SlidingCounter(weir.PerSecond(6)),
		weir.CalendarWindow(6, algo.Calendar{Unit: algo.CalendarMonth}),
		weir.AtOnce(6),
	} {
		r, err := store.NewRecord(l, now)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encodeRecord("name", r, 0)[sealSize:], int64(0))
		r.Reserve("id", 2, time.Minute)
		f.Add(encodeRecord("name", r, 3)[sealSize:], int64(time.Second))
		if l.Algorithm() != weir.AlgorithmConcurrency {
			r.Take(1)
			r.Debit(10)
		}
		f.Add(encodeRecord("name", r, maxRecordAhead)[sealSize:], int64(time.Hour))
	}
	f.Add([]byte{}, int64(0))
	f.Fuzz(func(t *testing.T, b []byte, after int64) {
		if _, _, err := decodeRecord("name", b); err != nil && !errors.Is(err, errMalformed) && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		state, ahead, err := decodeRecord("name", seal("name", append(make([]byte, sealSize), b...)))
		if err != nil {
			if !errors.Is(err, errMalformed) {
				t.Fatal(err)
			}
			return
		}
		if ahead < 0 || ahead > maxRecordAhead {
			t.Fatal(ahead)
		}
		again := encodeRecord("name", state, ahead)
		if same, n, err := decodeRecord("name", again); err != nil || n != ahead || !bytes.Equal(encodeRecord("name", same, n), again) {
			t.Fatalf("%v: %x is not what %x was", err, again, b)
		}
		at := now + max(min(after, int64(1000*time.Hour)), -int64(1000*time.Hour))
		if _, err := state.Advance(at, state.Limit()); err != nil {
			t.Fatal(err)
		}
		before := state.Peek(0).Remaining
		state.Burn(ahead)
		left := state.Peek(0).Remaining
		if concurrent := state.Limit().Algorithm() == weir.AlgorithmConcurrency; left < 0 || left > state.Most() ||
			!concurrent && left != max(0, before-ahead) || concurrent && left != before {
			t.Fatalf("%d of %d were left, and %d after burning %d", before, state.Most(), left, ahead)
		}
		granted := int64(0)
		for n := left; n > 0; n /= 2 {
			if _, r := state.Take(n); r.Allowed {
				granted += n
			}
		}
		if granted > left {
			t.Fatalf("%d granted of %d", granted, left)
		}
		if _, _, err := decodeRecord("name", encodeRecord("name", state, 0)); err != nil && state.Limit().Algorithm() != weir.AlgorithmConcurrency {
			t.Fatal(err)
		}
	})
}
