package guard

import (
	"math"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

// entry is the state of an endpoint as the table keeps it. With the two words of its key it fills a cache line.
// Times are in nanoseconds of the guard's clock.
type entry [entryWords]uint64

const (
	fullAt         = iota // when its bucket is full
	fullPart              // and part of a nanosecond
	seenAt                // when it came last
	violatedAt            // when its last violation was
	counts                // violations, and above them lockouts since it has cooled down
	blockedUntilAt        // when its last lockout ends
	entryWords
)

func (s *entry) at(word int) int64      { return int64(s[word]) }
func (s *entry) set(word int, at int64) { s[word] = uint64(at) }
func (s *entry) violations() uint32     { return uint32(s[counts]) }
func (s *entry) level() uint32          { return uint32(s[counts] >> 32) }
func (s *entry) count(violations, level uint32) {
	s[counts] = uint64(level)<<32 | uint64(violations)
}
func (s *entry) blocked(now int64) bool { return s.at(blockedUntilAt) > now }

func (s *entry) bucket(now int64) algo.TokenBucketState {
	ahead := s.at(fullAt) - now
	if ahead < 0 {
		return algo.TokenBucketState{Last: now}
	}
	return algo.TokenBucketState{Ahead: ahead, Part: int64(s[fullPart]), Last: now}
}

func (s *entry) keep(b algo.TokenBucketState) {
	s.set(fullAt, b.Last+b.Ahead)
	s[fullPart] = uint64(b.Part)
}

// forgive lifts the lockout and forgets what led to it.
func (s *entry) forgive(now int64) {
	s.set(blockedUntilAt, min(s.at(blockedUntilAt), now))
	s[counts] = 0
}

// begin makes s the state of an endpoint that comes for the first time.
func (g *Guard) begin(s *entry, now int64) {
	initial := g.initial
	initial.Last = now
	s.keep(initial)
	s.set(seenAt, now)
	s.set(violatedAt, now)
	s.set(blockedUntilAt, now)
	s[counts] = 0
}

// arrive notes that the endpoint came, and reports whether it had to move its times.
func (g *Guard) arrive(s *entry, now int64) (moved bool) {
	if back := s.at(seenAt) - now; back > 0 {
		// No endpoint comes before it came last: the process clock stands elsewhere in a bubble of testing/synctest.
		for _, word := range [...]int{fullAt, violatedAt, blockedUntilAt} {
			s.set(word, s.at(word)-back)
		}
		moved = true
	}
	s.set(seenAt, now)
	return moved
}

// effect is what a decision has done to an endpoint besides taking a token.
type effect uint8

const (
	unchanged effect = iota
	forgiven         // its violations are forgotten
	violation
	lockout // a lockout has begun
)

// decide puts the decision about an endpoint that came at time now into d, which is zero.
func (g *Guard) decide(s *entry, now int64, d *weir.Decision) effect {
	d.Limit, d.Policy = int64(g.o.CapacityTokens), g.o.Name
	if rest := s.at(blockedUntilAt) - now; rest > 0 {
		d.Reason, d.RetryAfter, d.ResetAfter = weir.ReasonHardLockout, ceilMillisecond(rest), s.resetAfter(now)
		return unchanged
	}
	bucket := s.bucket(now)
	r := g.algorithm.TakeIn(&bucket, now, 1)
	d.ResetAfter = r.ResetAfter
	if r.Allowed {
		s.keep(bucket)
		d.Allowed, d.Remaining = true, r.Remaining
		if s.violations() > 0 {
			s.count(0, s.level())
			return forgiven
		}
		return unchanged
	}
	d.Reason, d.RetryAfter = weir.ReasonSoftThrottle, r.RetryAfter
	n, level := g.counted(s, now)
	s.set(violatedAt, now)
	if n++; n < uint32(g.o.MaxSoftViolations) {
		s.count(n, level)
		return violation
	}
	d.Reason = weir.ReasonHardLockout
	if length := g.lockout(level); length > 0 {
		s.set(blockedUntilAt, now+int64(length))
		d.RetryAfter, d.ResetAfter = ceilMillisecond(int64(length)), s.resetAfter(now)
	}
	if g.o.LockoutFactor > 1 && level < math.MaxUint32 {
		level++
	}
	s.count(0, level)
	return lockout
}

// counted is how many violations of the endpoint still count at time now, and how many lockouts.
func (g *Guard) counted(s *entry, now int64) (violations, level uint32) {
	if now < g.violationsEnd(s) {
		violations = s.violations()
	}
	if now < g.coolAt(s) {
		level = s.level()
	}
	return violations, level
}

// violationsEnd is when the violations of the endpoint no longer count.
func (g *Guard) violationsEnd(s *entry) int64 {
	return s.at(violatedAt) + min(int64(g.o.SoftViolationWindow)+1, int64(g.o.CooldownReset))
}

// coolAt is when the endpoint has cooled down. During a lockout there are no violations, so its time does not count.
func (g *Guard) coolAt(s *entry) int64 {
	return max(s.at(violatedAt), s.at(blockedUntilAt)) + int64(g.o.CooldownReset)
}

// lockout is the length of a lockout after as many others.
func (g *Guard) lockout(level uint32) time.Duration {
	length := g.o.HardLockout
	if g.o.LockoutFactor == 1 {
		return length
	}
	for ; level > 0 && length > 0 && length < g.o.MaxLockout; level-- {
		if length > g.o.MaxLockout/time.Duration(g.o.LockoutFactor) {
			return g.o.MaxLockout
		}
		length *= time.Duration(g.o.LockoutFactor)
	}
	return length
}

// resetAfter is how long it takes until a lockout has ended and the bucket is full.
func (s *entry) resetAfter(now int64) time.Duration {
	full := s.at(fullAt)
	if s[fullPart] > 0 {
		full++
	}
	return time.Duration(max(full, s.at(blockedUntilAt), now) - now)
}

// forgettableAt is when forgetting the endpoint gives it nothing any more, if it does not come again before.
func (g *Guard) forgettableAt(s *entry) int64 {
	at := s.at(fullAt)
	if s[fullPart] > 0 {
		at++
	}
	at += g.grace
	at = max(at, s.at(seenAt)+1, s.at(blockedUntilAt))
	if s.violations() > 0 {
		at = max(at, g.violationsEnd(s))
	}
	if s.level() > 0 {
		at = max(at, g.coolAt(s))
	}
	return at
}

// maxWait is when an endpoint that does not come again can be forgotten at the latest, whatever it did before.
func (g *Guard) maxWait() time.Duration {
	return max(g.fill+time.Duration(g.grace), g.o.SoftViolationWindow, g.o.CooldownReset, time.Millisecond)
}

// ceilMillisecond is d nanoseconds, rounded up to a millisecond.
func ceilMillisecond(d int64) time.Duration {
	const ms = int64(time.Millisecond)
	return time.Duration((d + ms - 1) / ms * ms)
}
