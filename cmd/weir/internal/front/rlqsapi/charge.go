package rlqsapi

import (
	"math"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

// meter reckons how much of a limit others use: requests that are checked one by one.
type meter struct {
	at     int64
	left   int64   // permits at this time, less than 0 if some are owed
	since  int64   // when others was reckoned last
	used   float64 // by others since
	others float64 // permits a second
}

// reading is what is left of an account when proxies tell of requests, and how many of them were charged: 0 if nothing is left.
type reading struct {
	account string
	left    int64
	limit   int64
	told    int64
	charged int64
	perSec  float64
}

// mostCharged is how many requests are charged at once at most.
const mostCharged = 1 << 40

// charge charges what a proxy has allowed to the engine, so that what is checked one by one sees it. If nothing is left there,
// it is charged with the next report.
func (s *Service) charge(b *bucket, held holding, allowed uint64) (readings []reading) {
	if !held.charge || len(held.needs) == 0 {
		return nil
	}
	requests := int64(min(allowed, mostCharged))
	b.pending = min(b.pending+requests, mostCharged)
	engine := s.o.Limits.Engine()
	var v policy.Verdict
	r := b.request
	engine.Peek(&r, &v)
	for i := range v.Parts {
		p := &v.Parts[i]
		rate := perSecond(p.Applied())
		if p.Decision.Reason == weir.ReasonHardLockout || rate <= 0 {
			continue
		}
		readings = append(readings, reading{
			account: accountOf(p.Policy.Name, p.Policy.Limits[p.Limit].Name, string(p.Key)), left: p.Decision.Remaining,
			limit: p.Decision.Limit, told: requests, perSec: rate,
		})
	}
	if !v.Allowed || b.pending == 0 {
		return readings
	}
	if engine.Reserve(&r, &v); !v.Allowed {
		v.Cancel()
		return readings
	}
	actual := b.pending
	v.Commit(func(*policy.Part) int64 { return actual })
	b.pending = 0
	for i := range readings {
		readings[i].charged = actual
	}
	return readings
}

// perSecond is the rate of a token bucket. What others use of windows is not reckoned.
func perSecond(l weir.Limit) float64 {
	if l.Algorithm() != weir.AlgorithmTokenBucket || l.Rate().Period <= 0 {
		return 0
	}
	return float64(l.Rate().Permits) / l.Rate().Period.Seconds()
}

// measure reckons what others use, and has the ledger leave it to them. The lock is held.
func (s *Service) measure(readings []reading, now int64) {
	for i := range readings {
		x := &readings[i]
		m := s.meters[x.account]
		if m == nil {
			if len(s.meters) >= 100_000 {
				clear(s.meters)
			}
			s.meters[x.account] = &meter{at: now, since: now, left: x.after(x.left)}
			continue
		}
		m.read(x, now)
		passed := time.Duration(now - m.since).Seconds()
		if passed < 1 {
			continue
		}
		m.others += (max(0, m.used)/passed - m.others) / 2
		if m.others < x.perSec/50 {
			m.others = 0
		}
		m.since, m.used = now, 0
		s.ledger.Use(x.account, math.Min(m.others, x.perSec), now)
	}
}

// read adds what others have used since the reading before, which is what there would be without them less what there is.
func (m *meter) read(x *reading, now int64) {
	left := x.left
	came := time.Duration(now-m.at).Seconds() * x.perSec
	switch {
	case left == 0: // or some are owed, not more than were
		left = min(0, m.left+int64(came))
	case left >= x.limit || max(m.left, x.after(left)) > x.limit/2: // it may have been full in between, and some were lost
		came = min(came, float64(x.limit-m.left))
	}
	m.used += float64(m.left) + came - float64(left)
	if x.charged == 0 {
		m.used -= float64(x.told)
	}
	m.at, m.left = now, x.after(left)
}

// after is what is left after the charge of so many, as debts are as large as the limit at most.
func (x *reading) after(left int64) int64 { return max(left-x.charged, min(left, -x.limit)) }
