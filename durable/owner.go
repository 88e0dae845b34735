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
	// WriteTimeout is how long a write may take before the requests that wait for it fail: from 10 ms to 1 min.
	// Default: 5 s.
	WriteTimeout time.Duration
	// Writers is how many writes can be on the way at a time: from 1 to 64. Default: 4.
	Writers int
	// MaxKeys is how many keys are kept in memory: from 1 to 10^9, and a few more while keys are reset. Where there is no room, a
	// key without waiting requests is dropped, and read again when it is used. If there is none, requests for other keys are
	// refused with ReasonTableFull. Default: 1,000,000.
	MaxKeys int
	// Sweep is how long to rest between going through the records, to delete those that are not needed: of keys that have had all
	// their permits for a minute, and of adjustments but the last 1000 of a key. From 1 s to 24 h. Default: 1 min.
	Sweep time.Duration
	// Logger logs what happens to the term, that clocks were wrong, and, at most once a second, that a write has failed.
	// Default: nil, silent.
	Logger *slog.Logger
	// Clock replaces the wall clock: its Now is in Unix nanoseconds. Its AfterFunc is not used. Default: nil.
	Clock weir.Clock
}

// Owner decides about permits, for as long as its term lasts. What it allows is durable before the caller knows, and so survives
// every crash that the engine survives: no permit is ever allowed twice. All methods are safe for concurrent use.
//
// A record has what was allowed, and how many permits may have been taken since, up to K of them. So many requests need one
// write, and run at the speed of memory in between. A new owner counts these permits as taken: a crash loses at most K - 1
// permits of a key and adds none (TestCrashBurnsAtMostK). Requests that need a write at the same time share it, across keys.
//
// K follows demand. It doubles while records are used up within 50 ms, or within four writes, and is at least what is waited for.
// It is halved when half of a record remains after a second. A key that is not used is never written; its record is deleted once
// all its permits are back. The zero Owner is not usable: call [NewOwner].
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
	dropped int64       // permits that were taken by buckets which are not there any more
	ended   weir.Reason // why nothing is allowed any more, 0 while the term goes on
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

// holds reports whether no other process can be the owner now.
func (o *Owner) holds() bool { return o.holdsAt(time.Now()) }

func (o *Owner) holdsAt(now time.Time) bool { return now.Before(o.term.Expires()) }

// Do implements [store.Home].
func (o *Owner) Do(
	ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision,
) (store.Hold, error) {
	mustContext(ctx)
	if o.quick(ctx, &ask, charges, decisions) {
		return store.Hold{}, nil
	}
	return do(ctx, o, ask, charges, decisions)
}

// Settle implements [store.Home].
func (o *Owner) Settle(ctx context.Context, h store.Hold, actual []int64) error {
	return settle(ctx, o, h, actual)
}

// quick decides on a request that is simple enough: see [bucket.quick]. It reports whether it did.
func (o *Owner) quick(ctx context.Context, ask *store.Ask, charges []store.Charge, decisions []weir.Decision) bool {
	const most = store.MostPolicyBytes + store.MostKeyBytes
	if len(charges) != 1 || len(decisions) != 1 || ask.Mode != store.ModeTake || ask.Hold != 0 || ctx.Err() != nil {
		return false
	}
	c := &charges[0]
	if c.N < 0 || c.N > maxRecordAhead || ask.Wait < 0 || ask.Wait > store.MaxWait || c.Queue < 0 || c.Queue > maxRecordAhead ||
		c.Limit.Algorithm() == weir.AlgorithmConcurrency || len(c.Policy)+len(c.Key) > most {
		return false
	}
	var name [64]byte
	key := appendRecordKey(name[:0], c.Policy, c.Key, c.Limit.Algorithm())
	o.mu.RLock()
	b := o.buckets[string(key)]
	if o.ended != 0 {
		b = nil
	}
	o.mu.RUnlock()
	return b != nil && b.quick(c, ask.Wait > 0 && c.Queue > 0, &decisions[0])
}

// call carries a call out, all of its charges or none, and waits until what it has changed is durable. What goes back of a loan
// may be lost in a crash, and so may what a failed call gives back of its other charges: both only refuse more.
func (o *Owner) call(ctx context.Context, c *Call) Result {
	if err := c.checkSent(); err != nil {
		return failed(err)
	}
	switch {
	case c.Verb == VerbAdjustments:
		return o.adjustments(ctx, c)
	case c.takes() && ctx.Err() != nil: // it loses even where permits are free
		return notBegun(ctx, c)
	case c.single():
		return o.takeOne(ctx, c)
	case c.takes():
		return o.takeAll(ctx, c)
	default:
		return o.change(ctx, c)
	}
}

// takeOne takes the permits of one charge.
func (o *Owner) takeOne(ctx context.Context, c *Call) Result {
	got := make(chan *waiter, 1)
	w := o.enqueue(c, func(w *waiter) { got <- w })
	select {
	case <-got:
		return w.result()
	case <-ctx.Done():
	}
	w.cancel()
	<-got
	if d := &w.decision[0]; d.Reason == weir.ReasonCanceled {
		d.Reason = ended(ctx)
	}
	return w.result()
}

// enqueue asks for the permits of the one charge of a call, which was checked. The function is called exactly once, maybe before
// enqueue returns, and by any goroutine: it must not wait for anything.
func (o *Owner) enqueue(c *Call, done func(*waiter)) *waiter {
	charge, now := &c.Charges[0], time.Now()
	w := newWaiter(charge, charge.N, now.Add(o.options.WriteTimeout), done)
	if w.hold, w.counts = c.Ask.Hold, &o.counts; c.Ask.Wait > 0 && charge.Queue > 0 {
		w.waits, w.at = true, now.Add(c.Ask.Wait)
	}
	o.enter(w)
	return w
}

// mustContext refuses a nil context at the call, and not in another goroutine or once there is something to wait for.
func mustContext(ctx context.Context) {
	if ctx == nil {
		panic("weir: durable: nil context")
	}
}

var errFull = fmt.Errorf("%w: the owner of the limits keeps as many keys as it may", store.ErrUnavailable)

// bucket is that of a record, made if there is room, or even if it is one over. The error is errNotOwner or errFull.
func (o *Owner) bucket(name string, over bool) (*bucket, error) {
	o.mu.RLock()
	b, ended := o.buckets[name], o.ended
	o.mu.RUnlock()
	if b != nil && ended == 0 {
		return b, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended != 0 {
		return nil, errNotOwner
	}
	if b = o.buckets[name]; b == nil {
		for !over && len(o.buckets) >= o.options.MaxKeys {
			if !o.drop() {
				return nil, errFull
			}
		}
		b = &bucket{owner: o, name: name, revision: -1}
		o.buckets[name] = b
	}
	return b, nil
}

// noRoom is the decision about a charge whose key is not kept, as there is no room for it.
func (o *Owner) noRoom(c *store.Charge) weir.Decision {
	d := weir.Decision{Reason: weir.ReasonTableFull, RetryAfter: time.Second, Policy: c.Policy}
	if r, err := store.NewRecord(c.Limit, o.unix(time.Now(), c.Limit.Algorithm())); err == nil {
		if d.Limit, d.Remaining = r.Most(), r.Most(); c.N > r.Most() { // which is so whether it is kept or not
			d.Reason, d.RetryAfter = weir.ReasonNever, weir.Never
		}
	}
	return d
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

// depose ends the term because it has been lost: nothing is allowed any more, and waiting calls are refused as unavailable.
func (o *Owner) depose(why error) {
	first := o.finish(weir.ReasonUnavailable)
	o.cut()
	if first && o.options.Logger != nil {
		o.options.Logger.Warn("the term as owner of the limits was lost", "epoch", o.term.Epoch(), "error", why.Error())
	}
}

// finish refuses all requests, and reports whether that was the first time.
func (o *Owner) finish(why weir.Reason) bool {
	o.mu.Lock()
	if o.ended != 0 {
		o.mu.Unlock()
		return false
	}
	o.ended = why
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

// Stop ends the term. Waiting requests are refused with ReasonClosed, and what records are ahead is given back, until ctx or the
// term ends, as the term does where no majority can write. It can be called again.
func (o *Owner) Stop(ctx context.Context) error {
	first := o.finish(weir.ReasonClosed)
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
