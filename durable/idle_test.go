package durable_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
)

// TestIdleKeysAreNotWritten: nothing is written for keys that are not used - full again, not yet, ahead of what was taken, with
// reservations that expire or do not, with a caller that waits - although all records are gone through every second.
func TestIdleKeysAreNotWritten(t *testing.T) {
	bubble(t, durable.OwnerOptions{Sweep: time.Second, Reserve: 40}, func(t *testing.T, m *durable.Memory, o *durable.Owner, _ *durable.MemoryEngine) {
		fast, slow := weir.TokenBucket(weir.PerSecond(100), 100), weir.TokenBucket(weir.Per(1, time.Hour), 100)
		for _, r := range []spectest.Request{
			{Policy: "p", Key: "full again", Limit: fast, N: 3},
			{Policy: "p", Key: "spent", Limit: slow, N: 100},
			{Policy: "p", Key: "some left", Limit: slow, N: 50},
			{Policy: "p", Key: "expires", Limit: fast, N: 50, Hold: 5 * time.Minute},
			{Policy: "p", Key: "reserved", Limit: slow, N: 50, Hold: time.Hour},
		} {
			want(t, spectest.Acquire(t.Context(), o, r), weir.ReasonNone)
		}
		for range 60 { // so that their records are ahead
			for _, l := range []weir.Limit{fast, slow} {
				want(t, spectest.Acquire(t.Context(), o, spectest.Request{Policy: "p", Key: "ahead" + l.String(), Limit: l, N: 1}), weir.ReasonNone)
			}
		}
		waits := spectest.Request{Policy: "p", Key: "spent", Limit: slow, N: 2, Wait: time.Hour, Queue: 10}
		waiting, _ := collect(o, waits)
		time.Sleep(100 * time.Millisecond) // until what they are ahead was written
		synctest.Wait()
		writes, records := m.Writes(), m.Records()
		time.Sleep(10 * time.Minute)
		if n := m.Writes() - writes; n != 0 {
			t.Errorf("%d writes", n)
		}
		if n := m.Records(); n != records-3 { // two that are full again, and one that has expired
			t.Errorf("%d records, and were %d", n, records)
		}
		want(t, waiting.answer(), unanswered)
	})
}
