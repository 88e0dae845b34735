package guard_test

import (
	"math/big"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/guard"
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
