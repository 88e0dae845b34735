package httplimit_test

import (
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/manualclock"
)

// TestCalendarWindowsTellNoWrongLength wants w only where all windows are equally long, and t to be exact: 23 hours on a day
// that has no more.
func TestCalendarWindowsTellNoWrongLength(t *testing.T) {
	vienna, err := time.LoadLocation("Europe/Vienna")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		calendar algo.Calendar
		at       time.Time
		want     map[string]string
	}{
		{
			algo.Calendar{Unit: algo.CalendarMonth, Day: 15},
			time.Date(2026, 2, 15, 0, 0, 0, 0, time.UTC),
			map[string]string{"Ratelimit": `"p";r=4;t=2419200`, "Ratelimit-Policy": `"p";q=5`},
		},
		{
			algo.Calendar{Unit: algo.CalendarDay, Zone: vienna},
			time.Date(2026, 3, 29, 0, 0, 0, 0, vienna),
			map[string]string{"Ratelimit": `"p";r=4;t=82800`, "Ratelimit-Policy": `"p";q=5`},
		},
		{
			algo.Calendar{Unit: algo.CalendarDay},
			time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC),
			map[string]string{"Ratelimit": `"p";r=4;t=86400`, "Ratelimit-Policy": `"p";q=5;w=86400`},
		},
	} {
		clock := manualclock.New(c.at.UnixNano())
		window, err := weir.New(weir.CalendarWindow(5, c.calendar), weir.Options{Name: "p", Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		keyed, err := weir.NewKeyed[string](weir.CalendarWindow(5, c.calendar), weir.KeyedOptions{
			Name: "p", Clock: clock,
		})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, get(limit(t, httplimit.Options{Limiter: window})(ok)).header, c.want)
		expect(t, get(limit(t, httplimit.Options{Keyed: keyed})(ok)).header, c.want)
	}
}
