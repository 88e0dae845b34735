package rlqsapi

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitquotav3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/typev3"
	"github.com/weirhq/weir/cmd/weir/internal/quotashare"
)

type connection = grpc.BidiStreamingServer[
	ratelimitquotav3.RateLimitQuotaUsageReports, ratelimitquotav3.RateLimitQuotaResponse,
]

// stream is one connection of one proxy. What is not its own is guarded by the lock of the service.
type stream struct {
	service *Service
	ctx     context.Context //nolint:containedctx // that of the connection
	domain  string          // of the goroutine that reads
	buckets map[string]*bucket
	queue   []queued
	more    chan struct{} // there is something in queue, or ended is set
	ended   error
}

// queued is a message that is to be sent.
type queued struct {
	at     time.Time // of the process, whatever the clock is, as sockets go by that
	action *ratelimitquotav3.RateLimitQuotaResponse_BucketAction
}

var (
	errClosed = status.Error(codes.Unavailable, "weir: the server is shutting down")
	errSlow   = status.Error(codes.Unavailable, "weir: what was assigned could not be sent in time")
)

func exhausted(err error) error { return status.Error(codes.ResourceExhausted, err.Error()) }

func invalid(err error) error { return status.Error(codes.InvalidArgument, err.Error()) }

// StreamRateLimitQuotas serves one proxy, until it ends the stream, breaks the protocol, or takes too long to read.
func (s *Service) StreamRateLimitQuotas(c connection) error {
	st := &stream{service: s, ctx: c.Context(), buckets: map[string]*bucket{}, more: make(chan struct{}, 1)}
	s.mu.Lock()
	switch {
	case s.closed:
		s.mu.Unlock()
		return errClosed
	case len(s.streams) >= s.o.MostStreams:
		s.mu.Unlock()
		return exhausted(errors.New("weir: there are too many streams"))
	}
	s.streams[st] = struct{}{}
	s.mu.Unlock()
	go st.read(c) // it ends with the connection
	err := st.write(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	st.end(err)
	delete(s.streams, st)
	now := s.clock.Now()
	for _, b := range st.buckets {
		s.ledger.End(b.share, now)
	}
	if code := status.Code(err); code == codes.InvalidArgument || code == codes.ResourceExhausted {
		s.refused++
	}
	s.schedule()
	return err
}

// end has the stream end. The lock is held.
func (st *stream) end(err error) {
	if st.ended == nil {
		if st.ended = err; err == nil {
			st.ended = io.EOF
		}
	}
	st.notify()
}

func (st *stream) notify() {
	select {
	case st.more <- struct{}{}:
	default:
	}
}

// mostActions is how many actions a message has at most.
const mostActions = 500

// write sends what is queued, until the stream ends.
func (st *stream) write(c connection) error {
	s := st.service
	for {
		select {
		case <-st.more:
		case <-st.ctx.Done():
			return status.FromContextError(st.ctx.Err()).Err()
		}
		for {
			s.mu.Lock()
			if err := st.ended; err != nil {
				s.mu.Unlock()
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
			n := min(len(st.queue), mostActions)
			if n == 0 {
				s.mu.Unlock()
				break
			}
			oldest := st.queue[0].at
			m := &ratelimitquotav3.RateLimitQuotaResponse{}
			for i := range st.queue[:n] {
				m.BucketAction = append(m.BucketAction, st.queue[i].action)
			}
			clear(st.queue[:n])
			if st.queue = st.queue[n:]; len(st.queue) == 0 {
				st.queue = nil
			}
			s.messages++
			s.mu.Unlock()
			if err := s.deliver(c, m, oldest); err != nil {
				return err
			}
		}
	}
}

// deliver sends a message whose oldest part is from a time. It waits no longer than a message may be on its way: flow control
// lets nothing through while the proxy does not read, which it may never do.
func (s *Service) deliver(c connection, m *ratelimitquotav3.RateLimitQuotaResponse, oldest time.Time) error {
	late := time.NewTimer(s.patience - time.Since(oldest) + 1)
	defer late.Stop()
	if s.late(oldest) {
		return errSlow
	}
	sent := make(chan error, 1)
	go func() { sent <- c.Send(m) }() // it ends with the stream
	select {
	case err := <-sent:
		if err == nil && s.late(oldest) {
			err = errSlow
		}
		return err
	case <-late.C:
		return errSlow
	}
}

// late tells whether a message has waited for longer than it may.
func (s *Service) late(at time.Time) bool { return time.Since(at) > s.patience }

// read takes reports until the connection ends.
func (st *stream) read(c connection) {
	for {
		m, err := c.Recv()
		if err == nil {
			err = st.take(m)
		} else if !errors.Is(err, io.EOF) {
			err = status.FromContextError(context.Canceled).Err()
		}
		if err != nil {
			st.service.mu.Lock()
			if errors.Is(err, io.EOF) {
				err = nil
			}
			st.end(err)
			st.service.mu.Unlock()
			return
		}
	}
}

// take takes the reports of a message.
func (st *stream) take(m *ratelimitquotav3.RateLimitQuotaUsageReports) error {
	if d := m.GetDomain(); d != "" && st.domain == "" && len(d) <= mostDomain {
		st.domain = d
	} else if d != "" && d != st.domain || st.domain == "" {
		return invalid(errors.New("weir: domain: must be in the first message, of at most 256 bytes, and the same in all others"))
	}
	for _, u := range m.GetBucketQuotaUsages() {
		// Envoy tells whole seconds, and 0 in the first report.
		if e := u.GetTimeElapsed(); e != nil && (!e.IsValid() || e.AsDuration() < 0) {
			return invalid(errors.New("weir: time_elapsed: must not be negative"))
		}
		key, err := identify(u.GetBucketId())
		if err != nil {
			return invalid(err)
		}
		if failed := st.report(key, u); failed != nil {
			return failed
		}
	}
	return nil
}

// report takes one report.
func (st *stream) report(key string, u *ratelimitquotav3.RateLimitQuotaUsageReports_BucketQuotaUsage) error {
	s := st.service
	s.mu.Lock()
	b := st.buckets[key]
	full := b == nil && len(st.buckets) >= s.o.MostBuckets
	var held holding
	if b != nil {
		held = b.holding
	}
	s.mu.Unlock()
	if full {
		return exhausted(errors.New("weir: the stream has too many buckets"))
	}
	if b == nil {
		// Without fields that are not known, which have no bounds.
		id := &ratelimitquotav3.BucketId{Bucket: u.GetBucketId().GetBucket()}
		b = &bucket{stream: st, id: id, key: key, request: requestOf(st.ctx, st.domain, id)}
		return s.subscribe(b, u.GetNumRequestsAllowed())
	}
	measured := s.charge(b, held, u.GetNumRequestsAllowed())
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.ended != nil || st.buckets[key] != b {
		return nil
	}
	s.reports++
	now := s.clock.Now()
	s.measure(measured, now)
	s.ledger.Report(b.share, u.GetNumRequestsAllowed(), u.GetNumRequestsDenied(), u.GetTimeElapsed().AsDuration(), now)
	s.schedule()
	return nil
}

// subscribe begins a bucket.
func (s *Service) subscribe(b *bucket, allowed uint64) error {
	engine := s.o.Limits.Engine()
	set := engine.Set()
	held := s.lookUp(b)
	s.charge(b, held, allowed)
	s.mu.Lock()
	defer s.mu.Unlock()
	for set != engine.Set() { // it has been replaced: whoever looks up all buckets does not know this one yet
		set = engine.Set()
		s.mu.Unlock()
		held = s.lookUp(b)
		s.mu.Lock()
	}
	if b.stream.ended != nil {
		return nil
	}
	b.holding, b.stream.buckets[b.key] = held, b
	s.reports++
	share, err := s.ledger.Subscribe(b, held.needs, held.deny, s.clock.Now())
	if err != nil {
		delete(b.stream.buckets, b.key)
		return exhausted(err)
	}
	b.share = share
	s.schedule()
	return nil
}

// send queues what a proxy is to be told. The lock is held.
func (s *Service) send(share *quotashare.Share, a quotashare.Assignment) {
	b, ok := share.Owner.(*bucket)
	if !ok {
		return
	}
	st := b.stream
	if a.Kind == quotashare.Abandon {
		delete(st.buckets, b.key)
	}
	if st.ended != nil {
		return
	}
	if len(st.queue) >= 4*s.o.MostBuckets {
		st.end(errSlow)
		return
	}
	st.queue = append(st.queue, queued{time.Now(), actionOf(b.id, a)})
	st.notify()
}

// actionOf is what a proxy is told.
func actionOf(id *ratelimitquotav3.BucketId, a quotashare.Assignment) *ratelimitquotav3.RateLimitQuotaResponse_BucketAction {
	action := &ratelimitquotav3.RateLimitQuotaResponse_BucketAction{BucketId: id}
	strategy := &typev3.RateLimitStrategy{}
	switch a.Kind {
	case quotashare.Abandon:
		action.BucketAction = &ratelimitquotav3.RateLimitQuotaResponse_BucketAction_AbandonAction_{
			AbandonAction: &ratelimitquotav3.RateLimitQuotaResponse_BucketAction_AbandonAction{},
		}
		return action
	case quotashare.Allow:
		strategy.Strategy = &typev3.RateLimitStrategy_BlanketRule_{BlanketRule: typev3.RateLimitStrategy_ALLOW_ALL}
	case quotashare.Deny:
		strategy.Strategy = &typev3.RateLimitStrategy_BlanketRule_{BlanketRule: typev3.RateLimitStrategy_DENY_ALL}
	case quotashare.Tokens:
		strategy.Strategy = &typev3.RateLimitStrategy_TokenBucket{TokenBucket: &typev3.TokenBucket{
			MaxTokens: a.MaxTokens, TokensPerFill: wrapperspb.UInt32(a.TokensPerFill), FillInterval: fillInterval(a.FillSeconds),
		}}
	}
	action.BucketAction = &ratelimitquotav3.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_{
		QuotaAssignmentAction: &ratelimitquotav3.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction{
			AssignmentTimeToLive: durationpb.New(a.TTL), RateLimitStrategy: strategy,
		},
	}
	return action
}

// fillInterval is so many seconds and as many nanoseconds. Envoy refills by whole seconds, but tells two buckets apart by the
// nanoseconds only: without them it would keep a bucket that was given out by the second when it is to be one by the minute.
func fillInterval(seconds int64) *durationpb.Duration {
	return &durationpb.Duration{Seconds: seconds, Nanos: int32(seconds % int64(time.Second))}
}
