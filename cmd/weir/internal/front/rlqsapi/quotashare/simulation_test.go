package quotashare_test

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlqsapi/quotashare"
)

// simulation is a ledger and its proxies in a time of their own. Nothing in it runs beside anything else.
type simulation struct {
	t       testing.TB
	random  *rand.Rand
	now     int64
	events  events
	made    int
	ledger  *quotashare.Ledger
	waking  int64
	proxies []*proxy
	grace   time.Duration
	delay   func() time.Duration // of a message, at most grace

	limit    weir.Limit
	second   weir.Limit // of those proxies that are held to two
	leaks    [2]leak
	worst    float64
	admitted int64
	sent     int
	kinds    [4]int
}

// leak is a bucket that leaks at the rate of a limit: its level is never above the burst if the limit is kept.
type leak struct {
	level float64
	at    int64
}

type event struct {
	at    int64
	order int
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) } //nolint:forcetypeassert // there is nothing else
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	(*e)[len(*e)-1] = event{}
	*e = (*e)[:len(*e)-1]
	return last
}

// stream is one connection of a proxy.
type stream struct {
	proxy   *proxy
	share   *quotashare.Share
	broken  bool
	arrived [2]int64 // when the last message arrives, by direction, as they keep their order
}

// proxy holds requests to what it was assigned, in the way of Envoy's filter.
type proxy struct {
	sim    *simulation
	stream *stream

	kind            quotashare.Kind
	max, fill       uint32
	seconds         int64
	tokens          float64
	filled, expires int64

	allowed, denied uint64
	reported        int64
	rate            float64 // of requests
	interval        time.Duration
	requests        int // generation of the requests that are under way
	both            bool
}

func newSimulation(t testing.TB, seed uint64, l weir.Limit, o quotashare.Options) *simulation {
	s := &simulation{t: t, random: rand.New(rand.NewPCG(seed, 7)), limit: l, grace: o.Grace, waking: math.MaxInt64}
	s.delay = func() time.Duration { return time.Duration(s.random.Int64N(int64(s.grace) + 1)) }
	o.Send = s.send
	s.ledger = quotashare.New(o)
	return s
}

func (s *simulation) at(at int64, do func()) {
	s.made++
	heap.Push(&s.events, event{at, s.made, do})
}

func (s *simulation) after(d time.Duration, do func()) { s.at(s.now+int64(d), do) }

// run lets time pass until the given time.
func (s *simulation) run(until time.Duration) {
	for len(s.events) > 0 && s.events[0].at <= int64(until) {
		e := heap.Pop(&s.events).(event) //nolint:forcetypeassert // there is nothing else
		s.now = e.at
		e.do()
	}
	s.now = int64(until)
}

// wake has the ledger called when it wants to be.
func (s *simulation) wake() {
	next := s.ledger.Next(s.now)
	if next >= s.waking && s.waking > s.now || next == math.MaxInt64 {
		return
	}
	s.waking = next
	s.at(next, func() {
		if s.waking != next {
			return
		}
		s.waking = math.MaxInt64
		s.ledger.Tick(s.now)
		s.wake()
	})
}

// send has a message on its way.
func (s *simulation) send(share *quotashare.Share, a quotashare.Assignment) {
	s.sent++
	s.kinds[a.Kind]++
	st := share.Owner.(*stream) //nolint:forcetypeassert // there is nothing else
	if st.broken {
		return
	}
	st.arrived[0] = max(st.arrived[0], s.now+int64(s.delay()))
	s.at(st.arrived[0], func() {
		if !st.broken && st.proxy.stream == st {
			st.proxy.assign(a)
		}
	})
}

// admit counts allowed requests.
func (s *simulation) admit(n float64, both bool) {
	s.admitted += int64(n)
	s.worst = max(s.worst, s.keeps(0, s.limit, n))
	if both {
		s.keeps(1, s.second, n)
	}
}

// keeps checks that a limit is kept, and returns how much of the burst is in use.
func (s *simulation) keeps(which int, limit weir.Limit, n float64) float64 {
	l := &s.leaks[which]
	l.level = max(0, l.level-float64(s.now-l.at)/float64(limit.Rate().Period)*float64(limit.Rate().Permits)) + n
	l.at = s.now
	if l.level > float64(limit.Permits())*(1+1e-9)+1e-6 {
		s.t.Fatalf("limit %d: at %v %.9f tokens too many have been admitted",
			which, time.Duration(s.now), l.level-float64(limit.Permits()))
	}
	return l.level / float64(limit.Permits())
}

// assign is what a proxy does with a message.
func (p *proxy) assign(a quotashare.Assignment) {
	p.lapse()
	if a.Kind == quotashare.Abandon {
		p.kind, p.stream.share, p.expires = quotashare.Deny, nil, 0
		return
	}
	same := p.kind == a.Kind && p.max == a.MaxTokens && p.fill == a.TokensPerFill && p.seconds == a.FillSeconds
	if a.Kind == quotashare.Tokens && !same {
		p.tokens, p.filled = float64(a.MaxTokens), p.sim.now
	}
	p.kind, p.max, p.fill, p.seconds = a.Kind, a.MaxTokens, a.TokensPerFill, a.FillSeconds
	p.expires = p.sim.now + int64(a.TTL)
}

// lapse ends an assignment that has expired.
func (p *proxy) lapse() {
	if p.sim.now >= p.expires {
		p.kind = quotashare.Deny
	}
}

// refill is how many tokens there are now.
func (p *proxy) refill() float64 {
	p.lapse()
	if p.kind != quotashare.Tokens {
		return 0
	}
	passed := float64(p.sim.now-p.filled) / float64(time.Second)
	p.tokens = min(float64(p.max), p.tokens+passed*float64(p.fill)/float64(p.seconds))
	p.filled = p.sim.now
	return p.tokens
}

// request is one request.
func (p *proxy) request() {
	if p.stream == nil || p.stream.share == nil {
		p.connect()
	}
	if p.refill() >= 1 {
		p.tokens--
		p.allowed++
		p.sim.admit(1, p.both)
		return
	}
	p.denied++
}

// connect opens a stream, and reports on the bucket for the first time.
func (p *proxy) connect() {
	sim := p.sim
	st := p.stream
	if st == nil {
		st = &stream{proxy: p}
		p.stream = st
	}
	p.reported = sim.now
	st.share = nil
	st.arrived[1] = max(st.arrived[1], sim.now+int64(sim.delay()))
	first := new(quotashare.Share) // stands for the one that will be
	st.share = first
	sim.at(st.arrived[1], func() {
		if st.broken || st.share != first {
			return
		}
		needs := []quotashare.Need{{Key: "k", Limit: sim.limit}}
		if p.both {
			needs = append(needs, quotashare.Need{Key: "second", Limit: sim.second})
		}
		share, err := sim.ledger.Subscribe(st, needs, false, sim.now)
		if err != nil {
			sim.t.Fatal(err)
		}
		st.share = share
		sim.wake()
	})
}

// report sends a report.
func (p *proxy) report() {
	st := p.stream
	if st == nil || st.share == nil {
		return
	}
	sim := p.sim
	elapsed := time.Duration(sim.now - p.reported).Truncate(time.Second) // as Envoy tells it
	p.reported = sim.now
	allowed, denied := p.allowed, p.denied
	p.allowed, p.denied = 0, 0
	st.arrived[1] = max(st.arrived[1], sim.now+int64(sim.delay()))
	sim.at(st.arrived[1], func() {
		if !st.broken && st.share != nil && st.share.Owner != nil {
			sim.ledger.Report(st.share, allowed, denied, elapsed, sim.now)
			sim.wake()
		}
	})
}

// breakStream loses the stream of a proxy with all that is under way. The ledger learns of it a while later.
func (p *proxy) breakStream(noticed time.Duration) {
	st := p.stream
	if st == nil {
		return
	}
	st.broken, p.stream = true, nil
	p.sim.after(noticed, func() {
		if st.share != nil && st.share.Owner != nil {
			p.sim.ledger.End(st.share, p.sim.now)
			p.sim.wake()
		}
	})
}

// crash is breakStream of a proxy that begins anew.
func (p *proxy) crash(noticed time.Duration) {
	p.breakStream(noticed)
	p.kind, p.expires, p.allowed, p.denied = quotashare.Deny, 0, 0, 0
}

// demand has requests come at a rate from now on, at random times or evenly.
func (p *proxy) demand(rate float64, evenly bool) {
	p.rate = rate
	p.requests++
	if rate > 0 {
		p.next(p.requests, evenly)
	}
}

func (p *proxy) next(generation int, evenly bool) {
	wait := 1.
	if !evenly {
		wait = p.sim.random.ExpFloat64()
	}
	p.sim.after(time.Duration(wait/p.rate*1e9), func() {
		if p.requests != generation {
			return
		}
		p.request()
		p.next(generation, evenly)
	})
}

// reports has the proxy report again and again.
func (p *proxy) reports() {
	p.sim.after(p.interval, func() {
		if p.stream == nil && p.rate > 0 {
			p.connect()
		}
		p.report()
		p.reports()
	})
}
