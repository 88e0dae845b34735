// Package rangemax keeps a row of numbers. It adds to a range of them, and finds the max of a range, in as many steps as the
// logarithm of its length.
package rangemax

import "math"

// Row is such a row.
type Row struct {
	size       int
	added, top []float64
}

// New is a row of n zeros.
func New(n int) *Row {
	s := &Row{size: 1}
	for s.size < n {
		s.size *= 2
	}
	s.added, s.top = make([]float64, 2*s.size), make([]float64, 2*s.size)
	return s
}

// Add adds x to a range: up to, but not including, its end.
func (r *Row) Add(from, to int, x float64) { r.addBelow(1, 0, r.size, from, to, x) }

func (r *Row) addBelow(node, low, high, from, to int, x float64) {
	switch {
	case to <= low || high <= from:
	case from <= low && high <= to:
		r.added[node] += x
		r.top[node] += x
	default:
		middle := (low + high) / 2
		r.addBelow(2*node, low, middle, from, to, x)
		r.addBelow(2*node+1, middle, high, from, to, x)
		r.top[node] = r.added[node] + max(r.top[2*node], r.top[2*node+1])
	}
}

// Most is the greatest of a range, -Inf if it is empty.
func (r *Row) Most(from, to int) float64 { return r.mostBelow(1, 0, r.size, from, to) }

func (r *Row) mostBelow(node, low, high, from, to int) float64 {
	switch {
	case to <= low || high <= from:
		return math.Inf(-1)
	case from <= low && high <= to:
		return r.top[node]
	}
	middle := (low + high) / 2
	return r.added[node] + max(r.mostBelow(2*node, low, middle, from, to), r.mostBelow(2*node+1, middle, high, from, to))
}

// MostAt is the place of the greatest of a range.
func (r *Row) MostAt(from, to int) int {
	for to-from > 1 {
		middle := (from + to) / 2
		if r.Most(from, middle) >= r.Most(middle, to) {
			to = middle
		} else {
			from = middle
		}
	}
	return from
}

// At is the number at a place.
func (r *Row) At(i int) float64 { return r.Most(i, i+1) }
