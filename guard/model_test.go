package guard_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/guard"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/manualclock"
)

// modelGuard is a guard for one endpoint, written to be obviously right: tokens are fractions of any size, and it remembers
// everything.
type modelGuard struct {
	o            guard.Options
	tokens, rate *big.Rat // rate is in tokens per nanosecond
	counted      int64    // when tokens were
	violations   int
	violated     int64
	blocked      bool
	blockedUntil int64
	lockouts     int
	ever         bool // there was a violation
}

func newModelGuard(o guard.Options, now int64) *modelGuard {
	initial := o.InitialTokens
	if initial < 0 {
		initial = o.CapacityTokens
	}
	units := new(big.Rat).SetFloat64(o.RefillTokensPerSecond * float64(o.TokenScale))
	rounded := new(big.Int).Quo(new(big.Int).Add(new(big.Int).Mul(units.Num(), big.NewInt(2)), units.Denom()), new(big.Int).Mul(units.Denom(), big.NewInt(2)))
	rate := new(big.Rat).SetFrac(rounded, big.NewInt(int64(o.TokenScale)))
	return &modelGuard{
		o: o, tokens: big.NewRat(int64(initial), 1), rate: rate.Quo(rate, big.NewRat(1e9, 1)), counted: now,
	}
}

func (m *modelGuard) check(now int64) weir.Decision {
	d := weir.Decision{Limit: int64(m.o.CapacityTokens), Policy: m.o.Name}
	gone := new(big.Rat).Mul(m.rate, big.NewRat(now-m.counted, 1))
	m.tokens.Add(m.tokens, gone)
	m.counted = now
	capacity := big.NewRat(int64(m.o.CapacityTokens), 1)
	if m.tokens.Cmp(capacity) > 0 {
		m.tokens.Set(capacity)
	}
	if m.ever && now-max(m.violated, m.blockedUntil) >= int64(m.o.CooldownReset) {
		m.lockouts = 0
	}
	if m.ever && now-m.violated >= int64(m.o.CooldownReset) {
		m.violations = 0
	}
	if m.blocked && m.blockedUntil > now {
		d.Reason, d.RetryAfter = weir.ReasonHardLockout, ceilMs(m.blockedUntil-now)
		return m.reset(d, capacity, now)
	}
	one := big.NewRat(1, 1)
	if m.tokens.Cmp(one) >= 0 {
		m.tokens.Sub(m.tokens, one)
		m.violations = 0
		d.Allowed = true
		d.Remaining = new(big.Int).Quo(m.tokens.Num(), m.tokens.Denom()).Int64()
		return m.reset(d, capacity, now)
	}
	if m.ever && now-m.violated <= int64(m.o.SoftViolationWindow) {
		m.violations++
	} else {
		m.violations = 1
	}
	m.ever, m.violated = true, now
	d.Reason, d.RetryAfter = weir.ReasonSoftThrottle, m.until(one)
	if m.violations < m.o.MaxSoftViolations {
		return m.reset(d, capacity, now)
	}
	d.Reason = weir.ReasonHardLockout
	length := m.o.HardLockout
	for range m.lockouts {
		length = min(length*time.Duration(m.o.LockoutFactor), max(m.o.MaxLockout, m.o.HardLockout))
	}
	if m.o.LockoutFactor == 1 {
		length = m.o.HardLockout
	}
	m.lockouts++
	m.violations = 0
	m.blocked, m.blockedUntil = true, now+int64(length)
	if length > 0 {
		d.RetryAfter = ceilMs(int64(length))
	}
	return m.reset(d, capacity, now)
}

// until is how long it takes until there are so many tokens, rounded up.
func (m *modelGuard) until(tokens *big.Rat) time.Duration {
	missing := new(big.Rat).Sub(tokens, m.tokens)
	missing.Quo(missing, m.rate)
	up := new(big.Int).Add(missing.Num(), new(big.Int).Sub(missing.Denom(), big.NewInt(1)))
	return time.Duration(new(big.Int).Quo(up, missing.Denom()).Int64())
}

func (m *modelGuard) reset(d weir.Decision, capacity *big.Rat, now int64) weir.Decision {
	d.ResetAfter = m.until(capacity)
	if m.blocked {
		d.ResetAfter = max(d.ResetAfter, time.Duration(m.blockedUntil-now))
	}
	return d
}

func ceilMs(ns int64) time.Duration { return time.Duration((ns + 999_999) / 1_000_000 * 1_000_000) }

// TestGuardEqualsModel compares every answer of random histories with that of a slow and simple guard, with options of all
// kinds. The real one runs cleanups and has other endpoints pass through, which must make no difference.
func TestGuardEqualsModel(t *testing.T) {
	histories, steps := 150, 400
	if race.Enabled {
		histories = 20
	}
	seen := map[weir.Reason]int{}
	for seed := range uint64(histories) {
		rng := rand.New(rand.NewPCG(seed, 1))
		pick := func(values ...time.Duration) time.Duration { return values[rng.IntN(len(values))] }
		o := guard.DefaultOptions()
		o.Name = fmt.Sprint("history ", seed)
		// A bucket of one token may lose a part of a nanosecond.
		o.CapacityTokens = 2 + rng.IntN(12)
		o.RefillTokensPerSecond = []float64{6, 0.001, 0.37, 1.0 / 3, 1234.567, 99_999.9}[rng.IntN(6)]
		o.TokenScale = []int{1000, 7777, 1_000_000}[rng.IntN(3)]
		if rng.IntN(2) == 0 {
			o.InitialTokens = o.CapacityTokens
		}
		o.HardLockout = pick(0, time.Second, 3*time.Second+1, 1500*time.Microsecond, time.Minute)
		o.MaxSoftViolations = 1 + rng.IntN(4)
		o.SoftViolationWindow = pick(time.Second, 5*time.Second, time.Minute)
		o.CooldownReset = pick(time.Second, 10*time.Second, time.Hour)
		o.LockoutFactor = 1 + rng.IntN(3)
		o.MaxLockout = max(o.HardLockout, pick(10*time.Second, 24*time.Hour))
		o.StaleEntry, o.CleanupInterval = pick(time.Second, time.Minute), pick(time.Second, time.Minute)
		o.MaxTrackedEndpoints = 2 + rng.IntN(6)
		clock := manualclock.New(rng.Int64N(1e18) - 5e17)
		o.Clock = clock
		g, err := guard.New(o)
		if err != nil {
			t.Fatal(err)
		}
		m := newModelGuard(o, clock.Now())
		var last time.Duration
		for step := range steps {
			switch rng.IntN(6) {
			case 0:
				clock.Advance(time.Duration(rng.Int64N(int64(2e9 / o.RefillTokensPerSecond))))
			case 1:
				clock.Advance(last) // as a client does that is told to wait
			case 2:
				clock.Advance(pick(1, o.SoftViolationWindow, o.SoftViolationWindow+1, o.CooldownReset-1, o.CooldownReset, o.StaleEntry+1))
			}
			if rng.IntN(3) == 0 {
				_, _ = g.CheckAddr(address6(rng.IntN(100)))
			}
			d, err := g.Check("192.0.2.1:80")
			if d.Reason == weir.ReasonTrackingCap {
				// The others fill the guard. What the model has forgotten by then does not matter either.
				continue
			}
			if want := m.check(clock.Now()); d != want || err != nil {
				t.Fatalf("seed %d, step %d: %+v, %v\nwant %+v\noptions %+v", seed, step, d, err, want, o)
			}
			last = d.RetryAfter
			seen[d.Reason]++
		}
		_ = g.Close()
	}
	for _, reason := range []weir.Reason{weir.ReasonNone, weir.ReasonSoftThrottle, weir.ReasonHardLockout} {
		if seen[reason] < histories*steps/30 {
			t.Errorf("%v was compared %d times only", reason, seen[reason])
		}
	}
}
