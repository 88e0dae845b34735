package replay

import "time"

// history counts for several series at a time, such as policies, how many requests there were and how many were refused, in equal
// steps of time as a [timeline] has them. Each request is announced by a call of at. Times must not go backward.
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
			h.series[n], _ = merge(steps, base, factor)
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
			merged, _ = merge(h.series[i], h.base, factor)
		}
		c.series[i] = append(merged, make([]step, c.steps-len(merged))...)
	}
	return c
}
