package quotashare_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlqsapi/quotashare"
)

// history has proxies do the worst they can: they save up tokens and spend them at once, messages arrive at the last moment or at
// once, streams break, proxies crash, come again, and report what they like. pick answers a number below n.
func history(t testing.TB, pick func(n int) int, steps int) *simulation {
	limits := []weir.Limit{
		weir.TokenBucket(weir.Rate{Permits: 100, Period: time.Second}, 100),
		weir.TokenBucket(weir.Rate{Permits: 10, Period: time.Second}, 1),
		weir.TokenBucket(weir.Rate{Permits: 10, Period: time.Second}, 2),
		weir.TokenBucket(weir.Rate{Permits: 7, Period: time.Second}, 7),
		weir.TokenBucket(weir.Rate{Permits: 1, Period: 3 * time.Second}, 5),
		weir.TokenBucket(weir.Rate{Permits: 1000, Period: time.Minute}, 30),
		weir.TokenBucket(weir.Rate{Permits: 100_000, Period: time.Second}, 20_000),
		weir.TokenBucket(weir.Rate{Permits: 3, Period: 7 * time.Millisecond}, 50),
		weir.TokenBucket(weir.Rate{Permits: 100, Period: 24 * time.Hour}, 100),
	}
	grace := []time.Duration{time.Millisecond, 300 * time.Millisecond, time.Second, 5 * time.Second}[pick(4)]
	o := quotashare.Options{
		Grace: grace, FirstTTL: time.Duration(1+pick(20)) * time.Second, LongestTTL: time.Duration(20+pick(40)) * time.Second,
		Idle: time.Duration(5+pick(60)) * time.Second,
	}
	s := newSimulation(t, 1, limits[pick(len(limits))], o)
	s.delay = func() time.Duration {
		switch pick(3) {
		case 0:
			return 0
		case 1:
			return grace
		}
		return time.Duration(pick(1000)+1) * grace / 1000
	}
	s.second = limits[pick(len(limits))]
	two := pick(3)
	for i := range 1 + pick(6) {
		s.proxies = append(s.proxies, &proxy{sim: s, kind: quotashare.Deny, both: i < 2*two})
	}
	for range steps {
		p := s.proxies[pick(len(s.proxies))]
		switch pick(16) {
		case 0, 1:
			p.spend()
		case 2, 3, 4, 5:
			p.allowed, p.denied = uint64(pick(3)*pick(500)), uint64(pick(3)*pick(500))
			if pick(50) == 0 {
				p.denied = math.MaxUint64
			}
			p.meet()
			p.report()
		case 6:
			for _, q := range s.proxies {
				q.spend()
			}
		case 7:
			for _, q := range s.proxies {
				q.denied = uint64(pick(1000))
				q.meet()
				q.report()
			}
		case 8:
			if pick(6) == 0 {
				p.breakStream(time.Duration(pick(40_000)) * time.Millisecond)
			}
		case 9:
			if pick(10) == 0 {
				p.crash(time.Duration(pick(40_000)) * time.Millisecond)
			}
		case 10:
			s.ledger.Tick(s.now)
			s.wake()
		default:
			wait := []time.Duration{
				0, time.Millisecond, 100 * time.Millisecond, time.Second, grace, 2 * grace, 5 * time.Second, 12 * time.Second,
			}[pick(8)]
			s.run(time.Duration(s.now) + wait + time.Duration(pick(3)-1)*min(wait, time.Microsecond))
		}
	}
	return s
}

// greed has proxies spend every token as soon as they have it, or save it up, while they report a demand that shifts from one to
// another, and now and then lose their streams: then whatever is given out twice is too much at once.
func greed(t testing.TB, pick func(n int) int, steps int) *simulation {
	limit := []weir.Limit{
		weir.TokenBucket(weir.Rate{Permits: 1000, Period: time.Second}, 300),
		weir.TokenBucket(weir.Rate{Permits: 1000, Period: time.Second}, 1000),
		weir.TokenBucket(weir.Rate{Permits: 100, Period: time.Second}, 20),
		weir.TokenBucket(weir.Rate{Permits: 10, Period: time.Second}, 4),
	}[pick(4)]
	s := newSimulation(t, 1, limit, quotashare.Options{
		Grace: time.Duration(1+pick(6)) * 100 * time.Millisecond, FirstTTL: 10 * time.Second,
	})
	s.second = weir.TokenBucket(weir.Rate{Permits: 50, Period: time.Second}, 30)
	late, two := pick(3), pick(3)
	s.delay = func() time.Duration {
		return []time.Duration{0, s.grace, time.Duration(pick(1000)) * s.grace / 1000}[late]
	}
	interval := s.grace * time.Duration(1+pick(4))
	for i := range 2 + pick(5) {
		p := &proxy{both: i < two, sim: s, kind: quotashare.Deny, rate: 1, interval: interval + time.Duration(pick(100))*time.Millisecond}
		s.proxies = append(s.proxies, p)
		s.after(time.Duration(pick(1000))*interval/1000, p.reports)
	}
	busy, saving := 0, 0
	for range steps {
		switch pick(150) {
		case 0, 1:
			busy = pick(1 << len(s.proxies))
		case 2, 3:
			saving = pick(1 << len(s.proxies))
		case 4:
			s.proxies[pick(len(s.proxies))].breakStream(time.Duration(pick(3000)) * time.Millisecond)
		case 5: // goes on with what it has, and reports no more
			p := s.proxies[pick(len(s.proxies))]
			p.breakStream(0)
			p.rate = 0
		case 6:
			for _, p := range s.proxies {
				p.rate = 1
			}
		}
		for i, p := range s.proxies {
			if busy>>i&1 == 1 {
				p.denied += uint64(float64(limit.Rate().Permits) * interval.Seconds() / 16)
			}
		}
		for end := s.now + int64(interval/16); s.now < end; {
			for i, p := range s.proxies {
				if saving>>i&1 == 0 {
					p.spend()
				}
			}
			s.run(time.Duration(min(s.now+int64(10*time.Millisecond), end)))
		}
	}
	return s
}

// meet has a proxy connect, if it is not connected.
func (p *proxy) meet() {
	if p.stream == nil || p.stream.share == nil {
		p.connect()
	}
}

// spend spends all tokens there are.
func (p *proxy) spend() {
	if n := math.Floor(p.refill()); n > 0 {
		p.tokens -= n
		p.allowed += uint64(n)
		p.sim.admit(n, p.both)
	}
}

// TestHistoriesNeverAboveTheLimit runs histories at random.
func TestHistoriesNeverAboveTheLimit(t *testing.T) {
	t.Parallel()
	admitted, worst, sent := int64(0), 0., 0
	for seed := range uint64(160) {
		r := rand.New(rand.NewPCG(seed, 1))
		run := history
		if seed%2 == 0 {
			run = greed
		}
		s := run(t, r.IntN, 600)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		admitted, sent = admitted+s.admitted, sent+s.sent
		worst = max(worst, s.worst)
	}
	t.Logf("%d messages, %d requests admitted, at most %.3f of the burst at a time", sent, admitted, worst)
	if worst < 0.9 {
		t.Errorf("no history came near to the limit: at most %.3f of the burst was used, so that nothing is shown", worst)
	}
}

// FuzzLedger has the fuzzer choose what happens.
func FuzzLedger(f *testing.F) {
	for seed := range uint64(4) { // of even lengths and odd ones
		r := rand.New(rand.NewPCG(seed, 2))
		var b []byte
		for range 200 {
			b = binary.LittleEndian.AppendUint16(b, uint16(r.Uint32()))
		}
		f.Add(b[seed%2:])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		steps, run := min(len(data)/4, 300), history
		if len(data)%2 == 0 {
			run = greed
		}
		run(t, func(n int) int {
			if len(data) < 2 {
				return 0
			}
			v := binary.LittleEndian.Uint16(data)
			data = data[2:]
			return int(v) % n
		}, steps)
	})
}
