package bounds

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Window is a limit of so many permits in each window of time: a fixed one, or one that slides by segments.
type Window struct {
	Permits int64
	Length  time.Duration
	// Segments is how many a sliding window has; 1 is a fixed window.
	Segments int
	// Aligned says that the windows begin at the multiples of their length by a clock that is Offset ahead of that of the
	// events. Otherwise it is not known where they begin.
	Aligned bool
	Offset  int64
	// Slack is by how much that clock may have been set meanwhile.
	Slack time.Duration
}

// Allowed implements [Limit]. A span touches so many segments at most, and as many permits are granted in each Segments of
// them.
func (w Window) Allowed(span time.Duration) float64 {
	segment := float64(w.Length) / float64(w.Segments)
	touched := math.Floor(float64(span+w.Slack)/segment) + 2
	return float64(w.Permits) * math.Ceil(touched/float64(w.Segments))
}

// Minted implements [Limit].
func (w Window) Minted(events []Event) Breach {
	granted := slices.Clone(events)
	granted = slices.DeleteFunc(granted, func(e Event) bool { return e.Kind != Granted || e.N == 0 })
	if len(granted) == 0 {
		return Breach{}
	}
	slices.SortFunc(granted, func(x, y Event) int { return cmp.Compare(x.Sent, y.Sent) })
	worst := w.inSpans(granted, events)
	if w.Aligned && w.Segments == 1 {
		if b := w.inWindows(granted, events); b.Permits > worst.Permits {
			worst = b
		}
	}
	return worst
}

// inWindows looks at what can only have been granted in one window.
func (w Window) inWindows(granted, events []Event) (worst Breach) {
	sums := make(map[int64]int64)
	for i := range events {
		if !events[i].Kind.gives() {
			continue
		}
		for at := w.window(events[i].Sent, -1); at <= w.window(events[i].Received, 1); at++ {
			sums[at] -= events[i].N
		}
	}
	for i := range granted {
		e := &granted[i]
		at := w.window(e.Sent, -1)
		if at != w.window(e.Received, 1) {
			continue
		}
		sums[at] += e.N
		if over := float64(sums[at] - w.Permits); over > worst.Permits {
			from := at*int64(w.Length) - w.Offset
			worst = Breach{Permits: over, From: time.Duration(from), To: time.Duration(from) + w.Length, Times: 1}
		}
	}
	return worst
}

// window is the number of the window at a time, by a clock that may be ahead or behind.
func (w Window) window(at, sign int64) int64 {
	return (at + w.Offset + sign*int64(w.Slack)) / int64(w.Length)
}

// inSpans looks at all spans up to as many segments as can have no more than the limit, wherever they begin, and at the whole.
func (w Window) inSpans(granted, events []Event) (worst Breach) {
	look := func(from, to, sum int64) {
		over := float64(sum) - w.Allowed(time.Duration(to-from))
		for i := range events {
			if over > worst.Permits && events[i].Kind.gives() && events[i].Sent <= to && events[i].Received >= from {
				over -= float64(events[i].N)
			}
		}
		if over > worst.Permits {
			worst = Breach{Permits: over, From: time.Duration(from), To: time.Duration(to), Times: 1}
		}
	}
	spans := []time.Duration{0, w.Length, 10 * w.Length}
	if w.Segments > 1 {
		// The longest one that touches no more segments than a window has.
		spans[0] = w.Length*time.Duration(w.Segments-1)/time.Duration(w.Segments) - w.Slack - 1
	}
	for _, span := range spans {
		for i := range granted {
			from := granted[i].Sent
			var sum int64
			to := from
			for j := i; j < len(granted) && granted[j].Sent <= from+int64(span); j++ {
				if granted[j].Received <= from+int64(span) {
					sum += granted[j].N
					to = max(to, granted[j].Received)
				}
			}
			if float64(sum) > float64(w.Permits) {
				look(from, to, sum)
			}
		}
	}
	var sum int64
	last := int64(math.MinInt64)
	for i := range granted {
		sum += granted[i].N
		last = max(last, granted[i].Received)
	}
	look(granted[0].Sent, last, sum)
	return worst
}

// Lost implements [Limit]. A permit is back one window after it was taken, at the latest: only what may have been taken since
// then can be the reason of a refusal.
func (w Window) Lost(events []Event) (worst Breach) {
	var taken, back []Event
	for i := range events {
		switch k := events[i].Kind; {
		case k.taken() && events[i].N > 0:
			taken = append(taken, events[i])
		case k.restores():
			back = append(back, events[i])
		}
	}
	slices.SortFunc(taken, func(x, y Event) int { return cmp.Compare(x.Sent, y.Sent) })
	var longest int64
	for i := range taken {
		longest = max(longest, taken[i].Received-taken[i].Sent)
	}
	for i := range events {
		r := &events[i]
		if r.Kind != Refused {
			continue
		}
		since := r.Sent - int64(w.Length) - int64(w.Slack)
		first, _ := slices.BinarySearchFunc(taken, since-longest, func(e Event, at int64) int { return cmp.Compare(e.Sent, at) })
		var sum int64
		for j := first; j < len(taken) && taken[j].Sent <= r.Received; j++ {
			if taken[j].Received >= since {
				sum += taken[j].N
			}
		}
		for j := range back {
			if e := &back[j]; e.from() >= since && e.Received <= r.Sent {
				sum -= e.N
			}
		}
		if there := w.Permits - sum; there >= max(r.N, 1) {
			worst.Times++
			if lost := float64(there - max(r.N, 1) + 1); lost > worst.Permits {
				worst.Permits, worst.From, worst.To = lost, time.Duration(r.Sent), time.Duration(r.Received)
			}
		}
	}
	return worst
}
