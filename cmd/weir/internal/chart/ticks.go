package chart

import (
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
)

const day = 24 * time.Hour

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

// timeTicks marks the times from start to end, in units of step since start. A label has the time of day, and below it the date
// where that is another one than at the label before.
func timeTicks(start, end time.Time, step time.Duration, labels bool) []plot.Tick {
	spacing := spacings[len(spacings)-1]
	for _, s := range spacings {
		if end.Sub(start) <= s*mostLabels {
			spacing = s
			break
		}
	}
	var ticks []plot.Tick
	shown := ""
	for at := start.Truncate(spacing); !at.After(end); at = at.Add(spacing) {
		if at.Before(start) {
			continue
		}
		label := " " // a mark without a label has no line
		if labels {
			label, shown = timeLabel(at, spacing, shown)
			if !strings.Contains(label, "\n") {
				label += "\n " // so that all have two lines, and their first ones are level
			}
		}
		ticks = append(ticks, plot.Tick{Value: float64(at.Sub(start)) / float64(step), Label: label})
	}
	return ticks
}

// timeLabel returns the label of a time, and the date that it is of. The date shown stands at
// a label before already.
func timeLabel(at time.Time, spacing time.Duration, shown string) (label, date string) {
	switch {
	case spacing >= 28*day:
		return at.Format("Jan 2006"), ""
	case spacing >= day:
		date = at.Format("2006")
		if date != shown {
			return at.Format("2 Jan\n2006"), date
		}
		return at.Format("2 Jan"), date
	}
	layout := "15:04"
	switch {
	case spacing < time.Second:
		layout = "15:04:05.000"
	case spacing < time.Minute:
		layout = "15:04:05"
	}
	date = at.Format("2 Jan 2006")
	if date != shown {
		return at.Format(layout) + "\n" + date, date
	}
	return at.Format(layout), date
}

// countTicks marks about three round numbers up to top, and 0.
func countTicks(top int64) []plot.Tick {
	unit := int64(1)
	for top/unit > 3 {
		for _, factor := range []int64{2, 5, 10} {
			if next := unit * factor; top/next <= 3 || factor == 10 {
				unit = next
				break
			}
		}
	}
	var ticks []plot.Tick
	for n := int64(0); n <= top; n += unit {
		ticks = append(ticks, plot.Tick{Value: float64(n), Label: thousands(n)})
	}
	return ticks
}

// thousands is n with a comma between each three digits.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
