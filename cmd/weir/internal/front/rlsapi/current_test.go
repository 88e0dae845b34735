package rlsapi

import (
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

func TestCurrentLimit(t *testing.T) {
	per := func(n int64, period time.Duration) weir.Limit {
		return weir.TokenBucket(weir.Rate{Permits: n, Period: period}, 0)
	}
	calendar := func(unit algo.CalendarUnit) weir.Limit {
		return weir.CalendarWindow(7, algo.Calendar{Unit: unit})
	}
	for _, c := range []struct {
		limit    weir.Limit
		requests int64
		unit     int32
		multiple int64
	}{
		{per(5, time.Second), 5, unitSecond, 1},
		{per(5, 10*time.Second), 5, unitSecond, 10},
		{per(5, time.Minute), 5, unitMinute, 1},
		{per(5, 90*time.Minute), 5, unitMinute, 90},
		{per(5, 12*time.Hour), 5, unitHour, 12},
		{per(5, 24*time.Hour), 5, unitDay, 1},
		{per(5, 168*time.Hour), 5, unitWeek, 1},
		{per(5, 30*24*time.Hour), 5, unitMonth, 1},
		{per(5, 365*24*time.Hour), 5, unitYear, 1},
		{per(5, 100*time.Millisecond), 50, unitSecond, 1},
		{per(3, 1500*time.Millisecond), 2, unitSecond, 1},
		{per(1, 2500*time.Millisecond), 1, unitSecond, 1},
		{calendar(algo.CalendarDay), 7, unitDay, 1},
		{calendar(algo.CalendarQuarter), 7, unitMonth, 3},
		{calendar(algo.CalendarYear), 7, unitYear, 1},
		{weir.AtOnce(7), 7, unitUnknown, 1},
	} {
		got := currentOf(c.limit, weir.Decision{Limit: 7, Policy: "p"})
		if want := (currentLimit{c.requests, c.unit, c.multiple, "p"}); got != want {
			t.Errorf("%v: %+v, want %+v", c.limit, got, want)
		}
	}
}
