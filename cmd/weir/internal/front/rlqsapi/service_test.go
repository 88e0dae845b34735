package rlqsapi_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitquotav3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/typev3"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlqsapi"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/policy"
)

var id = map[string]string{"name": "checkout", "env": "staging"}

// TestDemandMovesQuotas: what one proxy does not need goes to another, and never is more assigned than there is.
func TestDemandMovesQuotas(t *testing.T) {
	s := serve(t, one(limited(weir.TokenBucket(weir.PerSecond(1000), 1000))))
	a, b := s.connect(), s.connect()
	a.report(id, 0, 1, 0) // the first report of Envoy tells no time
	first := a.next()
	if got := first.GetBucketId().GetBucket(); len(got) != 2 || got["name"] != "checkout" {
		t.Fatalf("the bucket is %v", got)
	}
	hasA := rate(t, first)
	if hasA < 500 {
		t.Fatalf("the only proxy gets %v of 1000/s", hasA)
	}
	b.report(id, 0, 1, 0)
	hasB := rate(t, b.next())
	for round := range 8 {
		s.clock.Advance(5 * time.Second)
		a.report(id, 5*time.Second, 10, 0)
		hasA = rate(t, a.next())
		s.clock.Advance(100 * time.Millisecond)
		b.report(id, 5*time.Second, uint64(hasB*5), 5000)
		hasB = rate(t, b.next())
		t.Logf("round %d: %.0f and %.0f", round, hasA, hasB)
		if hasA+hasB > 1000 {
			t.Fatalf("%v and %v are assigned of 1000/s", hasA, hasB)
		}
	}
	if hasB < 900 {
		t.Errorf("the proxy that is asked for all has %v of 1000/s", hasB)
	}
}

// TestStepsOfTheClock sets the clock of the service while two proxies report: never is more assigned than there is, and what one does
// not need soon goes to the other again.
func TestStepsOfTheClock(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		s := serve(t, one(limited(weir.TokenBucket(weir.PerSecond(1000), 1000))))
		s.clock.Advance(24 * time.Hour)
		a, b := s.connect(), s.connect()
		assigned := func(p *client) float64 {
			for {
				if m := p.next(); m.GetAbandonAction() == nil { // a proxy that has not reported for an hour is forgotten first
					return rate(t, m)
				}
			}
		}
		a.report(id, 0, 1, 0)
		assigned(a)
		b.report(id, 0, 1, 0)
		hasB := assigned(b)
		for round := range 8 {
			if round == 2 {
				s.clock.Advance(by)
			}
			s.clock.Advance(5 * time.Second)
			a.report(id, 5*time.Second, 10, 0)
			hasA := assigned(a)
			s.clock.Advance(100 * time.Millisecond)
			b.report(id, 5*time.Second, uint64(hasB*5), 5000)
			hasB = assigned(b)
			if hasA+hasB > 1000 {
				t.Fatalf("%v, round %d: %v and %v are assigned of 1000/s", by, round, hasA, hasB)
			}
		}
		if hasB < 900 {
			t.Errorf("%v: the proxy that is asked for all has %v of 1000/s", by, hasB)
		}
	}
}

// TestWhatIsAssigned tells what becomes of limits of all kinds.
func TestWhatIsAssigned(t *testing.T) {
	none := &policy.Set{}
	exempt := one(limited(weir.TokenBucket(weir.PerSecond(1), 0)))
	exempt.Rules = append(exempt.Rules, policy.Rule{Name: "free", Exempt: true})
	concurrency := limited(weir.AtOnce(3))
	open := concurrency
	open.Fail = policy.FailOpen
	for _, c := range []struct {
		name string
		set  *policy.Set
		want typev3.RateLimitStrategy_BlanketRule
		rate float64 // instead, at most
		log  string
	}{
		{name: "no limit", set: none, want: typev3.RateLimitStrategy_ALLOW_ALL},
		{name: "exempt", set: exempt, want: typev3.RateLimitStrategy_ALLOW_ALL},
		{name: "concurrency", set: one(concurrency), want: typev3.RateLimitStrategy_DENY_ALL, log: "cannot be assigned"},
		{name: "concurrency, fail open", set: one(open), want: typev3.RateLimitStrategy_ALLOW_ALL, log: "cannot be assigned"},
		{name: "a slow one", set: one(limited(weir.TokenBucket(weir.PerHour(30), 5))), rate: 30. / 3600},
		{name: "fixed", set: one(limited(weir.FixedWindow(weir.PerMinute(600)))), rate: 541. / 60},
		{name: "day", set: one(limited(weir.CalendarWindow(1_000_000, algo.Calendar{Unit: algo.CalendarDay}))), rate: 900_001. / 90_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, c.set)
			a := s.connect()
			a.report(id, 0, 1, 0)
			x := a.next()
			if c.rate > 0 {
				if got := rate(t, x); got > c.rate || got < c.rate*0.9 {
					t.Errorf("%v a second, want %v", got, c.rate)
				}
			} else if got, ok := x.GetQuotaAssignmentAction().GetRateLimitStrategy().GetStrategy().(*typev3.RateLimitStrategy_BlanketRule_); !ok || got.BlanketRule != c.want {
				t.Errorf("%v, want %v", x, c.want)
			}
			if c.log != "" && !strings.Contains(s.log.String(), c.log) {
				t.Errorf("the log says nothing of it: %s", s.log)
			}
		})
	}
}

// TestStrictestOfSeveral: a bucket that several limits apply to is held to each.
func TestStrictestOfSeveral(t *testing.T) {
	set := one(limited(weir.TokenBucket(weir.PerSecond(1000), 0)))
	set.Policies = append(set.Policies, policy.Policy{
		Name: "strict", Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerMinute(60), 10)}},
	})
	set.Rules[0].Limits = append(set.Rules[0].Limits, policy.Use{Policy: "strict"})
	s := serve(t, set)
	a := s.connect()
	a.report(id, 0, 1, 0)
	if got := rate(t, a.next()); got > 1 || got < 0.9 {
		t.Errorf("%v a second, want nearly 1", got)
	}
}

// TestReload: another limit is in force within a second, without a report; a bucket that no limit applies to any more is abandoned.
func TestReload(t *testing.T) {
	s := serve(t, one(limited(weir.TokenBucket(weir.PerSecond(1000), 0))))
	a := s.connect()
	a.report(id, 0, 1, 0)
	a.next()
	s.clock.Advance(5 * time.Second)
	a.report(id, 5*time.Second, 100, 0)
	a.next()
	if _, err := s.limits.Engine().Load(one(limited(weir.TokenBucket(weir.PerSecond(100), 0)))); err != nil {
		t.Fatal(err)
	}
	s.clock.Advance(time.Second)
	if got := rate(t, a.next()); got > 100 {
		t.Errorf("%v a second after the limit was lowered to 100", got)
	}
	if _, err := s.limits.Engine().Load(&policy.Set{}); err != nil {
		t.Fatal(err)
	}
	s.clock.Advance(time.Second)
	if x := a.next(); x.GetAbandonAction() == nil {
		t.Errorf("%v, want to be abandoned", x)
	}
	a.report(id, 0, 1, 0)
	if x := a.next(); x.GetQuotaAssignmentAction().GetRateLimitStrategy().GetBlanketRule() != typev3.RateLimitStrategy_ALLOW_ALL ||
		x.GetAbandonAction() != nil {
		t.Errorf("%v, want to allow all", x)
	}
}

// TestNoDomainEndsTheStream: that is a mistake of the proxy's configuration, whatever its clients do. Others go on.
func TestNoDomainEndsTheStream(t *testing.T) {
	s := serve(t, one(limited(weir.TokenBucket(weir.PerSecond(1000), 0))))
	good := s.connect()
	good.report(id, 0, 1, 0)
	good.next()
	noDomain := usage(id, 0, 1, 0)
	noDomain.Domain = ""
	longDomain := usage(id, 0, 1, 0)
	longDomain.Domain = strings.Repeat("d", 1000)
	for name, m := range map[string]*ratelimitquotav3.RateLimitQuotaUsageReports{"no domain": noDomain, "long domain": longDomain} {
		bad := s.connect()
		if err := bad.stream.Send(m); err != nil {
			t.Fatal(err)
		}
		if _, err := bad.stream.Recv(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "weir: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.clock.Advance(5 * time.Second)
	good.report(id, 1<<40*time.Nanosecond, 1<<63, 1<<63) // a lie, but a lawful one
	if got := rate(t, good.next()); got > 1000 {
		t.Errorf("%v of 1000/s", got)
	}
	if got := s.service.Status()["protocol_errors"]; got != uint64(2) {
		t.Errorf("%v protocol errors are counted, want 2", got)
	}
}

// TestUnknownFieldsAreForgotten: a bucket keeps its entries, whatever else a proxy sends with its id.
func TestUnknownFieldsAreForgotten(t *testing.T) {
	s := serve(t, one(limited(weir.TokenBucket(weir.PerSecond(10), 0))))
	c := s.connect()
	m := usage(map[string]string{"env": "prod", "name": "checkout"}, 0, 0, 0)
	id := m.GetBucketQuotaUsages()[0].GetBucketId()
	id.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), "more"))
	if err := c.stream.Send(m); err != nil {
		t.Fatal(err)
	}
	got := c.next().GetBucketId()
	if kept := got.ProtoReflect().GetUnknown(); got.GetBucket()["env"] != "prod" || len(kept) > 0 {
		t.Errorf("the bucket is %v, with %q", got.GetBucket(), kept)
	}
}

// TestEndedStreamCounts: what a proxy has counts until it has expired, when its stream has ended.
func TestEndedStreamCounts(t *testing.T) {
	s := serve(t, one(limited(weir.TokenBucket(weir.PerSecond(1000), 0))))
	a := s.connect()
	a.report(id, 0, 1, 0)
	hasA := rate(t, a.next())
	if err := a.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.stream.Recv(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	b := s.connect()
	b.report(id, 0, 1, 0)
	hasB := rate(t, b.next())
	if hasA+hasB > 1000 {
		t.Fatalf("%v and %v are assigned of 1000/s", hasA, hasB)
	}
	for range 12 {
		s.clock.Advance(5 * time.Second)
		b.report(id, 5*time.Second, uint64(hasB*5), 10_000)
		hasB = rate(t, b.next())
	}
	if hasB < 900 {
		t.Errorf("%v of 1000/s when what the other one had has expired", hasB)
	}
}

// named is a request for so many permits of the policy p.
func named(cost int64) *policy.Request {
	return &policy.Request{Named: &policy.Named{Policy: []byte("p"), Cost: cost}}
}

// TestOthersSeeWhatProxiesUse: what proxies allow is charged to the limit, so that checks of other fronts see it.
func TestOthersSeeWhatProxiesUse(t *testing.T) {
	s := serve(t, one(limited(weir.TokenBucket(weir.PerSecond(100), 1000))))
	a := s.connect()
	a.report(id, 0, 0, 0)
	a.next()
	s.clock.Advance(time.Second)
	a.report(id, time.Second, 400, 0)
	a.next()
	var v policy.Verdict
	if s.limits.Engine().Peek(named(1), &v); v.Decision().Remaining != 600 {
		t.Errorf("%d are left of 1000 after 400 were reported", v.Decision().Remaining)
	}
}

// TestOthersAreLeftTheirPart: what checks of other fronts take of a limit is not assigned. Proxies and they together are never above
// twice the limit, and at the limit once it is known what they take.
func TestOthersAreLeftTheirPart(t *testing.T) {
	s := serve(t, one(limited(weir.TokenBucket(weir.PerSecond(1000), 1000))))
	a := s.connect()
	a.report(id, 0, 0, 0)
	has := rate(t, a.next())
	var v policy.Verdict
	for range 14 {
		for range 50 { // 600 a second, taken evenly
			s.clock.Advance(100 * time.Millisecond)
			if s.limits.Engine().Take(named(60), &v); v.Allowed {
				v.Release()
			}
		}
		a.report(id, 5*time.Second, uint64(min(has, 380)*5), 5000)
		has = rate(t, a.next())
	}
	if has > 450 || has < 300 {
		t.Errorf("%v are assigned of the 400/s that others leave", has)
	}
}

// TestClose ends streams, and refuses new ones.
func TestClose(t *testing.T) {
	s := serve(t, one(limited(weir.TokenBucket(weir.PerSecond(1000), 0))))
	a := s.connect()
	a.report(id, 0, 1, 0)
	a.next()
	s.service.Close()
	if _, err := a.stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
	if _, err := s.connect().stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
}

// slowProxy is the stream of a proxy that reports a bucket once, and reads each message after a while.
type slowProxy struct {
	grpc.ServerStream

	ctx     context.Context //nolint:containedctx // that of the connection
	reports chan *ratelimitquotav3.RateLimitQuotaUsageReports
	after   time.Duration
	read    int
}

func (p *slowProxy) Context() context.Context { return p.ctx }

func (*slowProxy) Recv() (*ratelimitquotav3.RateLimitQuotaUsageReports, error) {
	return nil, errors.ErrUnsupported
}

func (p *slowProxy) RecvMsg(into any) error {
	select {
	case m := <-p.reports:
		to, _ := into.(interface{ UnmarshalWire(wire []byte) error })
		wire, err := proto.Marshal(m)
		return errors.Join(err, to.UnmarshalWire(wire))
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

// Send waits for the proxy, as flow control does.
func (p *slowProxy) Send(*ratelimitquotav3.RateLimitQuotaResponse) error {
	time.Sleep(p.after)
	p.read++
	return nil
}

// TestSlowReader: the stream of a proxy ends if it reads what it is sent later than half of the grace, as it is not known when
// it would read the rest.
func TestSlowReader(t *testing.T) {
	const grace = time.Second
	for after, slow := range map[time.Duration]bool{0: false, grace / 2: false, grace/2 + 1: true, time.Hour: true} {
		synctest.Test(t, func(t *testing.T) {
			limits, err := live.Fixed(
				one(limited(weir.TokenBucket(weir.PerSecond(1000), 0))), policy.EngineOptions{}, slog.New(slog.DiscardHandler),
			)
			if err != nil {
				t.Fatal(err)
			}
			service := rlqsapi.New(rlqsapi.Options{Limits: limits, Logger: slog.New(slog.DiscardHandler), Grace: grace})
			ctx, leave := context.WithCancel(t.Context())
			p := &slowProxy{ctx: ctx, reports: make(chan *ratelimitquotav3.RateLimitQuotaUsageReports, 1), after: after}
			p.reports <- usage(id, 0, 1, 0)
			ended := make(chan error, 1)
			go func() { ended <- service.StreamRateLimitQuotas(p) }()
			time.Sleep(after)
			synctest.Wait()
			if p.read != 1 {
				t.Errorf("%v: %d messages were read", after, p.read)
			}
			select {
			case err := <-ended:
				if !slow || status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "in time") {
					t.Errorf("after %v: %v", after, err)
				}
			default:
				if slow {
					t.Errorf("after %v: it goes on", after)
				}
			}
			leave()
			service.Close()
			if err := limits.Engine().Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestManyBucketsAtOnce: a proxy that connects anew reports all of its buckets at once. Its stream goes on, though what they are
// assigned takes longer to send than a message may wait.
func TestManyBucketsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const buckets = 5000
		limits, err := live.Fixed(
			one(limited(weir.TokenBucket(weir.PerSecond(1000), 0))), policy.EngineOptions{}, slog.New(slog.DiscardHandler),
		)
		if err != nil {
			t.Fatal(err)
		}
		service := rlqsapi.New(rlqsapi.Options{Limits: limits, Logger: slog.New(slog.DiscardHandler), Grace: time.Second})
		ctx, leave := context.WithCancel(t.Context())
		p := &slowProxy{
			ctx: ctx, reports: make(chan *ratelimitquotav3.RateLimitQuotaUsageReports, 1), after: 100 * time.Millisecond,
		}
		m := &ratelimitquotav3.RateLimitQuotaUsageReports{}
		for i := range buckets {
			u := usage(map[string]string{"env": "prod", "name": strconv.Itoa(i)}, 0, 1, 0)
			m.Domain, m.BucketQuotaUsages = u.GetDomain(), append(m.BucketQuotaUsages, u.GetBucketQuotaUsages()...)
		}
		p.reports <- m
		ended := make(chan error, 1)
		go func() { ended <- service.StreamRateLimitQuotas(p) }()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		select {
		case err := <-ended:
			t.Errorf("it ends: %v", err)
		default:
		}
		if got := service.Status()["buckets"]; got != buckets {
			t.Errorf("%v of %d buckets", got, buckets)
		}
		leave()
		service.Close()
		if err := limits.Engine().Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestNeverReads: the stream of a proxy that reads nothing at all ends as well, and does not wait until it does.
func TestNeverReads(t *testing.T) {
	const window = 1 << 16
	s := servePatiently(t, one(limited(weir.TokenBucket(weir.PerSecond(1000), 0))), rlqsapi.Options{
		MostBuckets: 100_000, MostShares: 100_000,
	}, 100*time.Millisecond)
	a := s.connect(grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		var err error
		for i := 0; err == nil; i++ {
			err = a.stream.Send(usage(map[string]string{"k": strings.Repeat("x", 3000) + strconv.Itoa(i)}, 0, 1, 0))
		}
	}()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		if now := s.service.Status(); now["streams"] == 0 && now["messages"] != uint64(0) { // it has begun, and ended
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it goes on: %v", s.service.Status())
		}
	}
	for {
		if _, err := a.stream.Recv(); err != nil {
			if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "in time") {
				t.Error(err)
			}
			break
		}
	}
	<-sent
}

// TestReportsAreNotTheUseOfOthers: where only proxies use a limit, nothing of it is left to other fronts.
func TestReportsAreNotTheUseOfOthers(t *testing.T) {
	limit := weir.TokenBucket(weir.PerSecond(100), 50)
	t.Run("of more than the burst", func(t *testing.T) {
		s := serve(t, one(limited(limit)))
		a := s.connect()
		a.report(id, 0, 0, 0)
		has := rate(t, a.next())
		for _, demand := range [...]float64{30, 30, 30, 30, 30, 30, 30, 30, 100, 100, 100, 100} {
			s.clock.Advance(5 * time.Second)
			a.report(id, 5*time.Second, uint64(5*min(demand, has)), uint64(5*max(0, demand-has)))
			has = rate(t, a.next())
		}
		if has < 90 {
			t.Errorf("%v/s are assigned of 100", has)
		}
	})
	t.Run("of proxies in turn", func(t *testing.T) {
		s := serve(t, one(limited(limit)))
		proxies := []*client{s.connect(), s.connect(), s.connect(), s.connect()}
		demand, has := [...]float64{200, 100, 30, 5}, make([]float64, 4)
		for i, p := range proxies {
			p.report(id, 0, 0, 0)
			has[i] = rate(t, p.next())
		}
		assigned, rounds := 0., 30
		for n := range rounds {
			for i, p := range proxies {
				s.clock.Advance(1250 * time.Millisecond)
				p.report(id, 5*time.Second, uint64(5*min(demand[i], has[i])), uint64(5*max(0, demand[i]-has[i])))
				has[i] = rate(t, p.next())
				if n >= rounds/2 {
					assigned += has[i]
				}
			}
		}
		if assigned /= float64(rounds - rounds/2); assigned < 93 {
			t.Errorf("%v/s are assigned of 100", assigned)
		}
	})
}
