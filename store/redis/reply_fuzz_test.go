package redis

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/store"
)

// FuzzDecision: whatever a server replies, it is refused, or a decision that the limit can have.
func FuzzDecision(f *testing.F) {
	limits := []weir.Limit{
		weir.TokenBucket(weir.PerSecond(3), 20),
		weir.TokenBucket(weir.PerSecond(1_000_000_000), algo.MaxPermits),
		weir.TokenBucket(weir.Per(1, 3660*24*time.Hour), 1),
		weir.FixedWindow(weir.PerHour(100)),
		weir.FixedWindow(weir.Per(7, time.Microsecond)),
		weir.SlidingWindow(weir.PerSecond(6), 3),
		weir.SlidingCounter(weir.PerSecond(6)),
		weir.CalendarWindow(6, algo.Calendar{Unit: algo.CalendarMonth}),
		weir.AtOnce(6),
	}
	now := float64(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixMicro())
	for i, words := range [][]float64{
		{now, 1e6, 0}, {now, 1e6, 1}, {now, 0, 0}, {now, now, 3, 1}, {now, now, 3, 1}, {now, 5, 1, 2, 3}, {now, now, 3, 5}, {now, now, 6}, {now, 3},
	} {
		reply := []byte{answerRefused}
		for k, v := range words {
			if k == 1 && i == 5 {
				reply = append(reply, 4)
			}
			reply = binary.LittleEndian.AppendUint64(reply, math.Float64bits(v))
		}
		f.Add(byte(i), reply, int64(1), int64(now))
		reply[0] = answerAllowed
		f.Add(byte(i), reply, int64(5), int64(now)-7)
	}
	f.Fuzz(func(t *testing.T, which byte, reply []byte, n, now int64) {
		limit := limits[int(which)%len(limits)]
		w, err := lawOf(limit)
		if err != nil {
			t.Fatal(err)
		}
		c := store.Charge{Policy: "p", Key: "k", Limit: limit, N: min(max(n, 0), algo.MaxPermits)}
		r := reader{rest: string(reply), now: min(max(now, -1<<53), 1<<53)}
		d := w.decision(&r, c.N, c.Policy)
		if r.end(&c) != nil {
			return
		}
		if d.Limit != limit.Permits() || d.Remaining < 0 || d.Remaining > d.Limit || d.RetryAfter < 0 || d.ResetAfter < 0 ||
			d.Allowed && (d.RetryAfter != 0 || d.Reason != 0) || !d.Allowed && d.Reason == 0 {
			t.Fatalf("%v of %d permits: %x is %+v", limit, c.N, reply, d)
		}
	})
}
