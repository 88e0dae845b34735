package policy

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/store"
)

// waitFor decides on a request whose caller may wait.
func (e *Engine) waitFor(ctx context.Context, r *Request, a ask, v *Verdict) error {
	if ctx == nil {
		panic("weir: policy: nil context")
	}
	one := [1]*Request{r}
	e.decide(ctx, one[:], a, v)
	return v.refusal(ctx, r)
}

// refusal is the error of a call that may wait, nil if its request is allowed.
func (v *Verdict) refusal(ctx context.Context, r *Request) error {
	if v.Allowed || v.work.gone != nil {
		return v.work.gone
	}
	e := &weir.RefusedError{Decision: v.Decision(), Permits: r.cost()}
	if r.Named != nil {
		e.Permits = r.Named.Cost
	}
	var p *Part
	if v.Binding >= 0 && v.Binding < len(v.Parts) {
		p = &v.Parts[v.Binding]
		e.Permits = p.Cost
	}
	e.Decision.Allowed = false
	switch reason := e.Decision.Reason; {
	case reason == weir.ReasonClosed:
		e.Err = weir.ErrClosed
	case p == nil && v.Unknown(0):
		e.Err = noPolicy(string(r.Named.Policy))
	case p == nil && reason != weir.ReasonDenied && reason != weir.ReasonOverloaded && v.why() != nil:
		e.Err = v.why()
	case reason == weir.ReasonUnavailable:
		e.Err = store.ErrUnavailable
	case reason == weir.ReasonDeadline || reason == weir.ReasonCanceled:
		e.Err = ctx.Err() // if it has ended by now
	case reason == weir.ReasonLimited && p != nil && p.Policy != nil && p.Policy.QueueLimit == 0:
		e.Decision.Reason, e.Err = weir.ReasonQueueFull, weir.ErrNoQueue
	}
	return e
}

// why returns what could not be told of the request, and refuses it; nil if all could.
func (v *Verdict) why() error {
	for i := range v.work.items {
		if it := &v.work.items[i]; it.barred() {
			return it.failed
		}
	}
	return nil
}

// patience is how long a request waits, and for what.
type patience struct {
	longest time.Duration
	owner   bool            // of the cluster
	asked   context.Context //nolint:containedctx // of the calls of a store: it may end later than the waiting
}

// wait is take for a caller that may wait. It begins anew, under the set in force, when an override or a reload wakes the
// request, and has decided nothing if no limit is left then, or something cannot be told.
func (e *Engine) wait(ctx context.Context, requests []*Request, reserve bool, v *Verdict) error {
	w := &v.work
	asked := requests[0].Context //nolint:contextcheck // the caller has set it for this
	if asked == nil {
		asked = ctx
	}
	longest, queue, owner := w.longest()
	shared := len(w.sharing.asked) > 0
	if !queue && !isCanceled(ctx) && (!shared || asked.Err() == nil) {
		if shared {
			beside, end := askedBeside(ctx, asked)
			defer end()
			asked = beside
		}
		return e.take(asked, v, reserve)
	}
	for began := time.Now(); ; {
		woken, err := e.waitOnce(ctx, v, reserve, patience{max(longest-time.Since(began), 0), owner, asked})
		if err != nil || !woken {
			return err
		}
		v.find(e.live.Load(), requests, nil)
		if v.failed() || len(v.Parts) == 0 {
			return nil
		}
		if longest, queue, owner = w.longest(); !queue {
			longest, owner = 0, false
		}
	}
}

// waitOnce waits for all limits, and returns true if another one holds for some key now. The error is that of ctx, if it was
// canceled.
func (e *Engine) waitOnce(ctx context.Context, v *Verdict, reserve bool, f patience) (woken bool, err error) {
	w := &v.work
	w.owed = w.owed || reserve
	shared := len(w.sharing.asked) > 0
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	by := &waiter{cancel: cancel}
	w.register(by)
	defer w.unregister()
	if e.live.Load() != w.snapshot {
		return true, nil // a reload that has not seen this request
	}
	began := time.Now()
	err = e.waitLocal(inner, v, shared || reserve, f)
	switch {
	case err == nil && shared:
		most := time.Duration(0)
		if f.owner {
			most = max(f.longest-time.Since(began), 0)
			if until, ok := ctx.Deadline(); ok {
				most = max(min(most, time.Until(until)), 0)
			}
		}
		asked, end := askedBeside(inner, f.asked)
		err = e.takeStored(asked, v, reserve, most)
		end()
		switch {
		case err != nil && by.woken.Load() && !isCanceled(ctx):
			return true, nil
		case err != nil:
			return false, err
		}
	case err == nil:
		v.settleLocal()
	case by.woken.Load() && ctx.Err() == nil:
		return true, nil
	case ctx.Err() == nil && e.closed.Load():
		v.giveUp(weir.ReasonClosed, weir.Never)
	case ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded):
		v.tooLate()
	default:
		v.giveUp(weir.ReasonCanceled, 0)
		return false, err
	}
	return false, nil
}

// askedBeside is the context of calls of a store: it ends with its own parent, and when the one that waits is canceled, but not
// by the deadline of that.
func askedBeside(waits, parent context.Context) (context.Context, context.CancelFunc) {
	if parent == waits {
		return parent, func() {}
	}
	asked, cancel := context.WithCancel(parent)
	stop := context.AfterFunc(waits, func() {
		if isCanceled(waits) {
			cancel()
		}
	})
	return asked, func() {
		stop()
		cancel()
	}
}

// longest is how long a request waits at most, whether there is a queue at all, and whether there is one of the owner of the
// cluster.
func (w *work) longest() (longest time.Duration, queue, owner bool) {
	longest = mostWait
	for i := range w.items {
		if it := &w.items[i]; it.first >= 0 && it.policy.queue {
			longest, queue, owner = min(longest, it.policy.maxWait), true, owner || it.policy.durable
		}
	}
	return longest, queue, owner
}

// waitLocal waits for the limits of this process.
func (e *Engine) waitLocal(ctx context.Context, v *Verdict, reserve bool, f patience) (err error) {
	w := &v.work
	shared := len(w.sharing.asked) > 0
	if w.charged == 0 {
		if shared && f.asked.Err() == nil && !isCanceled(ctx) {
			return nil // nothing was asked yet, so the time is not up
		}
		return ctx.Err()
	}
	bounded, cancel := context.WithTimeout(ctx, f.longest)
	defer cancel()
	defer context.AfterFunc(e.ending, cancel)() //nolint:contextcheck // it is not that of the request
	v.addCharges(false)
	var binding int
	w.leases, binding, err = w.step.WaitAll(bounded, w.leases[:0], reserve)
	v.fillLocal()
	v.Binding = v.partOfLocal(binding)
	if errors.Is(err, weir.ErrRefused) {
		v.tellNoQueue()
		return nil // the parts say so
	}
	late := err != nil && errors.Is(bounded.Err(), context.DeadlineExceeded)
	if late && (!shared || f.asked.Err() == nil) && v.lastTry(e, reserve) {
		return nil
	}
	return err
}

// tellNoQueue makes the refusals of policies without a queue those that they are where no policy has one: a client cannot know
// that its request could have waited. The error of the call has ReasonQueueFull.
func (v *Verdict) tellNoQueue() {
	for i := range v.Parts {
		if p := &v.Parts[i]; p.Decision.Reason == weir.ReasonQueueFull && p.Policy.QueueLimit == 0 {
			p.Decision.Reason = weir.ReasonLimited
		}
	}
}

// lastTry takes what is there for a caller that is out of time. On a busy machine that may be so before anything was tried. It
// reports whether that was everything.
func (v *Verdict) lastTry(e *Engine, reserve bool) bool {
	w, waited := &v.work, v.Binding
	v.addCharges(false)
	if !v.Parts[v.partOfLocal(w.step.Peek())].Decision.Allowed {
		return false
	}
	if v.takeLocal(e, reserve); !v.Parts[v.Binding].Decision.Allowed {
		v.Binding = waited
		return false
	}
	return true
}

// giveUp refuses for a reason that has nothing to do with the permits.
func (v *Verdict) giveUp(why weir.Reason, retryAfter time.Duration) {
	v.look()
	v.work.sharing.skipped = len(v.work.sharing.asked) > 0
	v.Allowed = false
	d := &v.Parts[v.Binding].Decision
	d.Allowed, d.Reason, d.RetryAfter = false, why, retryAfter
}

// tooLate is the answer when the time was up before the permits came.
func (v *Verdict) tooLate() {
	waited := v.Binding
	v.look()
	v.work.sharing.skipped = len(v.work.sharing.asked) > 0
	if v.Binding >= 0 && v.Parts[v.Binding].Decision.Allowed {
		v.Binding = max(waited, 0) // permits came a moment too late
		v.Parts[v.Binding].Decision.RetryAfter = 1
	}
	v.Allowed = false
	d := &v.Parts[v.Binding].Decision
	d.Allowed = false
	if d.Reason == weir.ReasonNone || d.Reason == weir.ReasonLimited {
		d.Reason = weir.ReasonDeadline
	}
}

// waiting are the requests that wait for keys of a policy, for which other limits may begin to apply.
type waiting struct {
	mu    sync.Mutex
	items map[*item]waitingItem
}

type waitingItem struct {
	key []byte
	by  *waiter
}

// waiter is a request that waits.
type waiter struct {
	woken  atomic.Bool
	cancel context.CancelFunc
}

func (w *waiter) wake() {
	w.woken.Store(true)
	w.cancel()
}

// add adds what a request waits for. It wakes the request if another limit applies to the key since it was gathered.
func (a *waiting) add(it *item, key []byte, by *waiter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.items == nil {
		a.items = map[*item]waitingItem{}
	}
	a.items[it] = waitingItem{key, by}
	if x := it.policy.overrides.of(key); x != it.override && (it.policy.shared || x != nil && x.Unlimited) {
		by.wake()
	}
}

func (a *waiting) remove(it *item) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.items, it)
}

// reload makes the set in force hold for requests that wait: where the limits of their keys are the same states as before, under
// other parameters, those take effect in the place that each request has in the queue. Other requests are woken, and decided
// on anew under the new set.
func (e *Engine) reload(old, now *snapshot) {
	for i := range old.live {
		old.live[i].waiting.reload(now)
	}
}

func (a *waiting) reload(now *snapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var peeked []weir.Decision
	for it, waits := range a.items {
		charges, ok := it.reloaded(now, waits.key)
		if !ok {
			waits.by.wake()
		} else if len(charges) > 0 {
			peeked, _ = keyset.PeekAll(peeked[:0], charges...) // which holds the key to the limits from now on
		}
	}
}

// reloaded returns charges of nothing under the limits that apply to a key of a set that has been loaded since the item was
// gathered. It returns false if the request has to be decided on anew.
func (it *item) reloaded(now *snapshot, key []byte) (charges []keyset.Charge, ok bool) {
	was := it.policy
	p := now.policy(was.Name)
	if p == nil {
		return nil, false
	}
	if p.Mode != was.Mode || p.Parent != was.Parent || (p.LimitBy == nil) != (was.LimitBy == nil) {
		return nil, false
	}
	x, known := it.under(p, key)
	switch {
	case was.shared:
		return nil, was.samePlaces(p) && (it.override != nil || known && slices.Equal(it.variant.limits, x.limits))
	case !known || p.shared || !slices.EqualFunc(was.limits, p.limits, func(a, b liveLimit) bool { return a.state == b.state }):
		return nil, false
	}
	for i := range p.limits {
		charges = append(charges, keyset.Charge{Limiter: p.limits[i].state.limiter, Key: string(key), Plan: x.plans[i]})
	}
	return charges, true
}

// under returns the limits that an item has under another set. It returns false if that is not known without the request.
func (it *item) under(p *livePolicy, key []byte) (x *variant, known bool) {
	was := it.policy
	if p.LimitBy != nil && it.variant != &was.usual && it.variant != was.keys[string(key)] {
		return it.variant, true // the request brought them
	}
	if own := p.keys[string(key)]; own != nil {
		return own, true
	}
	if p.TierBy == nil && was.TierBy == nil {
		return &p.usual, true
	}
	for name, tier := range was.tiers {
		if tier == it.variant {
			x = p.tiers[name]
			return x, x != nil
		}
	}
	return &p.usual, it.variant == &was.usual && sameNames(was.tiers, p.tiers)
}

func sameNames(a, b map[string]*variant) bool {
	for name := range a {
		if _, has := b[name]; !has {
			return false
		}
	}
	return len(a) == len(b)
}

// wake wakes the calls that wait for a key.
func (a *waiting) wake(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, it := range a.items {
		if string(it.key) == key {
			it.by.wake()
		}
	}
}

// register registers a request that waits, until it is unregistered.
func (w *work) register(by *waiter) {
	for i := range w.items {
		if it := &w.items[i]; it.first >= 0 {
			it.policy.waiting.add(it, w.key(it), by)
		}
	}
}

func (w *work) unregister() {
	for i := range w.items {
		if it := &w.items[i]; it.first >= 0 {
			it.policy.waiting.remove(it)
		}
	}
}
