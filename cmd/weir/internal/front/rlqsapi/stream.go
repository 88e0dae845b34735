package rlqsapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitquotav3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/typev3"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlqsapi/quotashare"
)

type connection = grpc.BidiStreamingServer[
	ratelimitquotav3.RateLimitQuotaUsageReports, ratelimitquotav3.RateLimitQuotaResponse,
]

// stream is one connection of one proxy. What is not its own is guarded by the lock of the service.
type stream struct {
	service *Service
	ctx     context.Context //nolint:containedctx // that of the connection
	proxy   netip.Prefix    // the address at its other end
	domain  string          // of the goroutine that reads
	buckets map[string]*bucket
	queue   []queued
	refused int           // bytes of the bucket ids in queue that are not kept
	more    chan struct{} // there is something in queue, or ended is set
	room    chan struct{} // queue has become shorter, or ended is set
	ended   error
}

// queued is a message that is to be sent.
type queued struct {
	at      time.Time // of the process, whatever the clock is, as sockets go by that
	action  *ratelimitquotav3.RateLimitQuotaResponse_BucketAction
	refused int // bytes of its bucket id, if that is not kept
}

var (
	errClosed = status.Error(codes.Unavailable, "weir: the server is shutting down")
	errSlow   = status.Error(codes.Unavailable, "weir: what was assigned could not be sent in time")
)

func exhausted(err error) error { return status.Error(codes.ResourceExhausted, err.Error()) }

func invalid(err error) error { return status.Error(codes.InvalidArgument, err.Error()) }

// StreamRateLimitQuotas serves one proxy, until it ends the stream, breaks the protocol, or takes too long to read.
func (s *Service) StreamRateLimitQuotas(c connection) error {
	st := &stream{
		service: s, ctx: c.Context(), proxy: addressOf(c.Context()), buckets: map[string]*bucket{},
		more: make(chan struct{}, 1), room: make(chan struct{}, 1),
	}
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

// addressOf is the address at the other end of a connection, or the /64 of it.
func addressOf(ctx context.Context) netip.Prefix {
	if p, ok := peer.FromContext(ctx); ok {
		if at, err := netip.ParseAddrPort(p.Addr.String()); err == nil {
			return clientip.Prefixes{}.Mask(at.Addr())
		}
	}
	return netip.Prefix{}
}

// proxyOf is that of the owner of a share.
func proxyOf(owner any) netip.Prefix {
	b, ok := owner.(*bucket)
	if !ok {
		return netip.Prefix{}
	}
	return b.stream.proxy
}

// end has the stream end. The lock is held.
func (st *stream) end(err error) {
	if st.ended == nil {
		if st.ended = err; err == nil {
			st.ended = io.EOF
		}
	}
	signal(st.more)
	signal(st.room)
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

const (
	// mostActions is how many actions a message has at most.
	mostActions = 500
	// mostRefused is how many bytes of bucket ids that are not kept a message has, and the queue, before one more is added. gRPC
	// takes messages of up to 4 MiB by default.
	mostRefused = 1 << 20
)

// batch takes the actions of the next message off the queue, and tells since when the first of them has waited. The lock is held.
func (st *stream) batch() (m *ratelimitquotav3.RateLimitQuotaResponse, oldest time.Time) {
	m, oldest = &ratelimitquotav3.RateLimitQuotaResponse{}, st.queue[0].at
	n, refused := 0, 0
	for n < min(len(st.queue), mostActions) && refused < mostRefused {
		m.BucketAction = append(m.BucketAction, st.queue[n].action)
		refused += st.queue[n].refused
		n++
	}
	clear(st.queue[:n])
	if st.queue = st.queue[n:]; len(st.queue) == 0 {
		st.queue = nil
	}
	st.refused -= refused
	signal(st.room)
	return m, oldest
}

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
			if len(st.queue) == 0 {
				s.mu.Unlock()
				break
			}
			m, oldest := st.batch()
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

// late reports whether a message has waited for longer than it may.
func (s *Service) late(at time.Time) bool { return time.Since(at) > s.patience }

// read takes reports until the connection ends.
func (st *stream) read(c connection) {
	for {
		var m reports
		err := c.RecvMsg(&m)
		if err == nil {
			err = st.take(&m)
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

// turn is after how many reports of a message others have their turn. A bucket that is new takes some 40 us.
const turn = 16

var errUnread = errors.New("weir: a report cannot be read: its strings must be UTF-8")

// take takes the reports of a message.
func (st *stream) take(m *reports) error {
	if d := m.domain; d != "" && st.domain == "" && len(d) <= mostDomain {
		st.domain = d
	} else if d != "" && d != st.domain || st.domain == "" {
		return invalid(errors.New("weir: domain: must be in the first message, of at most 256 bytes, and the same in all others"))
	}
	n := 0
	for u := range m.usages {
		if n++; n%turn == 0 {
			runtime.Gosched()
			st.pause()
		}
		if u == nil {
			st.service.refuse(errUnread)
			continue
		}
		key, err := identify(u.GetBucketId())
		if err == nil {
			err = st.report(key, u)
		}
		if err != nil {
			st.deny(u.GetBucketId(), err)
		}
	}
	return nil
}

// pause waits while much is to be sent already, which would be late otherwise: a proxy that connects anew reports all of its
// buckets at once.
func (st *stream) pause() {
	for {
		st.service.mu.Lock()
		full := st.ended == nil && len(st.queue) > 2*mostActions
		st.service.mu.Unlock()
		if !full {
			return
		}
		<-st.room
	}
}

// deniedFor is how long a bucket is denied that cannot be kept, unless it is reported again.
const deniedFor = 2 * time.Minute

// deny denies a bucket that is not kept, and that alone: the end of the stream would leave all buckets of the proxy to what it
// does without a server. It waits while much is to be sent already.
func (st *stream) deny(id *ratelimitquotav3.BucketId, why error) {
	s := st.service
	s.refuse(why)
	if len(id.GetBucket()) == 0 {
		return // no action is about it
	}
	id = &ratelimitquotav3.BucketId{Bucket: id.GetBucket()}
	q := denial(id)
	q.refused = proto.Size(id)
	for {
		s.mu.Lock()
		if ended := st.ended != nil; ended || st.refused < mostRefused {
			if !ended {
				st.refused += q.refused
				st.push(q)
			}
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		<-st.room
		q.at = time.Now()
	}
}

// denial denies a bucket.
func denial(id *ratelimitquotav3.BucketId) queued {
	return queued{at: time.Now(), action: actionOf(id, quotashare.Assignment{Kind: quotashare.Deny, TTL: deniedFor})}
}

// refuse counts reports that lead to nothing, and tells the log of them, at most once a minute.
func (s *Service) refuse(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied++
	if now := s.clock.Now(); s.denied == 1 || now-s.told >= int64(time.Minute) {
		s.told = now
		s.o.Logger.Warn("a bucket of a proxy is denied", "error", s.o.Limits.Clean(why.Error()), "denied_in_all", s.denied)
	}
}

// report takes one report.
func (st *stream) report(key string, u *usage) error {
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
		return fmt.Errorf("weir: a stream has %d buckets: must have at most as many", s.o.MostBuckets)
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
	measured := s.charge(b, held, allowed)
	s.mu.Lock()
	defer s.mu.Unlock()
	for set != engine.Set() { // it has been replaced: a look at all buckets does not find this one yet
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
	now := s.clock.Now()
	s.measure(measured, now)
	share, err := s.ledger.Subscribe(b, held.needs, held.deny, now)
	if err != nil {
		delete(b.stream.buckets, b.key)
		return err
	}
	b.share = share
	s.schedule()
	return nil
}

// send queues what a proxy is to be sent. The lock is held.
func (s *Service) send(share *quotashare.Share, a quotashare.Assignment) {
	b, ok := share.Owner.(*bucket)
	if !ok {
		return
	}
	st := b.stream
	if a.Kind == quotashare.Abandon {
		delete(st.buckets, b.key)
	}
	if st.ended == nil {
		st.push(queued{at: time.Now(), action: actionOf(b.id, a)})
	}
}

// push queues an action, or ends the stream if there are too many. The lock is held.
func (st *stream) push(q queued) {
	if len(st.queue) >= 4*st.service.o.MostBuckets {
		st.end(errSlow)
		return
	}
	st.queue = append(st.queue, q)
	signal(st.more)
}

// actionOf is what a proxy is sent.
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
