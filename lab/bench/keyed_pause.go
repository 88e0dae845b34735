package bench

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// PauseTarget is the longest that a call may take while keys come or are cleaned away.
const PauseTarget = time.Millisecond

// KeyedPause is how long callers had to wait, in nanoseconds: the median of the rounds for each number.
type KeyedPause struct {
	Latency

	By    string `json:"by"`
	Floor bool   `json:"floor,omitempty"`
	Keys  int    `json:"keys"`
	Calls int64  `json:"calls"`
	// Worst is the longest call of all rounds.
	Worst float64 `json:"worst"`
	// Kept is how much of the heap that held the keys is still in use afterwards, negative if that was not measured.
	Kept float64 `json:"heap_kept"`
	// Cleaning is what removed the keys.
	Cleaning string `json:"cleaning,omitempty"`
}

// summarize sets the latencies to those of some rounds.
func (p *KeyedPause) summarize(rounds []*histogram) {
	n := len(rounds)
	medians, p99s := make([]float64, 0, n), make([]float64, 0, n)
	p9999s, longest := make([]float64, 0, n), make([]float64, 0, n)
	p.Worst, p.Calls = 0, 0
	for _, h := range rounds {
		l := h.latency()
		medians, p99s = append(medians, l.Median), append(p99s, l.P99)
		p9999s, longest = append(p9999s, l.P9999), append(longest, l.Max)
		p.Worst = max(p.Worst, l.Max)
		p.Calls += h.n / int64(len(rounds))
	}
	p.Latency = Latency{median(medians), median(p99s), median(p9999s), median(longest)}
}

// timeEach asks for each key and measures each call.
func (l keyedLimiter) timeEach(keys []string, h *histogram) (granted int) {
	for _, key := range keys {
		start := time.Since(epoch)
		if l.allow(key) {
			granted++
		}
		h.add(time.Since(epoch) - start)
	}
	return granted
}

// timeUntil asks for one key again and again until it is told to stop, and once if it is told so before it begins.
func (l keyedLimiter) timeUntil(key string, h *histogram, done *atomic.Bool) {
	for more := true; more; more = !done.Load() {
		start := time.Since(epoch)
		l.allow(key)
		h.add(time.Since(epoch) - start)
	}
}

// nothing is a limiter that does nothing: what remains is the clock and what the machine does to a goroutine.
func nothing() keyedLimiter { return keyedLimiter{allow: func(string) bool { return true }} }

const byClock = "clock alone"

// measureGrowth measures each call that brings a new key, until a limiter that had none holds all.
func measureGrowth(ctx context.Context, set Settings, n int) (all []KeyedPause, err error) {
	keys := freshKeys(0, n)
	defer keys.free()
	subjects := append(keyedSubjects(), keyedSubject{
		By: byClock, NoLimit: true, New: func(keyedOptions) keyedLimiter { return nothing() },
	})
	for _, s := range subjects {
		p := KeyedPause{By: s.By, Floor: s.NoLimit, Keys: n, Kept: -1}
		var rounds []*histogram
		for range set.KeyedRounds {
			if err := ctx.Err(); err != nil {
				return all, err
			}
			runtime.GC()
			h := newHistogram()
			l := s.New(keyedOptions{budget: drainedSlowly, keys: n})
			granted := l.timeEach(keys.keys, h)
			l.end()
			if granted != n {
				return all, fmt.Errorf("bench: %s granted %d of %d new keys their first permit", s.By, granted, n)
			}
			rounds = append(rounds, h)
		}
		p.summarize(rounds)
		all = append(all, p)
	}
	runtime.GC()
	return all, nil
}

// cleaningRounds is how often cleaning is measured: it is mostly waiting.
const cleaningRounds = 2

// cleaned is how keys expire: nothing is missing of any of them after interval.
func cleaned(interval time.Duration) budget { return budget{100_000_000, interval, 100_000_000} }

// measureCleaning measures a caller that asks for one key while those that came before are removed: for peers with a
// janitor until it has run, for weir and others that remove a key for each that comes until all have been replaced.
func measureCleaning(ctx context.Context, set Settings, n int) (all []KeyedPause, err error) {
	more := freshKeys(n, n)
	defer more.free()
	for _, s := range keyedSubjects() {
		if s.NoLimit {
			continue
		}
		p := KeyedPause{By: s.By, Keys: n, Cleaning: s.Cleaning}
		if s.By == byThrottled {
			p.By, p.Cleaning = byThrottledLRU, "each new key, of the one used least recently"
		}
		var rounds []*histogram
		var kept []float64
		for range min(cleaningRounds, set.KeyedRounds) {
			if err := ctx.Err(); err != nil {
				return all, err
			}
			h, k, err := cleanOnce(s, more.keys, set.KeyedIdle)
			if err != nil {
				return all, err
			}
			rounds, kept = append(rounds, h), append(kept, k)
		}
		p.summarize(rounds)
		p.Kept = median(kept)
		all = append(all, p)
	}
	p := KeyedPause{By: byClock, Floor: true, Kept: -1}
	h := newHistogram()
	untilAfter(2*set.KeyedIdle, func(done *atomic.Bool) { nothing().timeUntil(key, h, done) })
	p.summarize([]*histogram{h})
	return append(all, p), nil
}

const byThrottledLRU = "throttled, LRU"

// untilAfter runs a call that ends when it is told to, after some time.
func untilAfter(d time.Duration, call func(done *atomic.Bool)) {
	done := new(atomic.Bool)
	timer := time.AfterFunc(max(d, 0), func() { done.Store(true) })
	defer timer.Stop()
	call(done)
}

// cleanOnce fills a limiter and has its keys removed, and returns how much of its memory is still in use.
func cleanOnce(s keyedSubject, more []string, idle time.Duration) (*histogram, float64, error) {
	h, n := newHistogram(), len(more)
	debug.FreeOSMemory()
	before := liveHeap()
	created := time.Now()
	l := s.New(keyedOptions{budget: cleaned(idle), keys: n, bounded: true, idle: idle, sweep: idle})
	defer l.end()
	granted := 0
	ownKeys(0, n, func(keys []string) { granted += l.ask(keys) })
	if granted != n {
		return h, 0, fmt.Errorf("bench: %s granted %d of %d new keys their first permit", s.By, granted, n)
	}
	runtime.GC()
	filled := liveHeap() - before
	switch {
	case l.takeN != nil: // removes keys when others come
		if granted := l.timeEach(more, h); granted != n {
			return h, 0, fmt.Errorf("bench: %s granted %d of %d keys that came when it was full", s.By, granted, n)
		}
		if l.tracked != nil && l.tracked() > n {
			return h, 0, fmt.Errorf("bench: %s tracks %d keys, more than %d", s.By, l.tracked(), n)
		}
	case l.clean != nil: // removes keys only when it is called
		<-time.After(idle + idle/4)
		done := new(atomic.Bool)
		go func() {
			defer done.Store(true)
			l.clean()
		}()
		l.timeUntil(key, h, done)
	default:
		// A key that came after one sweep is old enough at the second one after it.
		untilAfter(2*idle-time.Since(created)+idle/3, func(done *atomic.Bool) { l.timeUntil(key, h, done) })
	}
	runtime.GC()
	after := liveHeap() - before
	runtime.KeepAlive(l)
	l.allow(key)
	return h, max(0, after) / max(1, filled), nil
}

// liveHeap is what the last collection has found in use.
func liveHeap() float64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return float64(sample[0].Value.Uint64())
}
