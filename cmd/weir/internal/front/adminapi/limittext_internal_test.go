package adminapi

import (
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

// TestLimitsAreReadAsTheyAreShown: an override takes the text of every limit that the API shows, and the short forms.
func TestLimitsAreReadAsTheyAreShown(t *testing.T) {
	month := algo.Calendar{Unit: algo.CalendarMonth, Day: 15}
	for _, c := range []struct {
		like, want weir.Limit
		short      string
	}{
		{weir.TokenBucket(weir.PerSecond(10), 20), weir.TokenBucket(weir.PerMinute(3), 7), "3/min, burst 7"},
		{weir.TokenBucket(weir.PerSecond(10), 20), weir.TokenBucket(weir.PerMinute(3), 0), "3/min"},
		{weir.FixedWindow(weir.PerSecond(10)), weir.FixedWindow(weir.PerMinute(3)), "3/min"},
		{weir.SlidingWindow(weir.PerSecond(10), 5), weir.SlidingWindow(weir.PerMinute(3), 5), "3/min"},
		{weir.SlidingCounter(weir.PerSecond(10)), weir.SlidingCounter(weir.PerMinute(3)), "3/min"},
		{weir.AtOnce(3), weir.AtOnce(5), "5"},
		{weir.CalendarWindow(3, month), weir.CalendarWindow(5, month), "5"},
	} {
		for _, text := range []string{c.want.String(), " " + c.want.String() + " ", c.short} {
			if l, err := parseLimit(text, c.like); err != nil || l != c.want {
				t.Errorf("%q for %v: %v, %v", text, c.like, l, err)
			}
		}
		for _, text := range []string{"", "fast", "0", "-1", "1e3", c.like.Algorithm().String(), "5 at twice", "3/min, burst", "3/min, burst 0"} {
			if l, err := parseLimit(text, c.like); err == nil {
				t.Errorf("%q for %v is read as %v", text, c.like, l)
			}
		}
	}
	for text, like := range map[string]weir.Limit{
		"4 at once": weir.TokenBucket(weir.PerSecond(1), 1), "10/s, burst 20": weir.FixedWindow(weir.PerSecond(1)),
		"5 per day": weir.CalendarWindow(3, month), "10/s": weir.AtOnce(3),
		"sliding-window 3/min in 10 segments": weir.SlidingWindow(weir.PerSecond(1), 5),
	} {
		if l, err := parseLimit(text, like); err == nil {
			t.Errorf("%q for %v is read as %v", text, like, l)
		}
	}
}
