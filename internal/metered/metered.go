// Package metered reads the limit for a client of a paid API from the environment.
package metered

import (
	"math"
	"strconv"
	"time"
)

// What is accepted.
const (
	MostBurst      = 1_000_000
	LeastPerMinute = 0.001
	MostPerMinute  = 60_000_000
)

// Environment is the names of the variables, and how they are read.
type Environment struct {
	BurstVariable, PerMinuteVariable string
	// Lookup returns the value of a variable, "" if it is not set.
	Lookup func(name string) string
	// Unusable is called with a variable that is no number, or is out of range, and what is used instead.
	Unusable func(name, value, accepted string, instead any)
}

// Read returns what the variables say. One that says nothing, or cannot be used, leaves what is given.
func (e *Environment) Read(burst int64, perMinute float64) (int64, float64) {
	if text := e.Lookup(e.BurstVariable); text != "" {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 1 && n <= MostBurst {
			burst = n
		} else {
			e.Unusable(e.BurstVariable, text, "a whole number from 1 to 1000000", burst)
		}
	}
	if text := e.Lookup(e.PerMinuteVariable); text != "" {
		if f, err := strconv.ParseFloat(text, 64); err == nil && IsPerMinute(f) {
			perMinute = f
		} else {
			e.Unusable(e.PerMinuteVariable, text, "a number from 0.001 to 60000000", perMinute)
		}
	}
	return burst, perMinute
}

// IsPerMinute reports whether a number of permits a minute is accepted.
func IsPerMinute(f float64) bool { return f >= LeastPerMinute && f <= MostPerMinute } // NaN is not

// Rate is so many permits a minute, of which three decimals count, as whole permits in a time.
func Rate(perMinute float64) (permits int64, period time.Duration) {
	if perMinute == math.Trunc(perMinute) {
		return int64(perMinute), time.Minute
	}
	const parts = 1000
	return int64(math.Round(perMinute * parts)), parts * time.Minute
}
