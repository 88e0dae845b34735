package quotashare_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlqsapi/quotashare"
)

// shapes are how demand can be spread over a fleet: the part of proxy i of n.
var shapes = []struct {
	name string
	part func(i, n int) float64
}{
	{"even", func(_, n int) float64 { return 1 / float64(n) }},
	{"one has all", func(i, _ int) float64 {
		if i == 7 {
			return 1
		}
		return 0
	}},
	{"half and half nothing", func(i, n int) float64 {
		if i%2 == 0 {
			return 2 / float64(n)
		}
		return 0
	}},
	{"the other half", func(i, n int) float64 {
		if i%2 == 1 {
			return 2 / float64(n)
		}
		return 0
	}},
	{"zipf", func(i, n int) float64 {
		sum := 0.
		for j := range n {
			sum += 1 / float64(j+1)
		}
		return 1 / float64(i+1) / sum
	}},
	{"zipf backward", func(i, n int) float64 {
		sum := 0.
		for j := range n {
			sum += 1 / float64(j+1)
		}
		return 1 / float64(n-i) / sum
	}},
	{"even again", func(_, n int) float64 { return 1 / float64(n) }},
}

// TestFleetNeverAboveTheLimit shifts demand in a fleet of 50 proxies of which some lose their streams and some crash. What is
// allowed is looked at after each request, over all intervals that end there. At least 95 % of the limit must be used from five
// report intervals after each shift on; less where reports are of 20 requests, and what was lost keeps its part for 3 intervals.
func TestFleetNeverAboveTheLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit    weir.Limit
		interval time.Duration
		grace    time.Duration
		delay    time.Duration
		demand   float64 // of the limit
		evenly   bool
		losses   bool
		least    float64 // part of the limit that is used from the sixth interval after a shift on
	}{
		{weir.TokenBucket(weir.Rate{Permits: 500, Period: time.Second}, 1000), 5 * time.Second, time.Second, 200 * time.Millisecond, 1.3, false, false, 0.95},
		{weir.TokenBucket(weir.Rate{Permits: 500, Period: time.Second}, 500), 5 * time.Second, time.Second, time.Second, 2, false, true, 0.95},
		{weir.TokenBucket(weir.Rate{Permits: 500, Period: time.Second}, 500), 5 * time.Second, time.Second, 200 * time.Millisecond, 1, true, false, 0.95},
		{weir.TokenBucket(weir.Rate{Permits: 500, Period: time.Second}, 1000), 2 * time.Second, 500 * time.Millisecond, 50 * time.Millisecond, 1.5, false, true, 0.85},
	} {
		t.Run(fmt.Sprintf("burst %d every %v demand %v", c.limit.Permits(), c.interval, c.demand), func(t *testing.T) {
			t.Parallel()
			s := newSimulation(t, 1, c.limit, quotashare.Options{Grace: c.grace})
			s.delay = func() time.Duration { return time.Duration(s.random.Int64N(int64(c.delay) + 1)) }
			const proxies, intervals = 50, 7
			rate := float64(c.limit.Rate().Permits) / c.limit.Rate().Period.Seconds()
			for i := range proxies {
				p := &proxy{sim: s, interval: c.interval, kind: quotashare.Deny}
				s.proxies = append(s.proxies, p)
				s.after(time.Duration(i)*c.interval/proxies, p.reports)
			}
			lowest := math.Inf(1)
			for n, shape := range shapes {
				for i, p := range s.proxies {
					p.demand(c.demand*rate*shape.part(i, proxies), c.evenly)
				}
				begin := time.Duration(n*intervals) * c.interval
				for k := range intervals {
					before := s.admitted
					if c.losses && k == 0 {
						s.proxies[s.random.IntN(proxies)].breakStream(s.delay())
						s.proxies[s.random.IntN(proxies)].crash(10 * time.Second)
					}
					s.run(begin + time.Duration(k+1)*c.interval)
					used := float64(s.admitted-before) / rate / c.interval.Seconds()
					if k >= 5 {
						lowest = min(lowest, used)
					}
					if k >= 5 && used < c.least {
						t.Errorf("%s: only %.3f of the limit is used in interval %d after the shift", shape.name, used, k+1)
					}
				}
			}
			t.Logf("lowest after 5 intervals %.3f, most of the burst %.3f, messages %d %v, admitted %d",
				lowest, s.worst, s.sent, s.kinds, s.admitted)
		})
	}
}
