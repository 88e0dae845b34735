package rlqsapi

import (
	"cmp"
	"log/slog"
	"sync"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitquotav3"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlqsapi/quotashare"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/policy"
)

// Options configure a [Service].
type Options struct {
	// Limits say which limits apply to a bucket. Required.
	Limits *live.Limits
	// Alone says that no other process has a part in policies of durability cluster, as they are kept in a file. Default: false,
	// limits of theirs are not assigned.
	Alone bool
	// Logger logs, at level Warn and at most once a minute for each policy, the limits that cannot be assigned. Required.
	Logger *slog.Logger
	// Clock replaces the monotonic clock of the process. Default: nil.
	Clock weir.Clock
	// Grace is within which a message arrives at a proxy, or a report here, and half of which a message may wait here: from 1 ms
	// to 1 min. See [quotashare.Options]. Default: 1 s.
	Grace time.Duration
	// MostStreams is how many streams there are at most: from 1 to 10^6. Default: 10,000.
	MostStreams int
	// MostBuckets is how many buckets a stream may have: from 1 to 10^6. Default: 10,000.
	MostBuckets int
	// MostShares is how many buckets there are at most in all, those included whose stream has ended and whose assignment has not
	// expired: from 1 to 10^7. One address, or a /64 of IPv6, has nine in ten of them at most. Default: 100,000.
	MostShares int
}

// Service is the rate limit quota service. All methods are safe for concurrent use.
type Service struct {
	ratelimitquotav3.UnimplementedRateLimitQuotaServiceServer

	o        Options
	clock    *clock.Steady
	patience time.Duration // how long a message may wait here

	mu       sync.Mutex
	ledger   *quotashare.Ledger
	streams  map[*stream]struct{}
	closed   bool
	set      *policy.Set // that all buckets were looked up in
	looking  bool        // they are being looked up in another one
	wake     int64       // when the ledger is to be called; 0 if not at all
	stop     func() bool
	meters   map[string]*meter
	warned   map[string]int64
	refused  uint64 // streams that broke the protocol
	messages uint64
	reports  uint64
	denied   uint64 // reports of buckets that are not kept
	told     int64  // when the log was told of one last
}

// New returns a service.
func New(o Options) *Service {
	o.MostStreams, o.MostBuckets = cmp.Or(o.MostStreams, 10_000), cmp.Or(o.MostBuckets, 10_000)
	s := &Service{
		o: o, clock: clock.New(o.Clock), patience: cmp.Or(o.Grace, quotashare.DefaultGrace) / 2, streams: map[*stream]struct{}{},
		meters: map[string]*meter{}, warned: map[string]int64{}, set: o.Limits.Engine().Set(),
	}
	s.ledger = quotashare.New(quotashare.Options{Send: s.send, Grace: o.Grace, MostShares: o.MostShares, Proxy: proxyOf})
	return s
}

// Close ends all streams: proxies go on with what they were assigned until it expires. It does not wait for them.
func (s *Service) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for st := range s.streams {
		st.end(errClosed)
	}
	if s.stop != nil {
		s.stop()
	}
}

// schedule has the ledger called when it wants to be. The lock is held.
func (s *Service) schedule() {
	if s.closed {
		return
	}
	now := s.clock.Now()
	next := s.ledger.Next(now)
	if s.wake != 0 && s.wake <= next {
		return
	}
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
	if s.wake = 0; s.ledger.Shares() == 0 && len(s.streams) == 0 {
		return
	}
	next = min(next, now+int64(time.Second))
	s.wake = next
	s.stop = s.clock.At(next, s.tick)
}

// tick calls the ledger.
func (s *Service) tick() {
	s.reload()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake = 0
	s.ledger.Tick(s.clock.Now())
	s.schedule()
}

// reload looks all buckets up again if the limits have changed.
func (s *Service) reload() {
	set := s.o.Limits.Engine().Set()
	s.mu.Lock()
	if s.set == set || s.looking || s.closed {
		s.mu.Unlock()
		return
	}
	s.looking = true
	var all []*bucket
	for st := range s.streams {
		for _, b := range st.buckets {
			all = append(all, b)
		}
	}
	s.mu.Unlock()
	for _, b := range all { // without the lock, as it can take a while
		held := s.lookUp(b)
		s.mu.Lock()
		if b.stream.buckets[b.key] == b && b.stream.ended == nil {
			s.hold(b, held)
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	s.set, s.looking = set, false
	s.mu.Unlock()
}

// hold has a bucket held to what it is held to now. The lock is held.
func (s *Service) hold(b *bucket, held holding) {
	now := s.clock.Now()
	if len(b.holding.needs) > 0 && len(held.needs) == 0 && !held.deny {
		s.ledger.Abandon(b.share, now) // no limit applies to it any more
		return
	}
	share, err := s.ledger.SetNeeds(b.share, held.needs, held.deny, now)
	if err != nil { // the proxy has it denied, and its next report subscribes it anew
		s.ledger.End(b.share, now)
		delete(b.stream.buckets, b.key)
		b.stream.push(denial(b.id))
		return
	}
	b.share, b.holding = share, held
}

// mostTold is how many accounts [Service.Status] tells of.
const mostTold = 100

// Status is for people: how many streams and buckets there are, and what is assigned of the limits that most of them are held to.
func (s *Service) Status() map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	buckets := 0
	for st := range s.streams {
		buckets += len(st.buckets)
	}
	figures, accounts := s.ledger.Accounts(mostTold, s.clock.Now())
	for i := range figures {
		figures[i].Key = s.o.Limits.Clean(readable(figures[i].Key))
	}
	return map[string]any{
		"streams": len(s.streams), "buckets": buckets, "shares": s.ledger.Shares(), "accounts": accounts, "assigned": figures,
		"reports": s.reports, "messages": s.messages, "protocol_errors": s.refused, "denied_reports": s.denied,
	}
}
