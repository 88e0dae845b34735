package rlqsapi

import (
	"math"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

// meter reckons how much of a limit others use: requests that are checked one by one.
type meter struct {
	at       int64
	left     int64   // permits at this time
	reported float64 // requests that proxies told of since
	others   float64 // permits a second
}

// reading is what is left of an account, after proxies told of so many requests.
type reading struct {
	account  string
	left     int64
	limit    int64
	requests float64
	perSec   float64
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
	if engine.Peek(&r, &v); v.Allowed && b.pending > 0 {
		if engine.Reserve(&r, &v); v.Allowed {
			actual := b.pending
			v.Commit(func(*policy.Part) int64 { return actual })
			b.pending = 0
		} else {
			v.Cancel()
		}
		r = b.request
		engine.Peek(&r, &v)
	}
	for i := range v.Parts {
		p := &v.Parts[i]
		rate := perSecond(p.Applied())
		if p.Decision.Reason == weir.ReasonHardLockout || rate <= 0 {
			continue
		}
		readings = append(readings, reading{
			account: accountOf(p.Policy.Name, p.Policy.Limits[p.Limit].Name, string(p.Key)), left: p.Decision.Remaining,
			limit: p.Decision.Limit, requests: float64(requests), perSec: rate,
		})
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
			s.meters[x.account] = &meter{at: now, left: x.left}
			continue
		}
		m.reported += x.requests
		passed := time.Duration(now - m.at).Seconds()
		if passed < 1 {
			continue
		}
		came := passed * x.perSec
		if max(m.left, x.left) > x.limit/2 { // otherwise it is not likely that it was full in between, and some were lost
			came = min(came, float64(x.limit-m.left))
		}
		used := float64(m.left) + came - float64(x.left)
		others := max(0, used-m.reported) / passed
		m.others += (others - m.others) / 2
		if m.others < x.perSec/50 {
			m.others = 0
		}
		m.at, m.left, m.reported = now, x.left, 0
		s.ledger.Use(x.account, math.Min(m.others, x.perSec), now)
	}
}
