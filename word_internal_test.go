//go:build !race

package weir

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/clock"
)

// nastyRates have periods in lowest terms from 1 ns to a day, and up to 999999937 permits to keep the fractions of.
var nastyRates = []Rate{
	PerSecond(999999937), Per(7, 3*time.Millisecond), PerSecond(12345), PerSecond(1e9), PerDay(1), PerSecond(3),
	Per(999983, 1000003), PerMinute(8),
}

// mostBurst is the largest burst that fits in a word, or the largest there is.
func mostBurst(r Rate) int64 {
	a, err := algo.NewTokenBucket(r.Permits, r.Period, 1)
	if err != nil {
		panic(err)
	}
	_, per := a.Rate()
	return min(mostAhead/per, algo.MaxPermits, int64(algo.MaxFill)/per)
}

// TestWordEqualsArithmetic plays random histories on a TokenBucket, most of whose calls change one word without a lock, and on the
// arithmetic of algo.TokenBucket at the same times. All answers must be the same, and so must the state whenever
// it leaves the word.
func TestWordEqualsArithmetic(t *testing.T) {
	steps := 10_000
	if testing.Short() {
		steps = 2_000
	}
	for _, rate := range nastyRates {
		most := mostBurst(rate)
		for _, burst := range []int64{1, 2, 7, 1000, most - 1, most} {
			if burst > most {
				continue
			}
			t.Run(fmt.Sprintf("%v, burst %d", rate, burst), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					newBucketPair(t, rate, burst).play(steps)
				})
			})
		}
	}
}

// TestBucketsBeyondTheBoundOfTheWord plays the same histories on buckets that are too large for it.
func TestBucketsBeyondTheBoundOfTheWord(t *testing.T) {
	for _, l := range []Limit{
		TokenBucket(PerSecond(999999937), mostBurst(PerSecond(999999937))+1),
		TokenBucket(Per(7, 3*time.Millisecond), mostBurst(Per(7, 3*time.Millisecond))+1),
		TokenBucket(PerSecond(12345), 1e12),
		TokenBucket(PerDay(1), mostBurst(PerDay(1))+1),
		TokenBucket(Per(1e15-1, 1e15), 5), // has too many parts in a nanosecond
	} {
		t.Run(l.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newBucketPair(t, l.Rate(), l.Permits())
				if p.contend != nil {
					t.Error("the bucket is kept in a word")
				}
				for range 3000 {
					p.step()
				}
				p.settleEverything()
				if p.words > 0 {
					t.Errorf("%d calls found the word", p.words)
				}
			})
		})
	}
}

// TestBoundOfTheWordIsExact holds the documented bound: burst x period in lowest terms <= 2^55.
func TestBoundOfTheWordIsExact(t *testing.T) {
	for _, c := range []struct {
		rate  Rate
		burst int64
		fits  bool
	}{
		{PerDay(1), (1 << 55) / int64(24*time.Hour), true},
		{PerDay(1), (1<<55)/int64(24*time.Hour) + 1, false},
		{PerSecond(999999937), (1 << 55) / int64(time.Second), true},
		{PerSecond(999999937), (1<<55)/int64(time.Second) + 1, false},
		{Per(1<<20, 1<<40), 1 << 35, true}, // exactly 2^55
		{Per(1<<20, 1<<40), 1<<35 + 1, false},
		{PerSecond(1e9), 1e15, true},
	} {
		b, err := New(TokenBucket(c.rate, c.burst), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if fits := b.word != nil; fits != c.fits {
			t.Errorf("%v, burst %d: kept in a word: %v", c.rate, c.burst, fits)
		}
	}
}

// TestWindowWordEqualsArithmetic does the same for a FixedWindow.
func TestWindowWordEqualsArithmetic(t *testing.T) {
	steps := 10_000
	if testing.Short() {
		steps = 2_000
	}
	for _, window := range []time.Duration{1, 7, time.Microsecond, time.Millisecond, 8 * time.Second, 24 * time.Hour, 3660 * 24 * time.Hour} {
		for _, limit := range []int64{1, 2, 7, 1000, windowPermits/2 - 1, windowPermits / 2} {
			if limit > int64(window) {
				continue // no rate is more than 10^9 a second
			}
			t.Run(fmt.Sprintf("limit %d, window %v", limit, window), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { newWindowPair(t, limit, window).play(steps) })
			})
		}
	}
}

// TestWindowsBeyondTheBoundOfTheWord plays the same histories on limits that are too large for it.
func TestWindowsBeyondTheBoundOfTheWord(t *testing.T) {
	for _, rate := range []Rate{Per(windowPermits/2+1, 8*time.Second), Per(1e15, 3660*24*time.Hour)} {
		synctest.Test(t, func(t *testing.T) {
			p := newWindowPair(t, rate.Permits, rate.Period)
			for range 3000 {
				p.step()
			}
			p.settleEverything()
			if p.words > 0 {
				t.Errorf("%d calls found the word", p.words)
			}
		})
	}
}

// player is what the limiters have in common that keep their state in a word while no call waits.
type player interface {
	Acquirer
	Allow() bool
	Refund(n int64)
}

// pair is a limiter and the arithmetic that it must equal.
type pair[S any] struct {
	t         *testing.T
	rng       *rand.Rand
	limiter   player
	algorithm algo.Algorithm[S]
	state     S
	word      func() uint64
	contend   func(began, n int64) // takes as contended calls do
	open      []Lease
	marks     []algo.Mark
	limit     int64
	tick      time.Duration // about one permit or window
	life      time.Duration // until the epoch must have moved

	calls, words, granted, refused int
}

func newBucketPair(t *testing.T, rate Rate, burst int64) *pair[algo.TokenBucketState] {
	t.Helper()
	b, err := New(TokenBucket(rate, burst), Options{MaxDebt: algo.MaxPermits, QueueLimit: 1e15})
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := algo.NewTokenBucket(rate.Permits, rate.Period, burst)
	if err != nil {
		t.Fatal(err)
	}
	num, _ := bucket.Rate()
	p := &pair[algo.TokenBucketState]{
		t: t, rng: rand.New(rand.NewPCG(uint64(burst), uint64(rate.Permits))),
		limiter: b, algorithm: bucket, state: algo.TokenBucketState{Last: b.born},
		word: b.fast.word.Load, limit: burst, tick: rate.Period / time.Duration(rate.Permits), life: time.Duration(epochLife / num),
	}
	if b.word == nil {
		return p
	}
	p.contend = func(now, n int64) {
		// A time that was read before may be used for a grant; a refusal holds now.
		began := max(now-p.rng.Int64N(3), p.state.Last)
		ahead, at, v := b.fast.takeContended(n*b.fast.one, began)
		if v == locked {
			return
		}
		want := p.take(at, n)
		if want.Allowed != (v == taken) || at != now && v != taken {
			t.Fatalf("%d permits: verdict %d at %d of %d, want %+v", n, v, at, now, want)
		}
		if v == short {
			b.fast.refused.Add()
		}
		if got := b.fast.duration(ahead); got != want.ResetAfter {
			t.Fatalf("%d permits: full in %v, want %v", n, got, want.ResetAfter)
		}
	}
	return p
}

func newWindowPair(t *testing.T, limit int64, window time.Duration) *pair[algo.WindowState] {
	t.Helper()
	w, err := New(FixedWindow(Per(limit, window)), Options{MaxDebt: algo.MaxPermits, QueueLimit: 1e15})
	if err != nil {
		t.Fatal(err)
	}
	windows, err := algo.NewFixedWindow(limit, window, w.born)
	if err != nil {
		t.Fatal(err)
	}
	return &pair[algo.WindowState]{
		t: t, rng: rand.New(rand.NewPCG(uint64(limit), uint64(window))),
		limiter: w, algorithm: windows, state: algo.WindowState{Window: math.MinInt64},
		word: w.window.word.Load, limit: limit, tick: window, life: longTimes(window, windowEpochLife),
	}
}

// longTimes is n windows, or the longest time that a step takes.
func longTimes(window time.Duration, n int64) time.Duration {
	if n > int64(longest/window) {
		return longest
	}
	return window * time.Duration(n)
}

const longest = 365 * 24 * time.Hour

// play does some random things to both.
func (p *pair[S]) play(steps int) {
	p.t.Helper()
	for range steps {
		p.step()
	}
	p.settleEverything()
	if p.words*5 < p.calls {
		p.t.Errorf("only %d of %d calls found the word", p.words, p.calls)
	}
	if p.granted < steps/1000 || p.refused < steps/1000 {
		p.t.Errorf("%d granted and %d refused of %d: the history shows little", p.granted, p.refused, p.calls)
	}
}

// step does one random thing to both.
func (p *pair[S]) step() {
	p.t.Helper()
	p.pass()
	if p.word()&raised == 0 {
		p.words++
	}
	p.calls++
	now, n := clock.Now(), p.permits()
	switch p.rng.IntN(16) {
	case 0:
		want := p.algorithm.Peek(p.state, now, n)
		p.compare(n, p.limiter.Peek(n), want)
	case 1, 2, 3, 4:
		want := p.take(now, 1)
		if got := p.limiter.Allow(); got != want.Allowed {
			p.t.Fatalf("Allow() = %v, want %+v", got, want)
		}
	case 5, 6:
		p.compare(n, p.limiter.TryAcquire(n).Decision(), p.take(now, n))
	case 7: // what contended calls do, with a time that was read before
		if n > 0 && n <= p.limit && p.contend != nil {
			p.contend(now, n)
		}
	case 8:
		if l, err := p.limiter.Acquire(p.done(), n); err == nil {
			p.t.Fatalf("%+v", l.Decision())
		}
		if p.algorithm.Peek(p.state, now, n).Allowed {
			want := p.take(now, n)
			l, err := p.limiter.Acquire(context.Background(), n)
			if err != nil {
				p.t.Fatal(err)
			}
			p.compare(n, l.Decision(), want)
		}
	case 9, 10, 11:
		want := p.take(now, n)
		l := p.limiter.TryReserve(n)
		p.compare(n, l.Decision(), want)
		if l.claim != nil {
			if p.contend != nil && l.claim.mark != want.Mark { // of a window more than one mark means the same
				p.t.Fatalf("the mark of %d permits is %+v, want %+v", n, l.claim.mark, want.Mark)
			}
			p.open, p.marks = append(p.open, l), append(p.marks, want.Mark)
		}
	case 12, 13:
		if len(p.open) > 0 {
			p.settle(now, p.rng.IntN(len(p.open)))
		}
	case 14:
		if p.rng.IntN(10) == 0 {
			p.limiter.Refund(n)
			if n > 0 {
				p.state = p.algorithm.Refund(p.state, now, n)
			}
		}
	default:
		if st, want := p.limiter.Stats(), p.algorithm.Peek(p.state, now, 0).Remaining; st.Remaining != want {
			p.t.Fatalf("%d permits are available, want %d", st.Remaining, want)
		}
		if st := p.limiter.Stats(); st.Allowed != int64(p.granted) || st.Refused != int64(p.refused) {
			p.t.Fatalf("%+v, want %d granted and %d refused", st, p.granted, p.refused)
		}
	}
}

// pass lets some time pass: none, about a permit, up to a burst, or beyond the range of the word.
func (p *pair[S]) pass() {
	var d time.Duration
	switch p.rng.IntN(200) {
	case 0, 1, 2, 3:
		d = p.life / 2
	case 4, 5:
		d = p.life + time.Duration(p.rng.IntN(3)) - 1
	case 6:
		d = 2 * p.life
	case 7:
		d = p.limiter.Peek(1).ResetAfter
	default:
		if p.rng.IntN(2) == 0 {
			d = time.Duration(p.rng.Int64N(2*int64(p.tick) + 2))
		}
	}
	// The bubble must not live longer than a time can tell.
	if time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) < 150*365*24*time.Hour {
		time.Sleep(min(d, longest))
	}
}

func (p *pair[S]) permits() int64 {
	switch p.rng.IntN(6) {
	case 0:
		return p.rng.Int64N(4)
	case 1:
		return p.limit + p.rng.Int64N(3) - 1
	case 2:
		return p.rng.Int64N(p.limit + 1)
	case 3:
		return p.limiter.Peek(1).Remaining + p.rng.Int64N(2)
	default:
		return 1 + p.rng.Int64N(min(p.limit, 20))
	}
}

// take takes n permits from the arithmetic, and counts.
func (p *pair[S]) take(now, n int64) (r algo.Result) {
	next, r := p.algorithm.Take(p.state, now, n)
	if n > 0 {
		p.state = next
		if r.Allowed {
			p.granted++
		} else {
			p.refused++
		}
	}
	return r
}

func (p *pair[S]) compare(n int64, d Decision, r algo.Result) {
	p.t.Helper()
	if d.Allowed != r.Allowed || d.Reason != reasonOf(r) || d.Remaining != r.Remaining || d.RetryAfter != r.RetryAfter ||
		d.ResetAfter != r.ResetAfter || d.Limit != p.limit {
		p.t.Fatalf("%d permits: %+v, want %+v", n, d, r)
	}
}

// settle ends a lease, by a cancellation or a cost that may make a debt.
func (p *pair[S]) settle(now int64, i int) {
	p.t.Helper()
	l, n := p.open[i], p.open[i].Permits()
	actual := p.rng.Int64N(n + 1)
	switch p.rng.IntN(4) {
	case 0:
		l.Cancel()
		actual = 0
	case 1:
		actual = n + p.rng.Int64N(n+1)
		if p.rng.IntN(8) == 0 {
			actual = n + p.rng.Int64N(4*p.limit+1) // does not fit in the word if the burst is large
		}
		l.Commit(actual)
	default:
		l.Commit(actual)
	}
	if actual < n {
		p.state = p.algorithm.Cancel(p.state, now, n-actual, p.marks[i])
	} else if actual > n {
		p.state, _ = p.algorithm.Charge(p.state, now, actual-n, algo.MaxPermits)
	}
	last := len(p.open) - 1
	p.open[i], p.marks[i] = p.open[last], p.marks[last]
	p.open, p.marks = p.open[:last], p.marks[:last]
	p.compare(1, p.limiter.Peek(1), p.algorithm.Peek(p.state, now, 1))
}

func (p *pair[S]) settleEverything() {
	p.t.Helper()
	for len(p.open) > 0 {
		p.settle(clock.Now(), 0)
	}
	p.compare(1, p.limiter.Peek(1), p.algorithm.Peek(p.state, clock.Now(), 1))
}

func (p *pair[S]) done() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestCallsAreDecidedInTheWord makes sure that the fast path is the one that is used.
func TestCallsAreDecidedInTheWord(t *testing.T) {
	b, err := New(TokenBucket(PerHour(1), 20), Options{QueueLimit: 5})
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock() // a call that asks for the lock waits for ever
	defer b.mu.Unlock()
	for range 2 { // 20 permits
		if !b.Allow() || !b.TryAcquire(2).Allowed() || !b.TryReserve(1).Allowed() || !b.TryAcquire(5).Allowed() {
			t.Error("a permit is refused")
		}
		if l, err := b.Acquire(t.Context(), 1); err != nil || !l.Allowed() {
			t.Errorf("%+v, %v", l.Decision(), err)
		}
	}
	if b.Allow() && b.Allow() && b.Allow() || b.TryAcquire(19).Allowed() || b.TryReserve(20).Allowed() {
		t.Error("more than the burst is granted")
	}
}
