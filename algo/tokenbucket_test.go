//go:build !race

package algo_test

import (
	"errors"
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/lockstep"
	"github.com/weirhq/weir/internal/reference"
)

// must is v, for constructors that cannot fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}

	return v
}

// refuses wants err to name the parameter.
func refuses(t *testing.T, what, parameter string, err error) {
	t.Helper()

	if p, ok := errors.AsType[*algo.ParameterError](err); !ok || p.Parameter != parameter {
		t.Errorf("%s: %v, want an error that names %s", what, err, parameter)
	}
}

func TestTokenBucketParameters(t *testing.T) {
	for _, c := range []struct {
		name    string
		permits int64
		period  time.Duration
		burst   int64
		refused string
	}{
		{"slowest", 1, algo.MaxPeriod, 1, ""},
		{"fastest", 1, 1, algo.MaxPermits, ""},
		{"most permits", algo.MaxPermits, algo.MaxPeriod, algo.MaxPermits, ""},
		{"fill of exactly the longest time", 1, algo.MaxPeriod, 5, ""},
		{"fill of one permit more", 1, algo.MaxPeriod, 6, "burst"},
		{"fill longer by a fraction of a nanosecond", 3, algo.MaxPeriod - 1, 16, "burst"},
		{"fill that overflows", 1, algo.MaxPeriod, algo.MaxPermits, "burst"},
		{"no permits", 0, time.Second, 1, "permits"},
		{"negative permits", -1, time.Second, 1, "permits"},
		{"too many permits", algo.MaxPermits + 1, algo.MaxPeriod, 1, "permits"},
		{"more than one permit a nanosecond", 1_000_000_001, time.Second, 1, "permits"},
		{"no period", 1, 0, 1, "period"},
		{"too long a period", 1, algo.MaxPeriod + 1, 1, "period"},
		{"no burst", 1, time.Second, 0, "burst"},
		{"too large a burst", 1, 1, algo.MaxPermits + 1, "burst"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := algo.NewTokenBucket(c.permits, c.period, c.burst)

			switch {
			case c.refused != "":
				refuses(t, "NewTokenBucket", c.refused, err)
			case err != nil:
				t.Error(err)
			case b.Burst() != c.burst || b.Limit() != c.burst:
				t.Errorf("burst %d and limit %d, want %d", b.Burst(), b.Limit(), c.burst)
			}
		})
	}

	if permits, period := must(algo.NewTokenBucket(100, time.Minute, 1)).Rate(); permits != 1 || period != 600_000_000 {
		t.Errorf("100 a minute in lowest terms is %d per %d ns, want 1 per 600000000", permits, period)
	}
}

func TestTokenBucketNeverUsed(t *testing.T) {
	b := must(algo.NewTokenBucket(1, time.Second, 5))

	var s algo.TokenBucketState

	for _, now := range []int64{-1 << 62, -1, 0, 1, 1 << 62} {
		if !b.Fresh(s, now) {
			t.Errorf("the zero state is not fresh at %d", now)
		}

		if r := b.Peek(s, now, 5); !r.Allowed || r.Remaining != 5 || r.ResetAfter != 0 {
			t.Errorf("the zero state at %d: %+v, want 5 permits", now, r)
		}
	}

	if at := b.FreshAt(s); at != math.MinInt64 {
		t.Errorf("FreshAt of the zero state is %d, want math.MinInt64", at)
	}
}

// missing is what a state lacks at time now, as Refund of nothing writes it.
func missing(b algo.TokenBucket, s algo.TokenBucketState, now int64) [2]int64 {
	s = b.Refund(s, now, 0)

	return [2]int64{s.Ahead, s.Part}
}

// TestTokenBucketCancelAfterGivingBack is the case in which two cancellations gave back more than had been taken: the
// first one brings forward when the permits of the second are regained.
func TestTokenBucketCancelAfterGivingBack(t *testing.T) {
	const second = int64(time.Second)

	b := must(algo.NewTokenBucket(1, time.Second, 10))
	s, first := b.Take(algo.TokenBucketState{}, 0, 5)
	s, other := b.Take(s, 0, 5)
	s = b.Cancel(s, 1*second, 5, first.Mark)
	s, third := b.Take(s, 6*second, 3)
	s = b.Cancel(s, 6*second, 5, other.Mark)

	if !third.Allowed {
		t.Fatal("the bucket is not full again")
	}

	if r := b.Peek(s, 6*second, 1); r.Remaining != 7 {
		t.Errorf("%d permits after three of ten were taken at once, want 7", r.Remaining)
	}
}

func TestTokenBucketCancelFromFull(t *testing.T) {
	b := must(algo.NewTokenBucket(1, time.Second, 10))

	for gone := range int64(12) {
		now := gone * int64(time.Second)
		s, r := b.Take(algo.TokenBucketState{}, 0, 6)

		before := b.Peek(s, now, 1).Remaining
		s = b.Cancel(s, now, 6, r.Mark)

		if got, want := b.Peek(s, now, 1).Remaining-before, max(0, 6-gone); got != want {
			t.Errorf("%d s after 6 permits were taken from a full bucket %d come back, want %d", gone, got, want)
		}
	}
}

// TestTokenBucketCancelGivesBack looks at single cancellations in random histories. The permits that were taken last
// come back exactly, all of those taken from a busy bucket do, and never fewer than what there was no time to regain.
func TestTokenBucketCancelGivesBack(t *testing.T) {
	src := lockstep.Source(random(t).Uint64N)
	kinds := map[string]int{}

	for range effort(t, 20_000) {
		burst := 2 + int64(src(30))
		permits, period := 1+int64(src(7)), pick[time.Duration](src, 7, 13, 1000, 9973, time.Second)
		b, r := must(algo.NewTokenBucket(permits, period, burst)), reference.NewTokenBucket(permits, period, burst)
		p := &lockstep.Pair[algo.TokenBucketState]{Algorithm: &b, Reference: r}
		now := int64(0)

		do := func(kind lockstep.Kind, n int64, mark int) {
			if err := p.Do(lockstep.Call{Kind: kind, Now: now, N: n, Mark: mark}); err != nil {
				t.Fatal(err)
			}
		}
		spread := func(most int) {
			for range src(uint64(most)) {
				now += int64(src(uint64(period)))

				do(lockstep.Take, 1+int64(src(uint64(burst/2))), 0)
			}
		}

		for spread(8); p.Marks() > 0 && src(3) == 0; {
			do(lockstep.Cancel, p.Marked(0), 0)
		}

		without, n := p.State, 1+int64(src(uint64(burst)))
		owed := missing(b, without, now)
		began, marks := now, p.Marks()

		do(lockstep.Take, n, 0)

		if !p.Last.Allowed {
			continue
		}

		followed := src(2) == 0
		if followed && marks < 3 {
			spread(4)
		}

		now += int64(src(uint64(period) * 3))
		held := r.At(now)
		latest := p.Marks() == marks+1

		do(lockstep.Cancel, n, p.Marks()-marks-1)

		back := new(big.Rat).Sub(r.At(now), held)
		gone := now - began

		least := new(big.Rat).SetInt64(n)
		least.Sub(least, big.NewRat(gone*permits, int64(period)))

		if room := new(big.Rat).Sub(new(big.Rat).SetInt64(burst), held); room.Cmp(least) < 0 {
			least = room
		}

		switch {
		case latest:
			kinds["latest"]++

			if got, want := missing(b, p.State, now), missing(b, without, now); got != want {
				t.Errorf("the latest take undone: missing %v, want %v", got, want)
			}
		case gone < owed[0]:
			kinds["busy"]++

			if back.Cmp(new(big.Rat).SetInt64(n)) != 0 {
				t.Errorf("%d taken from a busy bucket, %v come back", n, back)
			}
		default:
			kinds["other"]++
		}

		if back.Cmp(least) < 0 {
			t.Errorf("%d taken, %v come back, want at least %v", n, back, least)
		}
	}

	for _, kind := range []string{"latest", "busy", "other"} {
		if kinds[kind] == 0 {
			t.Errorf("no history in which the take was %s: %v", kind, kinds)
		}
	}
}

// TestTokenBucketForeignMark passes Marks that no Take of the bucket made. What comes back is not defined, but the state
// must stay one of the bucket.
func TestTokenBucketForeignMark(t *testing.T) {
	other := must(algo.NewTokenBucket(999_999_937, time.Second, 1000))
	_, taken := other.Take(algo.TokenBucketState{}, 500, 777)
	_, windowed := must(algo.NewFixedWindow(10, time.Second, 0)).Take(algo.WindowState{}, 1<<61, 1)

	b := must(algo.NewTokenBucket(3, 7, 10))
	for _, m := range []algo.Mark{{}, taken.Mark, windowed.Mark, {At: 510, Part: 3, Taken: math.MinInt64}, {At: 510, Part: -1, Taken: math.MinInt64}} {
		for now := int64(480); now < 560; now++ {
			s, _ := b.Take(algo.TokenBucketState{}, 500, 10)
			s = b.Cancel(s, now, 4, m)

			if s.Part < 0 || s.Part >= 3 || s.Ahead < 0 || s.Ahead > 24 {
				t.Fatalf("canceled at %d by the Mark %+v: the state became %+v", now, m, s)
			}
		}
	}
}

// TestTokenBucketRemainingInFullWidth counts the permits of states that need all of the 128 bits, and their carry.
func TestTokenBucketRemainingInFullWidth(t *testing.T) {
	const num, per, burst = int64(999_999_999_999_989), int64(algo.MaxPeriod) - 1, algo.MaxPermits

	b := must(algo.NewTokenBucket(num, time.Duration(per), burst))
	rng := random(t)
	full := new(big.Int).Mul(big.NewInt(burst), big.NewInt(per))
	fill := new(big.Int).Div(full, big.NewInt(num)).Int64()
	want := new(big.Int)

	for range effort(t, 500_000) {
		s := algo.TokenBucketState{Ahead: rng.Int64N(fill), Part: rng.Int64N(num)}

		want.Mul(big.NewInt(s.Ahead), big.NewInt(num))
		want.Add(want, big.NewInt(s.Part))
		want.Sub(full, want)
		want.Div(want, big.NewInt(per))

		if got := b.Peek(s, 0, 1).Remaining; got != want.Int64() {
			t.Fatalf("%+v: %d permits, want %v", s, got, want)
		}
	}
}

func TestTokenBucketWaitEqualsReference(t *testing.T) {
	src := lockstep.Source(random(t).Uint64N)

	for range effort(t, 20_000) {
		permits, period, burst := drawBucket(src)

		b, err := algo.NewTokenBucket(permits, period, burst)
		if err != nil {
			continue
		}

		r := reference.NewTokenBucket(permits, period, burst)
		now := src.Start()
		n, debt := logUniform(src, burst), logUniform(src, burst)

		s, _ := b.Charge(algo.TokenBucketState{}, now, n, debt)
		r.Charge(now, n, debt)

		for range 10 {
			n := pick(src, 0, 1, burst, burst+1, math.MaxInt64, -1, logUniform(src, algo.MaxPermits), logUniform(src, math.MaxInt64))
			at := now + int64(src(uint64(period)*2))

			if got, want := b.Wait(s, at, n), r.Wait(at, n); got != want {
				t.Fatalf("Wait(%d) at %d of %+v in state %+v: %d, want %d", n, at, b, s, got, want)
			}
		}
	}
}

// TestTokenBucketCarry changes the parameters of buckets in random states: what is in them stays, held at the new
// burst, and what rounding costs is less than a nanosecond regains.
func TestTokenBucketCarry(t *testing.T) {
	src := lockstep.Source(random(t).Uint64N)
	draw := func() (algo.TokenBucket, *reference.TokenBucket) {
		for {
			permits, period, burst := drawBucket(src)
			if b, err := algo.NewTokenBucket(permits, period, burst); err == nil {
				return b, reference.NewTokenBucket(permits, period, burst)
			}
		}
	}

	for range effort(t, 40_000) {
		old, before := draw()
		b, _ := draw()
		now := src.Start()
		n, debt := logUniform(src, 2*old.Burst()), logUniform(src, old.Burst())-1
		s, _ := old.Charge(algo.TokenBucketState{}, now, n, debt)
		before.Charge(now, n, debt)

		now += pick(src, 0, 1, int64(src(uint64(fillTime(old))+1)))
		s = b.Carry(old, s, now)

		want := before.At(now)
		if burst := new(big.Rat).SetInt64(b.Burst()); burst.Cmp(want) < 0 {
			want = burst
		}

		num, per := b.Rate()
		got := held(b, s, now)
		nanosecond := big.NewRat(num, per)

		// A debt that takes longer than MaxFill is cut there.
		if deepest := new(big.Rat).Mul(nanosecond, new(big.Rat).SetInt64(-int64(algo.MaxFill))); want.Cmp(deepest) < 0 {
			want = deepest
		}

		if least := new(big.Rat).Sub(want, nanosecond); got.Cmp(want) > 0 || got.Cmp(least) <= 0 {
			t.Fatalf("%+v in state %+v carried to %+v: %v, want %v", old, s, b, got, want)
		}

		if s.Last != now || s.Ahead < 0 || s.Part < 0 || s.Part >= num {
			t.Fatalf("carried to %+v, the state is %+v", b, s)
		}

		again := b.Carry(b, s, now)
		if again.Returned = s.Returned; again != s {
			t.Fatalf("carried to itself, %+v in state %+v becomes %+v", b, s, again)
		}
	}
}

// held is how many permits a bucket holds.
func held(b algo.TokenBucket, s algo.TokenBucketState, now int64) *big.Rat {
	num, per := b.Rate()
	m := missing(b, s, now)
	lacks := big.NewRat(m[1], num)
	lacks.Add(lacks, new(big.Rat).SetInt64(m[0]))
	lacks.Mul(lacks, big.NewRat(num, per))

	return lacks.Sub(new(big.Rat).SetInt64(b.Burst()), lacks)
}

func FuzzTokenBucketHistory(f *testing.F) {
	fuzzHistories(f, tokenBucketHistory)
}

// fuzzHistories reads parameters and calls from the input and compares the answers with the reference.
func fuzzHistories(f *testing.F, run func(lockstep.Source, func() bool) (int, error)) {
	f.Helper()

	for _, seed := range []string{
		"",
		"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f",
		"\x01\x01\x00\x00\x00\x06\x01\x06\x01\x06\x01\x0b\x00\x01\x0c\x00\x01\x0d\x01\x0e\x05\x05",
		"\x05\x02\x01\x03\x00\x01\x00\x00\x00\x0f\x00\x00\x0f\x00\x0e\x0b\x00\x00\x0e\x0c\x01\x00\x10\x00\x00\x0f",
		"a sentence is a history like any other, with takes and probes, refunds and charges, back and forth in time",
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
		"\x03\x00\x02\x09\x01\x00\x12\x00\x03\x13\x05\x00\x00\x12\x01\x01\x13\x03\x00\x00\x04\x04\x00\x00\x00\x00\x0e\x00",
	} {
		f.Add([]byte(seed))
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		src, ended := lockstep.Bytes(data)
		more := times(stepsPerHistory)

		if _, err := run(src, func() bool { return !ended() && more() }); err != nil {
			t.Fatal(err)
		}
	})
}
