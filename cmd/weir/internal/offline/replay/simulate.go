package replay

import (
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/offline/accesslog"
	"github.com/weirhq/weir/manualclock"
)

// latestTime bounds the virtual time: limiters compute with times within 2^62 nanoseconds.
const latestTime = 1 << 62

// simulation runs requests through a limit, in the order of their times as far as that can be made of the log. Its clock
// stands at the time of the latest request so far, counted from the first, and never goes backward.
type simulation struct {
	by      flags.Key
	limiter *weir.Keyed[string]
	clock   *manualclock.Clock

	sequence      *sequence
	first, latest int64 // of the requests that were taken
	result        result
	keys          *keyTable
	timeline      timeline
	key           []byte // space to make keys in
}

// result is what is counted over all requests.
type result struct {
	requests  int64
	refused   int64
	tableFull int64 // of the refused, those that found no room for their key
	late      int64 // those that could not be put in order any more
}

func newSimulation(l *flags.Limit) (*simulation, error) {
	s := &simulation{
		by: l.By, clock: manualclock.New(0),
		keys: newKeyTable(l.MaxKeys, peakWindow(l.EffectiveRate())),
	}
	s.sequence = newSequence(s.take)
	limiter, err := l.New("replay", s.clock)
	s.limiter = limiter
	return s, err
}

// read puts a record in its place.
func (s *simulation) read(rec *accesslog.Record) {
	s.key = s.by.AppendRecord(s.key[:0], rec)
	s.sequence.add(rec.Time, s.key)
}

// take decides on one request.
func (s *simulation) take(at int64, keyOf []byte) {
	now := s.advance(at)
	k := s.keys.find(keyOf)
	var d weir.Decision
	if k != nil {
		d = s.limiter.Take(k.key, 1)
	} else {
		key := string(keyOf)
		d = s.limiter.Take(key, 1)
		k = s.keys.add(key, !d.Allowed)
	}
	s.result.requests++
	if !d.Allowed {
		s.result.refused++
		if d.Reason == weir.ReasonTableFull {
			s.result.tableFull++
		}
	}
	if k != nil {
		k.count(now, d, s.keys.window)
	}
	s.timeline.add(now, !d.Allowed)
}

// advance moves the clock to the time of a record, unless it lies before that of an earlier one, and returns where the
// clock stands, in nanoseconds since 1970.
func (s *simulation) advance(at int64) int64 {
	switch {
	case s.result.requests == 0:
		s.first, s.latest = at, at
	case at > s.latest:
		s.latest = at
		s.clock.Set(min(at-s.first, latestTime))
	case at < s.latest:
		s.result.late++
	}
	return s.latest
}

// peakWindow is the window in which the requests of a key are counted to find its peak: the period of the limit, so that
// the two can be compared, but no shorter than the second to which most logs are exact.
func peakWindow(r weir.Rate) time.Duration { return max(r.Period, time.Second) }
