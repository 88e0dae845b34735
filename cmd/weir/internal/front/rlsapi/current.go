package rlsapi

import (
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/internal/inside"
	"github.com/weirhq/weir/internal/limits"
)

const (
	day   = 24 * time.Hour
	week  = 7 * day
	month = 30 * day
	year  = 365 * day
)

// The units of a status.
const (
	unitUnknown = int32(ratelimitv3.RateLimitResponse_RateLimit_UNKNOWN)
	unitSecond  = int32(ratelimitv3.RateLimitResponse_RateLimit_SECOND)
	unitMinute  = int32(ratelimitv3.RateLimitResponse_RateLimit_MINUTE)
	unitHour    = int32(ratelimitv3.RateLimitResponse_RateLimit_HOUR)
	unitDay     = int32(ratelimitv3.RateLimitResponse_RateLimit_DAY)
	unitWeek    = int32(ratelimitv3.RateLimitResponse_RateLimit_WEEK)
	unitMonth   = int32(ratelimitv3.RateLimitResponse_RateLimit_MONTH)
	unitYear    = int32(ratelimitv3.RateLimitResponse_RateLimit_YEAR)
)

// lengths are the units by their lengths, the longest first.
var lengths = [...]struct {
	unit   int32
	length time.Duration
}{
	{unitYear, year},
	{unitMonth, month},
	{unitWeek, week},
	{unitDay, day},
	{unitHour, time.Hour},
	{unitMinute, time.Minute},
	{unitSecond, time.Second},
}

var calendarUnits = map[algo.CalendarUnit]currentLimit{
	algo.CalendarMinute:  {unit: unitMinute, multiplier: 1},
	algo.CalendarHour:    {unit: unitHour, multiplier: 1},
	algo.CalendarDay:     {unit: unitDay, multiplier: 1},
	algo.CalendarWeek:    {unit: unitWeek, multiplier: 1},
	algo.CalendarMonth:   {unit: unitMonth, multiplier: 1},
	algo.CalendarQuarter: {unit: unitMonth, multiplier: 3},
	algo.CalendarYear:    {unit: unitYear, multiplier: 1},
}

// currentOf is a limit as it is told: in the longest unit of which its period is a multiple. A period that is not of whole
// seconds is told as a rate for each second, rounded down. A limit without a period has no unit.
func currentOf(l weir.Limit, d weir.Decision) currentLimit {
	c := currentLimit{requests: d.Limit, unit: unitUnknown, multiplier: 1, name: d.Policy}
	switch {
	case l.Algorithm() == weir.AlgorithmCalendarWindow:
		of := calendarUnits[l.Calendar().Unit]
		c.unit, c.multiplier = of.unit, max(of.multiplier, 1)
	case l.Rate().Period <= 0:
	case l.Rate().Period%time.Second != 0:
		c.unit = unitSecond
		c.requests = max(int64(float64(l.Rate().Permits)*float64(time.Second)/float64(l.Rate().Period)), 1)
	default:
		c.requests = l.Rate().Permits
		for i := range lengths {
			if u := &lengths[i]; l.Rate().Period%u.length == 0 {
				c.unit, c.multiplier = u.unit, int64(l.Rate().Period/u.length)
				break
			}
		}
	}
	return c
}

// resetOf is in how long all permits of a limit are back, as clients are told it. If all are there already it is 0, but never on
// a refusal, nor of a window: that ends even if nothing of it is used.
func (s *service) resetOf(l weir.Limit, d *weir.Decision) time.Duration {
	reset := d.ResetAfter
	switch a := l.Algorithm(); {
	case reset > 0, d.Allowed && a != weir.AlgorithmFixedWindow && a != weir.AlgorithmCalendarWindow:
		return reset
	case !d.Allowed && !refusedByLimit(*d) && d.RetryAfter != weir.Never:
		reset = d.RetryAfter
	case a == weir.AlgorithmCalendarWindow:
		reset = s.restOf(l)
	default:
		reset = l.Rate().Period // at most: the windows of a limiter begin when it is made
	}
	return max(reset, time.Second)
}

// restOf is how long the current window of a calendar lasts.
func (s *service) restOf(l weir.Limit) time.Duration {
	w, err := limits.Made(l, inside.MadeByEnvoy, windowOf)
	if err != nil {
		return 0
	}
	now := time.Now().UnixNano()
	if s.o.Clock != nil {
		now = s.o.Clock.Now()
	}
	_, end := w.Window(now)
	return time.Duration(end - now)
}

func windowOf(l weir.Limit) (*algo.Window, error) {
	w, err := algo.NewCalendarWindow(l.Permits(), l.Calendar())
	return &w, err
}
