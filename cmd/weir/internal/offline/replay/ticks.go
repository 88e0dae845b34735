package replay

import (
	"time"
)

// spacings are distances between two labels that people are used to.
var spacings = []time.Duration{
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	day, 2 * day, 7 * day, 14 * day, 28 * day, 91 * day, 182 * day, 364 * day, 5 * 364 * day, 20 * 364 * day,
}

// mostLabels is how many labels of a time have room below a panel.
const mostLabels = 12

// timeTick is a time that is marked. Its date is empty where it is that of the label before.
type timeTick struct {
	at          time.Time
	label, date string
}

// timeTicks marks the times from start to end.
func timeTicks(start, end time.Time) (ticks []timeTick) {
	spacing := spacings[len(spacings)-1]
	for _, s := range spacings {
		if end.Sub(start) <= s*mostLabels {
			spacing = s
			break
		}
	}
	shown := ""
	for at := start.Truncate(spacing); !at.After(end); at = at.Add(spacing) {
		if at.Before(start) {
			continue
		}
		tick := timeTick{at: at}
		tick.label, tick.date = timeLabel(at, spacing)
		if tick.date == shown {
			tick.date = ""
		} else {
			shown = tick.date
		}
		ticks = append(ticks, tick)
	}
	return ticks
}

// timeLabel returns the label of a time, and the date that stands below it.
func timeLabel(at time.Time, spacing time.Duration) (label, date string) {
	switch {
	case spacing >= 28*day:
		return at.Format("Jan 2006"), ""
	case spacing >= day:
		return at.Format("2 Jan"), at.Format("2006")
	case spacing < time.Second:
		label = at.Format("15:04:05.000")
	case spacing < time.Minute:
		label = at.Format("15:04:05")
	default:
		label = at.Format("15:04")
	}
	return label, at.Format("2 Jan 2006")
}

// countTicks marks about three round numbers up to top, and 0.
func countTicks(top int64) (ticks []int64) {
	unit := int64(1)
	for top/unit > 3 {
		for _, factor := range []int64{2, 5, 10} {
			if next := unit * factor; top/next <= 3 || factor == 10 {
				unit = next
				break
			}
		}
	}
	for n := int64(0); n <= top; n += unit {
		ticks = append(ticks, n)
	}
	return ticks
}
