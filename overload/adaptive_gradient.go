package overload

import "math"

// window is what was measured in one.
type window struct {
	now     int64   // when it ended
	latency float64 // the median in nanoseconds, 0: no request has ended
	dropped float64 // the share of the requests that were
	peak    float64 // the most permits that were out
}

// gradient estimates the limit of an Adaptive.
type gradient struct {
	least, most          float64
	tolerance, smoothing float64
	interval             int64

	limit    float64
	base     float64 // the latency without load, 0: not yet known
	measured int64   // when base was last measured
	carried  float64 // and the most permits that were out then
	probing  bool    // the window that has begun measures it
	latency  float64 // of the last window
	dropped  float64

	windows, probes int64
}

// The gradient is held within these bounds, as in the original: one window may halve or double the limit.
const (
	minGradient = 0.5
	maxGradient = 2
)

// step returns the limit for the window after w.
func (g *gradient) step(w window) int64 {
	g.windows++
	g.dropped = w.dropped
	if w.latency > 0 {
		g.latency = w.latency
	}
	// Slower though only half as much is out as when it was last measured: the service itself has become slower.
	slower := 2*w.peak <= g.carried && w.latency > g.tolerance*g.base
	quiet := g.probing || slower || 2*w.peak <= g.limit
	g.measure(w, quiet)
	if g.probing {
		g.probing = false
		return g.whole(g.limit)
	}
	next := g.limit * g.slope(w)
	next += math.Sqrt(next)
	if next = g.limit + g.smoothing*(next-g.limit); next > g.limit && quiet {
		next = g.limit
	}
	g.limit = min(max(next, g.least), g.most)
	if !quiet && w.now-g.measured >= g.interval {
		g.probing = true
		g.probes++
		return g.whole(g.limit / 2)
	}
	return g.whole(g.limit)
}

// measure learns the latency without load from windows that had little, and from such as cannot have had more.
func (g *gradient) measure(w window, quiet bool) {
	switch {
	case quiet || g.base == 0:
		g.measured, g.carried = w.now, w.peak
	case w.latency*g.tolerance >= g.base:
		return
	}
	switch {
	case w.latency == 0:
	case g.base == 0:
		g.base = w.latency
	default:
		g.base += (w.latency - g.base) / 2
	}
}

func (g *gradient) slope(w window) float64 {
	slope := minGradient
	if w.latency > 0 {
		slope = g.tolerance * g.base / w.latency
	}
	if w.dropped > 0 {
		slope = min(slope, 1) * (1 - w.dropped)
	}
	return min(max(slope, minGradient), maxGradient)
}

// whole is limit as a number of permits.
func (g *gradient) whole(limit float64) int64 { return int64(min(max(limit, g.least), g.most)) }
