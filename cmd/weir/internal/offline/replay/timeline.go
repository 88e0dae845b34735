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

// timeline counts requests and refusals in equal steps of time that begin at multiples of their length since 1970. Steps
// grow as the log goes on, so its memory is bounded. Times must not go backward.
type timeline struct {
	steps []step
	width int   // in widths
	base  int64 // the number of the first step
}

type step struct{ requests, refused int64 }

// add counts a request at a time in nanoseconds since 1970.
func (t *timeline) add(now int64, refused bool) {
	if t.steps == nil {
		t.steps = make([]step, 0, mostSteps)
		t.base = now / int64(widths[t.width])
	}
	i := now/int64(widths[t.width]) - t.base
	for i >= mostSteps {
		t.widen()
		i = now/int64(widths[t.width]) - t.base
	}
	for int64(len(t.steps)) <= i {
		t.steps = append(t.steps, step{})
	}
	t.steps[i].requests++
	if refused {
		t.steps[i].refused++
	}
}

// widen merges steps into longer ones.
func (t *timeline) widen() {
	t.width++
	t.steps, t.base = merge(t.steps, t.base, int64(widths[t.width]/widths[t.width-1]))
}

// merge makes one step of each factor steps, the first of which has the number base, and returns the number of the first.
func merge(steps []step, base, factor int64) (merged []step, mergedBase int64) {
	mergedBase = base / factor
	merged = make([]step, 0, mostSteps)
	for i, s := range steps {
		at := (base+int64(i))/factor - mergedBase
		for int64(len(merged)) <= at {
			merged = append(merged, step{})
		}
		merged[at].requests += s.requests
		merged[at].refused += s.refused
	}
	return merged, mergedBase
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

// fit returns the timeline in at most that many steps of a readable length, the first of which begins at start, in
// nanoseconds since 1970.
func (t *timeline) fit(most int) (steps []step, start int64, width time.Duration) {
	if len(t.steps) == 0 {
		return nil, 0, 0
	}
	factor, width := readableStep(t.width, t.base, int64(len(t.steps))-1, most)
	merged, base := merge(t.steps, t.base, factor)
	return merged, base * int64(width), width
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
