package bench

import (
	"math"
	"slices"
)

// median is the middle of the values, 0 if there are none.
func median(values []float64) float64 { return quantile(values, 0.5) }

// spread is half of the distance between the quartiles, relative to the median: half of all rounds lie about that close
// to it.
func spread(values []float64) float64 {
	m := median(values)
	if m == 0 {
		return 0
	}
	return (quantile(values, 0.75) - quantile(values, 0.25)) / 2 / m
}

// quantile interpolates between the two values next to it.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}
