package store

import "slices"

// mostClocks is how many clocks that are ahead of a record are told apart.
const mostClocks = 4

// clocks is what a record knows of the clocks of those who share it without one of them being the owner. The time of the record
// is that of the clock which is furthest behind. Clocks that are ahead of it by more than [MostAhead] would otherwise have
// permits come back each time that they follow one that is not.
type clocks struct {
	// ahead is how far other clocks are ahead, in growing order.
	ahead []int64
	// back is how often the record has been taken back, up to sureAfter. Clocks are told apart from then on: one that was wrong
	// once is not taken for one that still is.
	back int64
}

const sureAfter = 2

// place is the time that a clock which shows now stands for, if the record is at a time: that by which the least time has passed.
func (c *clocks) place(now, at int64) int64 {
	if c.back < sureAfter {
		return now
	}
	for _, by := range slices.Backward(c.ahead) {
		if now-by >= at-int64(MostAhead) {
			return now - by
		}
	}
	return now
}

// behind notes that the record is taken back by a span, as there is a clock which is further behind than all others were.
func (c *clocks) behind(span int64) {
	known := c.ahead
	if c.back < sureAfter { // the time has gone on by a clock that is ahead since
		known = nil
		c.back++
	}
	all := []int64{span}
	for _, by := range known {
		if by += span; by-all[len(all)-1] > int64(MostAhead) && by <= latest && len(all) < mostClocks {
			all = append(all, by)
		}
	}
	c.ahead = all
}

// valid reports whether it can have been written.
func (c *clocks) valid() bool {
	before := int64(0)
	for _, by := range c.ahead {
		if by-before <= int64(MostAhead) || by > latest {
			return false
		}
		before = by
	}
	return len(c.ahead) <= mostClocks && 0 <= c.back && c.back <= sureAfter && (c.back == 0) == (len(c.ahead) == 0)
}

// readyFor is ready for one of several callers with clocks of their own.
func (r *record) readyFor(clock int64, t *terms) (keep bool) {
	now := r.clocks.place(clock, r.at)
	if back := r.at - now; back > int64(MostAhead) {
		r.clocks.behind(back)
	}
	_, keep = r.ready(now, t)
	return keep
}

// now is what the clock that the record was made ready by shows, on the scale of the record.
func (r *record) now() int64 { return r.at - r.behind }
