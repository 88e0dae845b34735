package load

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	shortest = 100 * time.Nanosecond
	slowest  = time.Hour
	digits   = 3
)

// shard counts what some connections have measured.
type shard struct {
	mu       sync.Mutex
	response *hdrhistogram.Histogram // from the intended time to the answer
	service  *hdrhistogram.Histogram // from sending to the answer, of an open loop
	late     *hdrhistogram.Histogram // from when it could have been sent to sending, of an open loop
	counts   [outcomes]int64
	failures map[string]*failure
	last     time.Duration // when the last answer came
}

// longestFault is how much is kept of what a server says.
const (
	longestFault = 300
	longestKind  = 40
)

// failure is a kind of error.
type failure struct {
	count int64
	text  string // of the first
}

func newShard(open bool) *shard {
	s := &shard{response: newHistogram(), failures: map[string]*failure{}}
	if open {
		s.service, s.late = newHistogram(), newHistogram()
	}
	return s
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(int64(shortest), int64(slowest), digits)
}

// note counts n times d.
func note(h *hdrhistogram.Histogram, d time.Duration, n int64) {
	_ = h.RecordValues(int64(min(max(d, 0), slowest)), n) // it is in range
}

// record counts the samples whose requests were intended at from or later, all of which were answered now.
func (s *shard) record(samples []sample, now, from time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 0; i < len(samples); {
		first := &samples[i]
		j := i + 1
		// Requests that were sent at once, and answered at once, are one entry.
		for j < len(samples) && samples[j].slot == first.slot && samples[j].outcome == first.outcome && first.outcome != failed {
			j++
		}
		if first.intended >= from {
			s.add(first, int64(j-i), now)
		}
		i = j
	}
}

func (s *shard) add(r *sample, n int64, now time.Duration) {
	s.counts[r.outcome] += n
	s.last = now
	if s.late != nil {
		note(s.late, r.late, n)
	}
	if r.outcome == failed {
		kind := boundedKind(s.failures, fit(r.fault.kind, longestKind))
		f := s.failures[kind]
		if f == nil {
			f = &failure{text: fit(r.fault.text, longestFault)}
			s.failures[kind] = f
		}
		f.count += n
		return
	}
	note(s.response, now-r.intended, n)
	if s.service != nil {
		note(s.service, now-r.sent, n)
	}
}

// boundedKind is kind, unless a server makes up ever more of them.
func boundedKind(known map[string]*failure, kind string) string {
	const most = 20
	if known[kind] == nil && len(known) >= most {
		return "other"
	}
	return kind
}

// totals are all shards together.
func totals(shards []*shard) *shard {
	t := newShard(shards[0].service != nil)
	for _, s := range shards {
		s.mu.Lock()
		t.response.Merge(s.response)
		if t.service != nil {
			t.service.Merge(s.service)
			t.late.Merge(s.late)
		}
		for i, n := range s.counts {
			t.counts[i] += n
		}
		for kind, f := range s.failures {
			if t.failures[kind] == nil {
				t.failures[kind] = &failure{text: f.text}
			}
			t.failures[kind].count += f.count
		}
		t.last = max(t.last, s.last)
		s.mu.Unlock()
	}
	return t
}

// kinds are the kinds of errors, the most frequent first.
func (s *shard) kinds() []string {
	return slices.SortedFunc(maps.Keys(s.failures), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.failures[b].count, s.failures[a].count), cmp.Compare(a, b))
	})
}

// requests is how many were answered, or failed.
func (s *shard) requests() int64 {
	var n int64
	for _, count := range s.counts {
		n += count
	}
	return n
}
