package redis

import (
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	parts "github.com/weirhq/weir/internal/limits"
)

// family is limits that one key is held to one after another.
type family struct {
	name   string
	limits []weir.Limit
	scale  time.Duration // of the times between two calls
	most   int64         // permits asked for at a time
}

func families() []family {
	bucket := func(n int64, period time.Duration, burst int64) weir.Limit {
		return weir.TokenBucket(weir.Per(n, period), burst)
	}
	windows := func(a weir.Algorithm, segments ...int) []weir.Limit {
		var limits []weir.Limit
		for i, window := range []time.Duration{time.Second, time.Minute, 7777777 * time.Microsecond, 3000 * 24 * time.Hour} {
			for _, n := range []int64{1, 7, 1000, 1e15} {
				cut := 0
				if len(segments) > 0 {
					cut = segments[i%len(segments)]
				}
				l, _ := parts.Of(a, weir.Per(n, window), 0, cut, algo.Calendar{})
				if l.Check() == nil {
					limits = append(limits, l)
				}
			}
		}
		return limits
	}
	vienna := must(time.LoadLocation("Europe/Vienna"))
	calendar := func(c algo.Calendar) []weir.Limit {
		return []weir.Limit{
			weir.CalendarWindow(5, c),
			weir.CalendarWindow(100, c),
		}
	}
	return []family{
		{"buckets", []weir.Limit{
			bucket(1, time.Second, 1), bucket(10, time.Second, 20), bucket(7, 3*time.Second, 5), bucket(3, 10*time.Microsecond, 1000),
		}, time.Second, 1e15},
		{"odd buckets", []weir.Limit{
			bucket(1000003, 30*24*time.Hour, 1000003), bucket(7777777, 24*time.Hour, 7777777), bucket(999983, 1234567*time.Microsecond, 1e9),
			bucket(1, 1500*time.Nanosecond, 10), bucket(3e14-11, 3660*24*time.Hour, 1e15),
		}, time.Hour, 1e9},
		{"slow buckets", []weir.Limit{bucket(1, 3660*24*time.Hour, 5), bucket(2, 24*time.Hour, 3)}, 40 * 24 * time.Hour, 1e15},
		{"fixed", windows(weir.AlgorithmFixedWindow), 2 * time.Second, 1e15},
		{"sliding", windows(weir.AlgorithmSlidingWindow, 1, 7, 10, 64), 500 * time.Millisecond, 1e15},
		{"counter", windows(weir.AlgorithmSlidingCounter), 700 * time.Millisecond, 1e15},
		{"concurrency", []weir.Limit{
			weir.AtOnce(1), weir.AtOnce(10),
		}, time.Second, 1e15},
		{"minutes", calendar(algo.Calendar{Unit: algo.CalendarMinute}), 20 * time.Second, 1e15},
		{"days", calendar(algo.Calendar{Unit: algo.CalendarDay, Zone: vienna, Hour: 2, Minute: 30}), 9 * time.Hour, 1e15},
		{"months", calendar(algo.Calendar{Unit: algo.CalendarMonth, Zone: vienna, Day: 31}), 12 * 24 * time.Hour, 1e15},
		{"several", []weir.Limit{
			bucket(10, time.Second, 20),
			weir.FixedWindow(weir.PerSecond(10)),
			weir.SlidingWindow(weir.PerSecond(10), 5),
			weir.SlidingCounter(weir.PerSecond(10)),
			weir.AtOnce(10),
			weir.CalendarWindow(10, algo.Calendar{Unit: algo.CalendarMinute}),
		}, time.Second, 1e15},
	}
}
