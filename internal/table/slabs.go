package table

import (
	"math/bits"
	"sync"
)

// slabs are the memory of segments. What a segment leaves behind when it grows is used by the next one that grows to that
// size: new memory costs more than what is done with it. They are kept up to a share of what is in use.
type slabs struct {
	mu    sync.Mutex
	free  map[int][][]uint64 // by their length
	words int                // in free
	used  int                // words that segments have
}

// mostFree is the share of the words in use that may be free.
const mostFree = 32

func (s *slabs) take(words int) []uint64 {
	s.mu.Lock()
	s.used += words
	list := s.free[words]
	if len(list) == 0 {
		s.mu.Unlock()
		return make([]uint64, words)
	}
	slots := list[len(list)-1]
	list[len(list)-1] = nil
	s.free[words] = list[:len(list)-1]
	s.words -= words
	s.mu.Unlock()
	clear(slots)
	return slots
}

func (s *slabs) give(slots []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	words := len(slots)
	s.used -= words
	if s.words+words > s.used/mostFree {
		return
	}
	if s.free == nil {
		s.free = make(map[int][][]uint64)
	}
	s.free[words] = append(s.free[words], slots)
	s.words += words
}

// roomFor is how many slots a segment gets that holds so many keys: one of four sizes in each power of two, so that slabs
// can be used again. It is not the same for all, by a random bit, so that they do not all grow at the same time.
func roomFor(keys int, random uint64) int {
	size := nextSize(keys + keys/3)
	if larger := nextSize(size + 1); random&1 == 1 && keys*20 >= larger*11 {
		size = larger
	}
	return max(size, leastSlots)
}

// nextSize is the least of 4, 5, 6, 7, 8, 10, 12, 14, 16, 20... that is not less than n.
func nextSize(n int) int {
	if n <= 4 {
		return 4
	}
	step := 1 << (bits.Len(uint(n-1)) - 3) //nolint:gosec // it is positive
	return (n + step - 1) / step * step
}
