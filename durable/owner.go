package durable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

const defaultMaxKeys = 1_000_000

// OwnerOptions configure an [Owner].
type OwnerOptions struct {
	// Reserve is K: how many permits at most a record is ahead of what was allowed, the request that needed it included. With 1
	// every request is written before it is allowed. A crash loses at most K - 1 permits of each key. From 1 to 10^15. Default:
	// 0, a tenth of the limit, and at least 1: see [Owner].
	Reserve int64
	// WriteTimeout is how long a write may take before the requests that wait for it end as Unavailable: from 10 ms to 1 min.
	// Default: 5 s.
	WriteTimeout time.Duration
	// Writers is how many writes can be on the way at a time: from 1 to 64. Default: 4.
	Writers int
	// MaxKeys is how many keys are kept in memory: from 1 to 10^9. Where there is no room, a key without waiting requests is
	// dropped, and read again when it is used. If there is none, requests for other keys are Refused with ReasonTableFull.
	// Default: 1,000,000.
	MaxKeys int
	// Sweep is how long to rest between going through the records, to delete those that are not needed: of keys that have had all
	// their permits for a minute, and of adjustments but the last 1000 of a key. From 1 s to 24 h. Default: 1 min.
	Sweep time.Duration
	// Logger is told what happens to the term, that clocks were wrong, and, at most once a second, that a write has failed.
	// Default: nil, silent.
	Logger *slog.Logger
	// Clock replaces the wall clock: its Now is in Unix nanoseconds. Its AfterFunc is not used. Default: nil.
	Clock weir.Clock
}

// Owner decides about permits, for as long as its term lasts. What it allows is durable before the caller knows, and so survives
// every crash that the engine survives: no permit is ever allowed twice. All methods are safe for concurrent use.
//
// A record has what was allowed, and how many permits may have been allowed since, up to K of them. So many requests need one
// write, and run at the speed of memory in between. A new owner counts these permits as taken: a crash loses at most K - 1
// permits of a key and adds none (TestCrashBurnsAtMostK). Requests that need a write at the same time share it, across keys.
//
// K follows demand. It doubles while records are used up within 50 ms, or within four writes, and is at least what is waited for.
// It is halved when half of a record remains after a second. A key that is not used is never written; its record is deleted once
// all its permits are back.
type Owner struct {
	options OwnerOptions
	term    Term
	began   time.Time
	time    told            // by which permits are counted
	ctx     context.Context //nolint:containedctx // until the owner ends
	end     context.CancelFunc
	writing context.Context //nolint:containedctx // until nothing is written any more
	cut     context.CancelFunc
	asked   chan *bucket
	work    sync.WaitGroup
	stopped atomic.Bool
	lastLog atomic.Int64
	adjusts atomic.Int64 // how many adjustments were begun
	failing atomic.Int64 // since when no write has succeeded, after the term began; 0 if the last one has

	counts counts
	clocks clockWatch
	calls  sync.WaitGroup // of several buckets, which leave none of them half done

	mu      sync.RWMutex
	buckets map[string]*bucket
	dropped int64   // permits that were granted by buckets which are not there any more
	outcome Outcome // what everybody is answered, 0 while the term goes on
}

// checked fills in the defaults.
func (o OwnerOptions) checked() (OwnerOptions, error) {
	if o.WriteTimeout == 0 {
		o.WriteTimeout = 5 * time.Second
	}
	if o.Writers == 0 {
		o.Writers = 4
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = defaultMaxKeys
	}
	if o.Sweep == 0 {
		o.Sweep = time.Minute
	}
	switch {
	case o.Sweep < time.Second || o.Sweep > 24*time.Hour:
		return o, &weir.OptionError{Option: "OwnerOptions.Sweep", Value: o.Sweep.String(), Accepted: "from 1s to 24h"}
	case o.Reserve < 0 || o.Reserve > maxRecordAhead:
		return o, &weir.OptionError{
			Option: "OwnerOptions.Reserve", Value: fmt.Sprint(o.Reserve), Accepted: "from 1 to 10^15 permits",
		}
	case o.WriteTimeout < 10*time.Millisecond || o.WriteTimeout > time.Minute:
		return o, &weir.OptionError{
			Option: "OwnerOptions.WriteTimeout", Value: o.WriteTimeout.String(), Accepted: "from 10ms to 1m",
		}
	case o.Writers < 1 || o.Writers > 64:
		return o, &weir.OptionError{Option: "OwnerOptions.Writers", Value: fmt.Sprint(o.Writers), Accepted: "from 1 to 64"}
	case o.MaxKeys < 1 || o.MaxKeys > 1e9:
		return o, &weir.OptionError{Option: "OwnerOptions.MaxKeys", Value: fmt.Sprint(o.MaxKeys), Accepted: "from 1 to 10^9"}
	}
	return o, nil
}

// NewOwner returns the owner of a term. Stop must be called when it is not needed any more. The error is an
// *[weir.OptionError].
func NewOwner(t Term, o OwnerOptions) (*Owner, error) { return newOwner(t, o, told{}) }

// newOwner is NewOwner for a time of the limits that is known, if it is.
func newOwner(t Term, o OwnerOptions, known told) (*Owner, error) {
	if t == nil {
		return nil, &weir.OptionError{Option: "NewOwner.t", Value: "nil", Accepted: "a term"}
	}
	o, err := o.checked()
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(context.Background())
	own := &Owner{
		options: o, term: t, began: time.Now(), ctx: ctx, end: end, asked: make(chan *bucket, 16*MostWrites),
		buckets: make(map[string]*bucket),
	}
	own.time = known.orWall(own.wall(own.began), own.began)
	own.watchClock(own.began)
	own.writing, own.cut = context.WithCancel(context.Background())
	for range o.Writers {
		own.work.Go(own.write)
	}
	own.work.Go(own.sweeping)
	own.work.Go(func() {
		select {
		case <-t.Done():
			own.depose(ErrDeposed)
		case <-ctx.Done():
		}
	})
	return own, nil
}

// Epoch is that of the term.
func (o *Owner) Epoch() int64 { return o.term.Epoch() }

// holds reports whether nobody else can be the owner now.
func (o *Owner) holds() bool { return o.holdsAt(time.Now()) }

func (o *Owner) holdsAt(now time.Time) bool { return now.Before(o.term.Expires()) }

// Ticket is a request that waits.
type Ticket struct {
	bucket *bucket
	waiter *waiter
}

// Cancel withdraws the request. It does nothing after the decision.
func (t Ticket) Cancel() {
	if t.bucket != nil {
		t.bucket.cancel(t.waiter)
	}
}

// Enqueue asks for permits. The function is called exactly once with the decision, maybe before Enqueue returns, and by any
// goroutine: it must not wait for anything.
func (o *Owner) Enqueue(r Request, answer func(Answer)) Ticket {
	if a, ok := o.quick(&r); ok {
		answer(a)
		return Ticket{}
	}
	return o.enqueue(&r, answer)
}

func (o *Owner) enqueue(r *Request, answer func(Answer)) Ticket {
	w := o.waiter(r, answer)
	if err := r.check(); err != nil {
		answer(unavailable(w, err))
		return Ticket{}
	}
	b, why := o.bucket(r.Policy, r.Key)
	if b == nil {
		answer(noBucket(r, why))
		return Ticket{}
	}
	b.enter(w)
	return Ticket{b, w}
}

// waiter is that of a request for permits.
func (o *Owner) waiter(r *Request, answer func(Answer)) *waiter {
	wait := r.Wait
	if wait == 0 {
		wait = o.options.WriteTimeout // for the write alone
	}
	return &waiter{request: *r, answer: answer, place: -1, at: time.Now().Add(wait), counts: &o.counts}
}

// quick decides on a request that is simple enough: see [bucket.quick].
func (o *Owner) quick(r *Request) (a Answer, ok bool) {
	const most = store.MostPolicyBytes + store.MostKeyBytes
	if r.N < 0 || r.N > maxRecordAhead || r.Wait < 0 || r.Wait > MaxWait || r.QueueLimit < 0 || r.QueueLimit > maxRecordAhead ||
		r.Reserve != 0 || r.Limit.Algorithm() == weir.AlgorithmConcurrency || len(r.Policy)+len(r.Key) > most {
		return Answer{}, false
	}
	var name [64]byte
	key := appendRecordKey(name[:0], r.Policy, r.Key)
	o.mu.RLock()
	b := o.buckets[string(key)]
	if o.outcome != 0 {
		b = nil
	}
	o.mu.RUnlock()
	if b == nil {
		return Answer{}, false
	}
	return b.quick(r)
}

// noBucket is the answer to a request whose key has no place.
func noBucket(r *Request, why Outcome) Answer {
	a := refusedBy(r, why, nil)
	if why == Refused {
		a.Decision.Reason, a.Decision.RetryAfter = weir.ReasonTableFull, time.Second
	} else {
		a.Err = errNotOwner
	}
	return a
}

// mustContext refuses a nil context at the call, and not in another goroutine or once there is something to wait for.
func mustContext(ctx context.Context) {
	if ctx == nil {
		panic("weir: durable: nil context")
	}
}

// Acquire asks for permits and waits for the decision. They are taken if and only if the Outcome is Granted. A request whose
// context ends is withdrawn. A nil ctx panics.
func (o *Owner) Acquire(ctx context.Context, r Request) Answer {
	mustContext(ctx)
	if ctx.Err() != nil { // it loses even where permits are free
		return ended(ctx, &r)
	}
	if a, ok := o.quick(&r); ok {
		return a
	}
	return o.acquire(ctx, r)
}

func (o *Owner) acquire(ctx context.Context, r Request) Answer {
	got := make(chan Answer, 1)
	ticket := o.enqueue(&r, func(a Answer) { got <- a }) //nolint:contextcheck // a record is read for everybody
	select {
	case a := <-got:
		return a
	case <-ctx.Done():
	}
	ticket.Cancel()
	a := <-got
	if a.Outcome == Canceled && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		a.Outcome, a.Decision.Reason = Expired, weir.ReasonDeadline
	}
	return a
}

// TryAcquire asks for permits without waiting for them, whatever the Wait of the request is.
func (o *Owner) TryAcquire(ctx context.Context, r Request) Answer {
	r.Wait = 0
	return o.Acquire(ctx, r)
}

// Commit ends a reservation with what it really cost: less is given back, more is charged, up to a debt of the limit. The error
// is ErrNotReserved if it has expired or was settled before.
func (o *Owner) Commit(ctx context.Context, r Reservation, actual int64) error {
	if actual < 0 || actual > maxRecordAhead {
		return &weir.OptionError{Option: "actual", Value: fmt.Sprint(actual), Accepted: "from 0 to 10^15"}
	}
	return o.settle(ctx, &settlement{reservation: r, actual: actual})
}

// Cancel ends a reservation as if nothing had been taken.
func (o *Owner) Cancel(ctx context.Context, r Reservation) error {
	return o.settle(ctx, &settlement{reservation: r, cancel: true})
}

func (o *Owner) settle(ctx context.Context, s *settlement) error {
	r := &s.reservation
	if r.ID == "" {
		return nil
	}
	named := [1]store.Charge{{Policy: r.Policy, Key: r.Key}}
	if err := store.CheckSettle(store.Hold{ID: r.ID, Charges: named[:]}, nil); err != nil {
		return err //nolint:wrapcheck // it names what is wrong
	}
	b, why := o.bucket(r.Policy, r.Key)
	if b == nil {
		return noBucket(&Request{}, why).reason()
	}
	got := make(chan Answer, 1)
	b.enter(&waiter{ //nolint:contextcheck // a record is read for everybody
		request: Request{Policy: r.Policy, Key: r.Key}, settles: s, answer: func(a Answer) { got <- a }, place: -1,
		at: time.Now().Add(o.options.WriteTimeout),
	})
	select {
	case a := <-got:
		if a.Outcome == Granted {
			return nil
		}
		return a.reason()
	case <-ctx.Done():
		return fmt.Errorf("weir: it is not known whether the reservation was settled: %w", ctx.Err())
	}
}

// bucket is that of a key, made if there is room.
func (o *Owner) bucket(policy, key string) (*bucket, Outcome) {
	name := recordKey(policy, key)
	o.mu.RLock()
	b, outcome := o.buckets[name], o.outcome
	o.mu.RUnlock()
	if b != nil && outcome == 0 {
		return b, 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.outcome != 0 {
		return nil, o.outcome
	}
	if b = o.buckets[name]; b == nil {
		if len(o.buckets) >= o.options.MaxKeys && !o.drop() {
			o.counts.count(Refused)
			return nil, Refused
		}
		b = &bucket{owner: o, name: name, revision: -1}
		o.buckets[name] = b
	}
	return b, 0
}

// warn logs that something has failed, at most once a second.
func (o *Owner) warn(what string, err error) {
	if o.options.Logger == nil {
		return
	}
	now, last := time.Now().UnixNano(), o.lastLog.Load()
	if now-last < int64(time.Second) || !o.lastLog.CompareAndSwap(last, now) {
		return
	}
	o.options.Logger.Warn(what, "epoch", o.term.Epoch(), "error", err.Error())
}

// depose ends the term because it has been lost: nothing is granted any more, and those who wait are told that it can be tried
// again.
func (o *Owner) depose(why error) {
	first := o.finish(Unavailable)
	o.cut()
	if first && o.options.Logger != nil {
		o.options.Logger.Warn("the term as owner of the limits was lost", "epoch", o.term.Epoch(), "error", why.Error())
	}
}

// finish answers everybody with an outcome, and reports whether that was the first time.
func (o *Owner) finish(why Outcome) bool {
	o.mu.Lock()
	if o.outcome != 0 {
		o.mu.Unlock()
		return false
	}
	o.outcome = why
	all := make([]*bucket, 0, len(o.buckets))
	for _, b := range o.buckets {
		all = append(all, b)
	}
	o.mu.Unlock()
	for _, b := range all {
		b.end(why)
	}
	return true
}

// Stop ends the term. Waiting requests end as Stopping, and what records are ahead is given back, until ctx or the term ends, as
// the term does where no majority can write. It can be called again.
func (o *Owner) Stop(ctx context.Context) error {
	first := o.finish(Stopping)
	if !o.stopped.CompareAndSwap(false, true) {
		o.work.Wait()
		return nil
	}
	defer o.tellAhead()
	o.calls.Wait()
	o.end()
	during, done := o.during(ctx)
	defer done()
	free := context.AfterFunc(during, o.cut)
	o.work.Wait()
	free()
	defer o.cut()
	var err error
	if first {
		err = o.settleAll(during)
	}
	return errors.Join(err, o.term.Resign(ctx))
}

// during is a context that ends with ctx or with the term.
func (o *Owner) during(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-o.term.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// Waiting is how many permits are waited for, of all keys.
func (o *Owner) Waiting() (permits int64) { return o.Stats().WaitingPermits }

// all are the buckets that there are.
func (o *Owner) all() []*bucket {
	o.mu.RLock()
	defer o.mu.RUnlock()
	all := make([]*bucket, 0, len(o.buckets))
	for _, b := range o.buckets {
		all = append(all, b)
	}
	return all
}
