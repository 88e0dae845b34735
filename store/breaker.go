package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/clock"
)

// BreakerOptions configure a [Breaker].
type BreakerOptions struct {
	// Failures is how many calls in a row must fail until the breaker opens: from 1 to 10^6. Default: 5.
	Failures int
	// Cooldown is how long the breaker stays open at first: from 1 ms to 1 h. Default: 100 ms.
	Cooldown time.Duration
	// MaxCooldown is how long it stays open at most, when Cooldown has doubled often enough: from Cooldown to 1 h. Default:
	// 5 s, or Cooldown if that is longer.
	MaxCooldown time.Duration
	// Patience is how long a call must have waited for the store before the deadline of its caller counts as a failure of the
	// store: from 1 ms to 1 h. Default: 10 ms.
	Patience time.Duration
	// Logger logs each transition. Default: nil, nothing is logged.
	Logger *slog.Logger
	// Clock measures all of these. Its AfterFunc is not used. Default: nil, the monotonic clock of the process.
	Clock weir.Clock
}

const upToAnHour = "from 1ms to 1h"

// checked fills in the defaults, or returns an *[weir.OptionError].
func (o BreakerOptions) checked() (BreakerOptions, error) {
	if o.Failures == 0 {
		o.Failures = 5
	}
	if o.Failures < 1 || o.Failures > 1e6 {
		return o, &weir.OptionError{Option: "BreakerOptions.Failures", Value: fmt.Sprint(o.Failures), Accepted: "from 1 to 10^6"}
	}
	if o.Cooldown == 0 {
		o.Cooldown = 100 * time.Millisecond
	}
	if o.MaxCooldown == 0 {
		o.MaxCooldown = max(5*time.Second, o.Cooldown)
	}
	if o.Patience == 0 {
		o.Patience = 10 * time.Millisecond
	}
	for _, d := range []struct {
		name     string
		value    time.Duration
		least    time.Duration
		accepted string
	}{
		{"Cooldown", o.Cooldown, time.Millisecond, upToAnHour},
		{"MaxCooldown", o.MaxCooldown, o.Cooldown, "from Cooldown, which is " + o.Cooldown.String() + ", to 1h"},
		{"Patience", o.Patience, time.Millisecond, upToAnHour},
	} {
		if d.value < d.least || d.value > time.Hour {
			return o, &weir.OptionError{Option: "BreakerOptions." + d.name, Value: d.value.String(), Accepted: d.accepted}
		}
	}
	return o, nil
}

// Breaker is a [Home] that fails calls at once while its inner store is unavailable. A dead store then costs less than a
// microsecond, not a timeout (BenchmarkBreakerOpen).
//
// It opens when Failures calls in a row have failed, and stays open for a random time between half of Cooldown and Cooldown. Then
// it tries one call, and no other, however many callers there are (TestContentionBreakerProbe). If the call succeeds the breaker
// closes; otherwise it stays open for twice as long as before, up to MaxCooldown. A call that takes longer than MaxCooldown does
// not keep others from being tried. A breaker that opens within MaxCooldown after it closed goes on doubling from where it was,
// so that an overloaded store gets a pause (TestBreakerOpensAgain).
//
// A failure is an error that wraps [ErrUnavailable], and a success is a call without an error. [ErrUnreadable] is a success: the
// store works, and one key must not take it from all others (TestBreakerAndUnreadableRecords). It is logged, once a minute at
// most. [ErrPartUnavailable] is neither: it says nothing about the other parts of the store, and the breaker neither opens nor
// closes for it (TestBreakerAndPartOfTheStore). It is logged too. Other errors, and calls without charges, do not count
// (TestBreakerIgnoresWhatAsksNothing). Neither does a caller that cancels its context. A deadline that passes is a failure only
// if the store has taken longer than Patience (TestBreakerJudgesContexts). So callers with short deadlines do not wait for a dead
// store forever, and one in a great hurry does not take the store from all others.
//
// Before the breaker opens, an outage costs this: if no call takes longer than T, and N callers make one call at a time each, at
// most N + Failures - 1 calls wait for T, and the breaker is open after ceil(Failures / N) times T (TestBreakerBoundsWaiting).
// Then one caller waits for T each time the cooldown is over. The zero Breaker is not usable: call [NewBreaker].
type Breaker struct {
	inner Home
	o     BreakerOptions
	clock *clock.Steady
	back  func() // called before the breaker closes after an outage; nil or of a Fleet

	// word is the state, in its lowest bits, and how many transitions there were: what becomes of a call counts only if there
	// was none since it was let through.
	word     atomic.Uint64
	row      atomic.Int64 // failures in a row
	until    atomic.Int64 // when the next call is let through, if the breaker is not closed
	cooldown atomic.Int64
	closed   atomic.Bool // by Close

	unreadableAt atomic.Int64 // when a record that cannot be read may be logged again
	partAt       atomic.Int64 // and when a part of the store that cannot be reached

	asked, failed, fastFailed atomic.Uint64

	lock     sync.Mutex // for transitions
	since    time.Time
	why      string // the error of the last call that has failed, while it is open
	opened   uint64
	openedAt int64
	closedAt int64
	reclosed bool // whether it was open once
}

var _ Home = (*Breaker)(nil)

// NewBreaker returns a closed breaker for inner, or an *[weir.OptionError]. It starts no goroutine. Closing it closes inner.
func NewBreaker(inner Home, o BreakerOptions) (*Breaker, error) {
	o, err := o.checked()
	if err != nil {
		return nil, err
	}
	if err := mustHave("NewBreaker.inner", inner); err != nil {
		return nil, err
	}
	b := &Breaker{inner: inner, o: o, clock: clock.New(o.Clock), since: time.Now()}
	b.cooldown.Store(int64(o.Cooldown))
	return b, nil
}

// BreakerState is what a [Breaker] does with calls.
type BreakerState uint8

const (
	// BreakerClosed lets calls through.
	BreakerClosed BreakerState = iota
	// BreakerOpen fails calls at once.
	BreakerOpen
	// BreakerHalfOpen is trying one call, and fails others at once until that has ended.
	BreakerHalfOpen
)

const (
	stateBits = 2
	stateMask = 1<<stateBits - 1
)

var breakerStates = [...]string{"closed", "open", "half-open"}

// String is the name of the state in lower case.
func (s BreakerState) String() string { return nameOf(breakerStates[:], s, "BreakerState") }

// MarshalText is String.
func (s BreakerState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (s *BreakerState) UnmarshalText(text []byte) error {
	return findName(breakerStates[:], s, text, "breaker state", "closed, open or half-open")
}

// BreakerStats tell what a [Breaker] does and did. Counters only grow.
type BreakerStats struct {
	// State is what it does with calls.
	State BreakerState `json:"state"`
	// Since is when the breaker opened or closed last, or was made: from then on the store has been unavailable, or available.
	Since time.Time `json:"since"`
	// Error is why the store was found unavailable last, "" while it is available.
	Error string `json:"error,omitempty"`
	// Opened is how often it has opened: once for an outage, however many probes failed.
	Opened uint64 `json:"opened"`
	// Asked is how many calls were let through, of which Failed were failures, or were about a record that cannot be read or a
	// part of the store that cannot be reached.
	Asked  uint64 `json:"asked"`
	Failed uint64 `json:"failed"`
	// FastFailed is how many calls were failed at once.
	FastFailed uint64 `json:"fast_failed"`
}

// Stats are the counts since the breaker was made.
func (b *Breaker) Stats() BreakerStats {
	b.lock.Lock()
	defer b.lock.Unlock()
	return BreakerStats{
		State: b.state(), Since: b.since, Error: b.why, Opened: b.opened,
		Asked: b.asked.Load(), Failed: b.failed.Load(), FastFailed: b.fastFailed.Load(),
	}
}

func stateOf(word uint64) BreakerState { return BreakerState(word & stateMask) }

func (b *Breaker) state() BreakerState { return stateOf(b.word.Load()) }

// errOpen is what a call gets while the breaker is open.
var errOpen = fmt.Errorf("%w: it is not asked, as it did not answer before", ErrUnavailable)

// retryAfter is how long a caller should wait that was refused for want of the store: until a call may be let through.
func (b *Breaker) retryAfter() time.Duration {
	switch b.state() {
	case BreakerOpen:
		return time.Duration(max(b.until.Load()-b.clock.Now(), int64(time.Millisecond)))
	default:
		return time.Duration(b.cooldown.Load())
	}
}

// failsFast reports whether a call would be failed at once, and counts it if so.
func (b *Breaker) failsFast() bool {
	if b.state() == BreakerClosed || b.closed.Load() || b.clock.Now() >= b.until.Load() {
		return false
	}
	b.fastFailed.Add(1)
	return true
}

// pass is what a call gets that is let through.
type pass struct {
	word  uint64 // that of the breaker at that moment
	began int64
	timed bool
}

func (p pass) probe() bool { return stateOf(p.word) == BreakerHalfOpen }

// enter lets a call through that does not fail fast, or returns why not.
func (b *Breaker) enter(ctx context.Context) (p pass, err error) {
	if p.word = b.word.Load(); stateOf(p.word) != BreakerClosed {
		if p.word, err = b.enterOpen(ctx); err != nil {
			return p, err
		}
	}
	b.asked.Add(1)
	if _, p.timed = ctx.Deadline(); p.timed {
		p.began = b.clock.Now()
	}
	return p, nil
}

// enterOpen is enter for a breaker that is not closed.
func (b *Breaker) enterOpen(ctx context.Context) (word uint64, err error) {
	switch {
	case b.closed.Load():
		return 0, ErrClosed
	case ctx.Err() != nil: // it would not tell anything about the store
		return 0, notTaken(ctx.Err())
	}
	b.lock.Lock()
	defer b.lock.Unlock()
	if b.state() == BreakerClosed {
		return b.word.Load(), nil
	}
	now := b.clock.Now()
	if now < b.until.Load() { // another call is the probe
		b.fastFailed.Add(1)
		return 0, errOpen
	}
	return b.turn(BreakerHalfOpen, now+int64(b.o.MaxCooldown)), nil
}

// turn changes the state. The breaker must be locked.
func (b *Breaker) turn(to BreakerState, until int64) (word uint64) {
	b.until.Store(until)
	word = (b.word.Load()>>stateBits+1)<<stateBits | uint64(to)
	b.word.Store(word)
	return word
}

// leave counts what became of a call, and returns its error.
func (b *Breaker) leave(ctx context.Context, p pass, err error) error {
	if err == nil && !p.probe() {
		if b.row.Load() != 0 && p.word == b.word.Load() {
			b.row.Store(0)
		}
		return nil
	}
	outcome := b.judge(ctx, p, err)
	unreadable, part := errors.Is(err, ErrUnreadable), errors.Is(err, ErrPartUnavailable)
	if outcome == outcomeFailed || unreadable || part {
		b.failed.Add(1)
	}
	if unreadable {
		b.logRarely(&b.unreadableAt, "a record of the store cannot be read: its key is without the store until it is reset", err)
	}
	if part {
		b.logRarely(&b.partAt, "a part of the store is unavailable: its keys are without the store", err)
	}
	switch {
	case p.probe():
		b.probed(p, outcome, err)
	case outcome == outcomeAnswered && p.word == b.word.Load():
		b.row.Store(0)
	case outcome == outcomeFailed && p.word == b.word.Load() && b.row.Add(1) >= int64(b.o.Failures):
		b.open(p, err)
	}
	return err
}

// outcome is what a call tells about the store.
type outcome uint8

const (
	outcomeNothing outcome = iota
	outcomeAnswered
	outcomeFailed
)

func (b *Breaker) judge(ctx context.Context, p pass, err error) outcome {
	if err == nil || errors.Is(err, ErrUnreadable) {
		return outcomeAnswered
	}
	if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrPartUnavailable) {
		return outcomeNothing
	}
	switch ended := ctx.Err(); {
	case ended == nil:
		return outcomeFailed
	case errors.Is(ended, context.DeadlineExceeded) && p.timed && b.clock.Now()-p.began >= int64(b.o.Patience):
		return outcomeFailed
	}
	return outcomeNothing
}

// logRarely logs an error about some of the keys, unless that was done in the last minute: again says when it may be.
func (b *Breaker) logRarely(again *atomic.Int64, message string, err error) {
	if b.o.Logger == nil {
		return
	}
	now := b.clock.Now()
	if at := again.Load(); now >= at && again.CompareAndSwap(at, now+int64(time.Minute)) {
		b.o.Logger.Warn(message, "error", err)
	}
}

// open opens a breaker that was closed when the call p was let through.
func (b *Breaker) open(p pass, err error) {
	b.lock.Lock()
	if b.word.Load() != p.word {
		b.lock.Unlock()
		return
	}
	now := b.clock.Now()
	cooldown := b.o.Cooldown
	if b.reclosed && now-b.closedAt < int64(b.o.MaxCooldown) {
		cooldown = b.doubled()
	}
	b.opened++
	b.since, b.openedAt, b.why = time.Now(), now, err.Error()
	b.row.Store(0)
	b.wait(now, cooldown)
	b.lock.Unlock()
	if b.o.Logger != nil {
		b.o.Logger.Warn("the store is unavailable", "error", err, "failures_in_a_row", b.o.Failures, "cooldown", cooldown)
	}
}

// doubled is the next cooldown.
func (b *Breaker) doubled() time.Duration {
	return min(2*time.Duration(b.cooldown.Load()), b.o.MaxCooldown)
}

// wait opens the breaker for a cooldown. The breaker must be locked.
func (b *Breaker) wait(now int64, cooldown time.Duration) {
	b.cooldown.Store(int64(cooldown))
	b.turn(BreakerOpen, now+int64(jittered(cooldown)))
}

// jittered is a random time between half of d and d, so that processes do not act in step.
func jittered(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1) //nolint:gosec // who waits how long is no secret
}

// probed closes the breaker, or opens it again.
func (b *Breaker) probed(p pass, what outcome, err error) {
	b.lock.Lock()
	if b.word.Load() != p.word { // another probe was let through since
		b.lock.Unlock()
		return
	}
	now := b.clock.Now()
	switch what {
	case outcomeFailed:
		b.why = err.Error()
		b.wait(now, b.doubled())
	case outcomeNothing: // soon another one, but not at once: callers could give up one after the other
		b.turn(BreakerOpen, now+int64(jittered(b.o.Cooldown)))
	case outcomeAnswered:
		b.row.Store(0)
		b.since, b.closedAt, b.reclosed, b.why = time.Now(), now, true, ""
		if b.back != nil {
			b.back()
		}
		b.turn(BreakerClosed, 0)
	}
	lasted := time.Duration(now - b.openedAt)
	b.lock.Unlock()
	if what == outcomeAnswered && b.o.Logger != nil {
		b.o.Logger.Info("the store is available again", "after", lasted)
	}
}

// Do implements [Home]. A call without charges asks nothing, and says nothing about the store.
func (b *Breaker) Do(ctx context.Context, ask Ask, charges []Charge, decisions []weir.Decision) (h Hold, err error) {
	if len(charges) == 0 {
		return b.inner.Do(ctx, ask, charges, decisions)
	}
	if b.failsFast() {
		return h, errOpen
	}
	p, err := b.enter(ctx)
	if err != nil {
		return h, err
	}
	h, err = b.inner.Do(ctx, ask, charges, decisions)
	return h, b.leave(ctx, p, err)
}

// Settle implements [Home]. The same holds for a hold of nothing.
func (b *Breaker) Settle(ctx context.Context, h Hold, actual []int64) error {
	if h.ID == "" && !h.lent() {
		return b.inner.Settle(ctx, h, actual)
	}
	if b.failsFast() {
		return errOpen
	}
	p, err := b.enter(ctx)
	if err != nil {
		return err
	}
	return b.leave(ctx, p, b.inner.Settle(ctx, h, actual))
}

// Close implements [Home]: it closes the inner store.
func (b *Breaker) Close() error {
	b.closed.Store(true)
	return b.inner.Close()
}
