package replay

import "time"

// mostSteps is how many steps of time a timeline has at most.
const mostSteps = 1024

// widths are the lengths that a step may have. Each is a multiple of the one before, so steps are merged without loss.
var widths = []time.Duration{
	time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	500 * time.Millisecond, time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	day, 7 * day, 28 * day, 364 * day,
}

const day = 24 * time.Hour

type step struct{ requests, refused int64 }

// history counts for several series at a time, such as policies, how many requests there were and how many were refused, in equal
// steps of time that begin at multiples of their length since 1970. Steps grow as the log goes on, so its memory is bounded. Each
// request is announced by a call of at. Times must not go backward.
type history struct {
	series [][]step
	begun  bool
	width  int   // in widths
	base   int64 // the number of the first step
	last   int64 // the latest step, counted from the first
}

// at returns the step of a request at a time in nanoseconds since 1970.
func (h *history) at(now int64) int64 {
	if !h.begun {
		h.begun = true
		h.base = now / int64(widths[h.width])
	}
	i := now/int64(widths[h.width]) - h.base
	for i >= mostSteps {
		factor := int64(widths[h.width+1] / widths[h.width])
		h.width++
		base := h.base
		for n, steps := range h.series {
			h.series[n] = merge(steps, base, factor)
		}
		h.base = base / factor
		i = now/int64(widths[h.width]) - h.base
	}
	h.last = i
	return i
}

// count counts a request in a step that at has answered.
func (h *history) count(series int, at int64, refused bool) {
	for series >= len(h.series) {
		h.series = append(h.series, nil)
	}
	steps := h.series[series]
	for int64(len(steps)) <= at {
		steps = append(steps, step{})
	}
	steps[at].requests++
	if refused {
		steps[at].refused++
	}
	h.series[series] = steps
}

// course is a history in steps of a readable length, the first of which begins at start, in nanoseconds since 1970. All series
// have equally many steps.
type course struct {
	start  int64
	width  time.Duration
	steps  int
	series [][]step
}

// fit returns the history of n series in at most that many steps.
func (h *history) fit(n, most int) course {
	if !h.begun {
		return course{series: make([][]step, n)}
	}
	factor, width := readableStep(h.width, h.base, h.last, most)
	c := course{start: h.base / factor * int64(width), width: width, series: make([][]step, n)}
	c.steps = int((h.base+h.last)/factor-h.base/factor) + 1
	for i := range c.series {
		merged := make([]step, 0, c.steps)
		if i < len(h.series) {
			merged = merge(h.series[i], h.base, factor)
		}
		c.series[i] = append(merged, make([]step, c.steps-len(merged))...)
	}
	return c
}

// merge makes one step of each factor steps, the first of which has the number base.
func merge(steps []step, base, factor int64) []step {
	first := base / factor
	merged := make([]step, 0, mostSteps)
	for i, s := range steps {
		at := (base+int64(i))/factor - first
		for int64(len(merged)) <= at {
			merged = append(merged, step{})
		}
		merged[at].requests += s.requests
		merged[at].refused += s.refused
	}
	return merged
}

// readable are lengths of a step that people are used to.
var readable = []time.Duration{
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 20 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 20 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour, 6 * time.Hour, 8 * time.Hour, 12 * time.Hour,
	day, 2 * day, 3 * day, 7 * day, 14 * day, 28 * day, 56 * day, 84 * day, 182 * day, 364 * day,
	2 * 364 * day, 5 * 364 * day, 10 * 364 * day, 20 * 364 * day,
}

// readableStep returns how many steps of a length in widths make one of a readable length, so that there are at most that many of
// them from the one with the number base to the one that is last after it, and how long these are.
func readableStep(fine int, base, last int64, most int) (factor int64, width time.Duration) {
	for _, width = range readable {
		if width < widths[fine] || width%widths[fine] != 0 {
			continue
		}
		factor = int64(width / widths[fine])
		if (base+last)/factor-base/factor < int64(most) {
			break
		}
	}
	return factor, width
}
