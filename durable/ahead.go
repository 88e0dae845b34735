package durable

import "time"

// ahead chooses how many permits a record is ahead. It doubles as long as records are used up within a moment, and halves where
// most of one was left after a while, so that a busy limit writes seldom and a crash of a quiet one burns nothing.
type ahead struct {
	last int64     // what the record in force was given
	at   time.Time // since when it is in force, or when it was drawn if it is not yet
	took time.Duration
}

const (
	usedUpSoon = 50 * time.Millisecond
	usedUpLate = time.Second
	// usedUpWrites is how many writes a record should last, so that the next one is in force before it is used up.
	usedUpWrites = 4
)

// choose returns how much the next record is ahead; left is what the one in force still has, and wanted how many permits wait for
// the next one: as many will be asked for while one more is written, so that it need not begin with one.
func (a *ahead) choose(now time.Time, left, wanted, most int64) int64 {
	if most <= 0 {
		a.last = 0
		return 0
	}
	since := now.Sub(a.at)
	switch {
	case a.at.IsZero():
		a.last = 0
	case since < max(usedUpSoon, usedUpWrites*a.took) && left <= a.last/2:
		a.last = max(1, 2*a.last, wanted)
	case since > usedUpLate && left > a.last/2:
		a.last /= 2
	}
	a.at = now
	a.last = min(a.last, most)
	return a.last
}

// inForce notes that the record is in force from now on. How long it took to write is none of the time for which it lasts, or
// where writes are slow no record would ever be ahead (TestSlowWritesAreFewer).
func (a *ahead) inForce(now time.Time) { a.at, a.took = now, now.Sub(a.at) }
