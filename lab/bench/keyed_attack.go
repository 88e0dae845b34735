package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// AttackTarget is the most that the p99 of an honest caller may be under attack relative to without, and AttackBytes how
// much memory each key of the bound may take.
const (
	AttackTarget = 3
	AttackBytes  = 52
)

// AttackResult is what a client with a new key each time does to a limiter with a bound.
type AttackResult struct {
	By string `json:"by"`
	// MaxKeys is the bound, Keys how many different keys attacked, in Seconds.
	MaxKeys int     `json:"max_keys"`
	Keys    int     `json:"keys"`
	Seconds float64 `json:"seconds"`
	// Granted is how many of the attacker's calls were granted.
	Granted int64 `json:"granted"`
	// Before and After are the heap in use of a limiter that holds as many keys as it may, before and after the attack, in
	// bytes for each key of the bound. Peak is the most that the heap held during the attack, garbage included.
	Before float64 `json:"bytes_per_key_before"`
	After  float64 `json:"bytes_per_key_after"`
	Peak   float64 `json:"bytes_per_key_peak"`
	// Exhausted is how many keys had spent all their permits before the attack, Reset how many of them had all of them
	// again afterwards, which takes 11 days.
	Exhausted int `json:"exhausted"`
	Reset     int `json:"reset"`
	// Honest is how many calls of honest callers there were during the attack, HonestRefused how many were refused.
	Honest        int64 `json:"honest"`
	HonestRefused int64 `json:"honest_refused"`
	// Clock is the time of nothing but the clock, Alone that of an honest caller without the attack, Beside while the
	// attacker asks another limiter of the same kind, and Under while it asks this one.
	Clock  Latency `json:"clock_ns"`
	Alone  Latency `json:"alone_ns"`
	Beside Latency `json:"beside_ns"`
	Under  Latency `json:"under_ns"`
	// Median and P99 are how many times longer a call takes under attack than alone, the median of the clock left out.
	Median float64 `json:"p50_ratio"`
	P99    float64 `json:"p99_ratio"`
	// Apart tells that the two callers began on different processors.
	Apart bool `json:"apart"`
}

const (
	attackedKeys = 1_000_000
	honestKeys   = 10_000
	spentKeys    = 1000
	// honestEvery is how often honest callers ask. Each key is asked for every 20 ms, and gets back a permit a second.
	honestEvery = 2 * time.Microsecond
	aloneFor    = time.Second
	besidePart  = 10 // of the attack is made on another limiter
	peerPart    = 10 // of the attack is enough to see what it does to a peer
	watchEvery  = 64 // batches, after which the heap is looked at
)

// attacked grants a permit a second and holds a million: an attacker's key is full again a second later, one that has
// spent all in 11 days.
var attacked = budget{1_000_000, 1_000_000 * time.Second, 1_000_000}

// attacker makes keys of 16 bytes, none of which ever comes again. Limiters may keep the last 2^22 of them.
type attacker struct {
	ring []byte
	keys []string
	next uint64
	free func()
}

const ringKeys = 1 << 22

func newAttacker() *attacker {
	ring, freeRing := offHeap(ringKeys * 16)
	headers, freeHeaders := offHeap(batch * headerBytes)
	keys := unsafe.Slice((*string)(unsafe.Pointer(&headers[0])), batch) //nolint:gosec // pages are aligned to more than a string
	return &attacker{ring: ring, keys: keys, free: func() { freeRing(); freeHeaders() }}
}

// more are the next keys, a batch at most.
func (a *attacker) more(n int) []string {
	for i := range n {
		at := a.next % ringKeys * 16
		text := a.ring[at : at+16]
		binary.LittleEndian.PutUint64(text, a.next)
		binary.LittleEndian.PutUint64(text[8:], a.next*0x9e3779b97f4a7c15)
		a.keys[i] = unsafe.String(&text[0], 16) //nolint:gosec // changed only when it was forgotten
		a.next++
	}
	return a.keys[:n]
}

// honest asks for keys again and again, at a pace.
func (l keyedLimiter) honest(keys []string, h *histogram, done *atomic.Bool) (refused int64) {
	due := time.Since(epoch)
	for i := 0; i == 0 || !done.Load(); i++ {
		due += honestEvery
		start := time.Since(epoch)
		for start < due {
			start = time.Since(epoch)
		}
		ok := l.allow(keys[i%len(keys)])
		end := time.Since(epoch)
		h.add(end - start)
		due = max(due, end) // a pace that was lost is not made up for
		if !ok {
			refused++
		}
	}
	return refused
}

// attack asks target for n new keys while honest callers ask l.
func attack(l, target keyedLimiter, honest []string, a *attacker, n int, meet time.Duration,
	h *histogram, watch func(),
) (r AttackResult) {
	var (
		callers sync.WaitGroup
		done    atomic.Bool
		meeting = newMeeting(2, meet)
		granted int64
		refused int64
	)
	callers.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		meeting.await(0)
		refused = l.honest(honest, h, &done)
	})
	callers.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer done.Store(true)
		meeting.await(1)
		start := time.Now()
		for left := n; left > 0; left -= batch {
			granted += int64(target.ask(a.more(min(batch, left))))
			watch()
		}
		r.Seconds = time.Since(start).Seconds()
	})
	callers.Wait()
	r.Keys, r.Granted, r.Honest, r.HonestRefused, r.Apart = n, granted, h.n, refused, meeting.were
	return r
}

// fullForAttack returns a limiter that holds as many keys as it may: honest ones, spent ones, and those of an attacker.
func fullForAttack(s keyedSubject, keys int, honest, spent []string, a *attacker) (keyedLimiter, error) {
	l := s.New(keyedOptions{budget: attacked, keys: keys, bounded: true})
	for _, key := range spent {
		if !l.takeN(key, int(attacked.burst)) {
			return l, fmt.Errorf("bench: %s does not grant a new key all its permits", s.By)
		}
	}
	if n := l.ask(honest); n != len(honest) {
		return l, fmt.Errorf("bench: %s granted %d of %d honest keys their first permit", s.By, n, len(honest))
	}
	for left := keys - len(honest) - len(spent); left > 0; left -= batch {
		l.ask(a.more(min(batch, left)))
	}
	return l, nil
}

// measureAttack measures one limiter.
func measureAttack(ctx context.Context, set Settings, s keyedSubject) (AttackResult, error) {
	keys := min(attackedKeys, max(set.Keys[0], 2*batch))
	honest, spent := freshKeys(0, min(honestKeys, keys/8)), freshKeys(honestKeys, min(spentKeys, keys/8))
	a := newAttacker()
	defer func() { honest.free(); spent.free(); a.free() }()

	// All that is kept is made before the heap is looked at.
	clock, alone, beside, under := newHistogram(), newHistogram(), newHistogram(), newHistogram()
	before := liveAfterCollection()
	l, err := fullForAttack(s, keys, honest.keys, spent.keys, a)
	if err != nil {
		return AttackResult{}, err
	}
	defer l.end()
	full := liveAfterCollection()
	idle := min(aloneFor, set.Wall)
	untilAfter(idle, func(done *atomic.Bool) { nothing().honest(honest.keys, clock, done) })
	untilAfter(idle, func(done *atomic.Bool) { l.honest(honest.keys, alone, done) })
	other, err := fullForAttack(s, keys, honest.keys, spent.keys, a)
	if err != nil {
		return AttackResult{}, err
	}
	if err := ctx.Err(); err != nil {
		return AttackResult{}, err
	}
	attack(l, other, honest.keys, a, set.AttackKeys/besidePart, set.Meet, beside, func() {})
	other.end()
	other = keyedLimiter{} //nolint:wastedassign // so that its memory is not counted
	liveAfterCollection()

	peak, watched := heapObjects(), 0
	r := attack(l, l, honest.keys, a, set.AttackKeys, set.Meet, under, func() {
		if watched++; watched%watchEvery == 0 {
			peak = max(peak, heapObjects())
		}
	})
	r.By, r.MaxKeys, r.Exhausted = s.By, keys, len(spent.keys)
	if s.By == byThrottled {
		r.By = byThrottledLRU
	}
	n := float64(keys)
	r.Before, r.After, r.Peak = (full-before)/n, (liveAfterCollection()-before)/n, (peak-before)/n
	for _, key := range spent.keys {
		if l.takeN(key, int(attacked.burst)) {
			r.Reset++
		}
	}
	r.Clock, r.Alone, r.Beside, r.Under = clock.latency(), alone.latency(), beside.latency(), under.latency()
	r.Median = (r.Under.Median - r.Clock.Median) / max(1, r.Alone.Median-r.Clock.Median)
	r.P99 = (r.Under.P99 - r.Clock.Median) / max(1, r.Alone.P99-r.Clock.Median)
	return r, nil
}

// measureAttacks measures all limiters that can be bounded.
func measureAttacks(ctx context.Context, set Settings) (all []AttackResult, err error) {
	if set.AttackKeys < 1 {
		return nil, errors.New("bench: an attack needs a key")
	}
	for _, s := range []keyedSubject{keyedWeir(), keyedThrottled()} {
		one := set
		if s.By != byWeir {
			one.AttackKeys = max(1, set.AttackKeys/peerPart)
		}
		r, err := measureAttack(ctx, one, s)
		if err != nil {
			return all, err
		}
		all = append(all, r)
	}
	return all, nil
}

func liveAfterCollection() float64 {
	runtime.GC()
	runtime.GC()
	return liveHeap()
}

// heapObjects is what is in the heap, garbage included that was not yet collected.
func heapObjects() float64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return float64(sample[0].Value.Uint64())
}
