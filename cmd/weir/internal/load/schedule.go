package load

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	fixed   = "fixed"
	poisson = "poisson"
)

// schedule tells when the requests of an open loop are to be sent, whatever the server does. All connections share one: whichever
// has room takes what is next. Times are since the start of the run.
type schedule struct {
	mu       sync.Mutex
	interval float64 // nanoseconds, on average
	random   *rand.Rand
	next     float64
	taken    int64
	end      time.Duration // no request is intended at this time or later
	from     time.Duration // those from here on are counted
	left     int64         // how many of those there may be yet, less than 0 for any number
	counted  int64         // how many of those were taken
}

// newSchedule returns one for rate requests a second.
func newSchedule(rate float64, arrivals string, seed int64, from, end time.Duration, most int64) *schedule {
	s := &schedule{interval: float64(time.Second) / rate, from: from, end: end, left: most}
	if most <= 0 {
		s.left = -1
	}
	if arrivals == poisson {
		s.random = rand.New(rand.NewPCG(uint64(seed), ^uint64(0))) //nolint:gosec // to be repeated
		s.step()
	}
	return s
}

// step moves on to the next time. Those at fixed intervals are multiples, so that nothing adds up to a drift.
func (s *schedule) step() {
	s.taken++
	if s.random == nil {
		s.next = float64(s.taken) * s.interval
		return
	}
	s.next += s.random.ExpFloat64() * s.interval
}

// take takes at most n times that have come by now, and appends them to to. If none has come, it takes the next, which has yet to
// come. It takes none when there are no more.
func (s *schedule) take(now time.Duration, n int, to []time.Duration) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(to) < n {
		at := time.Duration(s.next)
		if at >= s.end || s.left == 0 || len(to) > 0 && at > now {
			break
		}
		if at >= s.from {
			s.counted++
			if s.left > 0 {
				s.left--
			}
		}
		to = append(to, at)
		s.step()
	}
	return to
}

// stop ends the schedule now. It returns how many of the counted requests were intended until then, but never sent; of arrivals
// at random that is how many there are on average.
func (s *schedule) stop(now time.Duration) (missed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end, next := float64(min(s.end, now)), max(s.next, float64(s.from))
	s.end = 0
	if next >= end || s.left == 0 {
		return 0
	}
	missed = int64(math.Ceil((end - next) / s.interval))
	if s.left > 0 {
		missed = min(missed, s.left)
	}
	return missed
}
