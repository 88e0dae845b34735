package bench

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Queued is a limiter that callers wait for.
type Queued struct {
	By, Call string
	// Floor tells that it is no limiter but the least that would do.
	Floor bool
	// Deaf tells that a wait cannot be canceled.
	Deaf bool
	// New returns a new limiter with nothing left to grant, and a call that blocks until one permit is granted or ctx
	// has ended. The function stop, which may be nil, ends what the limiter has started.
	New func(b budget) (wait func(ctx context.Context) error, stop func())
}

// queueLimit is how many permits callers of weir may wait for: more than there are callers.
const queueLimit = 10_000

var errRefused = errors.New("bench: refused instead of queued")

// QueuedLimiters are the limiters that callers can wait for.
func QueuedLimiters() []Queued {
	return []Queued{
		{By: byWeir, Call: "TokenBucket.Acquire(ctx, 1)", New: func(b budget) (func(context.Context) error, func()) {
			l := b.weirQueue(queueLimit)
			l.TryAcquire(b.burst)
			return func(ctx context.Context) error {
				_, err := l.Acquire(ctx, 1)
				return err
			}, nil
		}},
		{By: "one timer", Call: "list of channels, one timer", Floor: true, New: newLine},
		{By: byXTime, Call: "Limiter.Wait(ctx)", New: func(b budget) (func(context.Context) error, func()) {
			l := b.xtime()
			l.AllowN(time.Now(), int(b.burst))
			return l.Wait, nil
		}},
		{By: byFailsafe, Call: "NewSmooth, AcquirePermit(ctx)", New: func(b budget) (func(context.Context) error, func()) {
			l := b.smooth()
			l.TryAcquirePermit()
			return l.AcquirePermit, nil
		}},
		{By: byJuju, Call: "Bucket.Wait(1)", Deaf: true, New: func(b budget) (func(context.Context) error, func()) {
			l := b.juju()
			l.TakeAvailable(b.burst)
			return func(context.Context) error { l.Wait(1); return nil }, nil
		}},
		{By: byUber, Call: "Limiter.Take()", Deaf: true, New: func(b budget) (func(context.Context) error, func()) {
			l := b.uber()
			l.Take()
			return func(context.Context) error { l.Take(); return nil }, nil
		}},
	}
}

// line is the least that would serve waiters in order at a rate: a list of channels, and one timer for all of them, which
// one of the callers that wait hears. It knows no costs, deadlines or bounds, and a caller that gives up stays in the list until
// its turn. Permits that come while a caller waits are not lost when the timer is late.
type line struct {
	interval, saved time.Duration // between two permits, and what a full bucket has saved
	timer           *time.Timer

	mu      sync.Mutex
	next    time.Duration // when the next permit is due
	waiting []*inLine
	head    int
	armed   bool
}

type inLine struct {
	served chan struct{} // holds one
	gone   bool
}

func newLine(b budget) (wait func(context.Context) error, stop func()) {
	interval := time.Duration(float64(b.period) / float64(b.permits))
	l := &line{interval: interval, saved: time.Duration(b.burst-1) * interval, next: time.Since(epoch) + interval}
	l.timer = time.NewTimer(time.Hour)
	return l.wait, func() { l.timer.Stop() }
}

func (l *line) wait(ctx context.Context) error {
	w := &inLine{served: make(chan struct{}, 1)}
	l.mu.Lock()
	l.waiting = append(l.waiting, w)
	if !l.armed {
		l.next = max(l.next, time.Since(epoch)-l.saved)
		l.serve()
	}
	l.mu.Unlock()
	for {
		select {
		case <-w.served:
			return nil
		case <-l.timer.C:
			l.wake()
		case <-ctx.Done():
			l.mu.Lock()
			w.gone = true
			l.mu.Unlock()
			return ctx.Err()
		}
	}
}

func (l *line) wake() {
	l.mu.Lock()
	l.serve()
	l.mu.Unlock()
}

func (l *line) serve() {
	now := time.Since(epoch)
	l.armed = false
	for ; l.head < len(l.waiting); l.head++ {
		w := l.waiting[l.head]
		if w.gone {
			continue
		}
		if l.next > now {
			l.armed = true
			l.timer.Reset(l.next - now)
			return
		}
		l.next += l.interval
		w.served <- struct{}{}
	}
	l.waiting, l.head = l.waiting[:0], 0
}
