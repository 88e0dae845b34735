package durable

import "time"

// ahead chooses how many permits a record is ahead. It doubles as long as records are used up within a moment, and halves where
// most of one was left after a while, so that a busy limit writes seldom and a crash of a quiet one burns nothing.
type ahead struct {
	most int64 // 0 writes every grant
	last int64 // what the record in force was given
	at   time.Time
}

const (
	usedUpSoon = 50 * time.Millisecond
	usedUpLate = time.Second
)

// choose answers how much the next record is ahead; left is what the one in force still has.
func (a *ahead) choose(now time.Time, left, most int64) int64 {
	if most <= 0 {
		a.last = 0
		return 0
	}
	since := now.Sub(a.at)
	switch {
	case a.at.IsZero():
		a.last = 0
	case since < usedUpSoon && left <= a.last/2:
		a.last = max(1, 2*a.last)
	case since > usedUpLate && left > a.last/2:
		a.last /= 2
	}
	a.at = now
	a.last = min(a.last, most)
	return a.last
}
