package bench

import (
	"math"
	"sync/atomic"
	"time"
)

// epoch anchors the clock of the floors: time.Since of a time that carries a monotonic reading reads one clock, time.Now
// reads two.
var epoch = time.Now()

// word is an integer with a cache line to itself.
type word struct {
	_ [64]byte
	n atomic.Int64
	_ [56]byte
}

// clockAndSwap is the minimum of work for a limiter whose state is one word: read the clock, and swap the word for one that
// depends on the time; once more if another goroutine was faster.
func clockAndSwap() Subject {
	return Subject{
		By: "clock+CAS", Call: "time.Since(epoch); word.Load(); word.CompareAndSwap(old, new)",
		New: func() (Loop, func()) {
			w := new(word)
			return func(n int) (granted int) {
				for range n {
					now := int64(time.Since(epoch))
					for {
						old := w.n.Load()
						if w.n.CompareAndSwap(old, max(old+1, now)) {
							break
						}
					}
					granted++
				}
				return granted
			}, nil
		},
	}
}

// lentPermits is the least that a limiter does which many ask at once: goroutines spend permits that were lent to them, and only
// one call in so many reads the clock and swaps the word that all share.
func lentPermits() Subject {
	const lent = 64
	return Subject{
		By: "lent permits", Call: "own.CompareAndSwap(left, left-1); clock+CAS once in 64 calls",
		New: func() (Loop, func()) {
			w, cells, turn := new(word), new([admissionGoroutines]word), new(atomic.Int64)
			return func(n int) (granted int) {
				own := &cells[int(turn.Add(1))%len(cells)]
				for range n {
					for {
						left := own.n.Load()
						if left > 0 && own.n.CompareAndSwap(left, left-1) {
							break
						}
						if left > 0 {
							continue
						}
						now, old := int64(time.Since(epoch)), w.n.Load()
						if w.n.CompareAndSwap(old, max(old+lent, now)) {
							own.n.Add(lent)
						}
					}
					granted++
				}
				return granted
			}, nil
		},
	}
}

// clockAndLoad is the least that a limiter does which refuses without leaving a trace, not even a count.
func clockAndLoad() Subject {
	return Subject{
		By: "clock+load", Call: "time.Since(epoch) < word.Load()",
		New: func() (Loop, func()) {
			w := new(word)
			w.n.Store(math.MaxInt64)
			return func(n int) (granted int) {
				for range n {
					if int64(time.Since(epoch)) >= w.n.Load() {
						granted++
					}
				}
				return granted
			}, nil
		},
	}
}

// clockAndTwoSwaps is the least that a limiter does which takes at a time and gives back or settles afterwards, or which
// takes from two.
func clockAndTwoSwaps() Subject {
	return Subject{
		By: "clock+2CAS", Call: "time.Since(epoch); two words, word.CompareAndSwap(old, new) each",
		New: func() (Loop, func()) {
			v, w := new(word), new(word)
			return func(n int) (granted int) {
				for range n {
					now := int64(time.Since(epoch))
					for {
						old := v.n.Load()
						if v.n.CompareAndSwap(old, max(old+1, now)) {
							break
						}
					}
					for {
						old := w.n.Load()
						if w.n.CompareAndSwap(old, max(old+1, now)) {
							break
						}
					}
					granted++
				}
				return granted
			}, nil
		},
	}
}

// twoSwaps is the least that a semaphore does: one swap to take, one to give back.
func twoSwaps() Subject {
	return Subject{
		By: "2CAS", Call: "word.CompareAndSwap(old, old+1); word.CompareAndSwap(old, old-1)",
		New: func() (Loop, func()) {
			w := new(word)
			return func(n int) (granted int) {
				for range n {
					for {
						old := w.n.Load()
						if w.n.CompareAndSwap(old, old+1) {
							break
						}
					}
					for {
						old := w.n.Load()
						if w.n.CompareAndSwap(old, old-1) {
							break
						}
					}
					granted++
				}
				return granted
			}, nil
		},
	}
}
