package store

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/limits"
)

// FallbackOptions configure what a [Fleet] does for charges of FailLocal while the store is unavailable.
type FallbackOptions struct {
	// MaxKeys is how many keys of policies are limited in this process at a time: see [MemoryOptions]. Default: 1,000,000.
	MaxKeys int
	// Grace is for how long, after the store is back, this process also limits charges of FailLocal to its share: until the other
	// processes have found that out, and told it what they allowed. From 1 ms to 1 h. Default: the Interval of the replicas, plus
	// the MaxCooldown of the breaker, plus a second: 8 s.
	Grace time.Duration
}

// FallbackStats count the charges that were decided without the store. Counters only grow.
type FallbackStats struct {
	// Closed is how many were refused, and Open how many were allowed, because of their Fail.
	Closed uint64 `json:"closed"`
	Open   uint64 `json:"open"`
	// LocalAllowed and LocalRefused are how many were decided in this process, to the limit divided by the replicas.
	LocalAllowed uint64 `json:"local_allowed"`
	LocalRefused uint64 `json:"local_refused"`
	// Keys is how many keys are limited in this process now.
	Keys int `json:"keys"`
	// Owed is how many of them have permits that the store has not been told of.
	Owed int `json:"owed"`
}

// fallback decides about charges without the store.
type fallback struct {
	ctx     context.Context // of calls of the memory: that of the caller may have ended, and they do not wait
	memory  *Memory
	maxKeys int
	live    func() int

	// owing is how many debts there are.
	owing                         atomic.Int64
	closed, open, allowed, denied atomic.Uint64

	lock      sync.Mutex // before that of the memory
	debts     map[recordKey]*debt
	charges   []Charge // those of FailLocal
	decisions []weir.Decision
}

func newFallback(o FallbackOptions, live func() int) (*fallback, error) {
	if o.MaxKeys == 0 {
		o.MaxKeys = defaultMaxKeys
	}
	memory, err := NewMemory(MemoryOptions{MaxKeys: o.MaxKeys})
	if wrong, ok := errors.AsType[*weir.OptionError](err); ok {
		return nil, &weir.OptionError{Option: "FallbackOptions.MaxKeys", Value: wrong.Value, Accepted: wrong.Accepted}
	}
	return &fallback{
		ctx: context.Background(), memory: memory, maxKeys: o.MaxKeys, live: live, debts: make(map[recordKey]*debt),
	}, nil
}

// The IDs of reservations that the store does not know begin with one of these.
const (
	localID = "weir-local:" // those of FailLocal are held in this process
	openID  = "weir-open:"  // those of FailOpen only, for which nothing was taken
)

// decide decides about charges as their Fail says. If one is refused, nothing is taken for the others. A client that is refused
// for want of the store may ask again after retry.
func (f *fallback) decide(ask Ask, charges []Charge, decisions []weir.Decision, retry time.Duration) (h Hold, err error) {
	if wrong := Check(ask, charges, decisions); wrong != nil {
		return Hold{}, wrong
	}
	takes := ask.Mode == ModeTake
	f.lock.Lock()
	defer f.lock.Unlock()
	closed := f.collect(charges, true)
	f.decisions = slices.Grow(f.decisions[:0], len(f.charges))[:len(f.charges)]
	defer clear(f.charges)
	if closed {
		ask = Ask{Mode: ModePeek}
	}
	if len(f.charges) > 0 {
		if h, err = f.memory.Do(f.ctx, ask, f.charges, f.decisions); err != nil {
			return Hold{}, err
		}
	}
	allowed := f.fill(charges, decisions, retry, takes)
	if !allowed || !takes {
		return Hold{}, nil
	}
	for i := range charges {
		if c := &charges[i]; c.Fail == FailLocal {
			f.owe(c, c.N)
		}
	}
	switch {
	case ask.Hold == 0:
	case len(f.charges) > 0:
		h = newReservation(localID+h.ID, charges, h.Expires)
	default:
		h = newReservation(openID+rand.Text(), charges, time.Now().Add(ask.Hold).UnixNano())
	}
	return h, nil
}

// collect has the charges of FailLocal in f.charges, with their limits divided: all, or those that have to pass. It reports
// whether one is to be refused.
func (f *fallback) collect(charges []Charge, all bool) (closed bool) {
	f.charges = f.charges[:0]
	for i := range charges {
		switch charges[i].Fail {
		case FailOpen:
		case FailLocal:
			c := charges[i]
			if !all && !sharedOut(&c) {
				continue
			}
			c.Limit = f.divide(c.Limit)
			f.charges = append(f.charges, c)
		default:
			closed = true
		}
	}
	return closed
}

// fill makes the decisions on all charges of those on f.charges, and reports whether all are allowed.
func (f *fallback) fill(charges []Charge, decisions []weir.Decision, retry time.Duration, counted bool) (allowed bool) {
	allowed = true
	local := 0
	for i := range charges {
		c, d, counter := &charges[i], &decisions[i], &f.closed
		t, _ := termsOf(c.Limit) // which was checked
		switch c.Fail {
		case FailOpen:
			counter = &f.open
			*d = weir.Decision{Allowed: true, Limit: t.most, Remaining: t.most - c.N, Policy: c.Policy}
		case FailLocal:
			*d = f.decisions[local]
			local++
			if counter = &f.denied; d.Allowed {
				counter = &f.allowed
			}
			onlyNow(d, c, t, retry)
		default:
			*d = weir.Decision{Reason: weir.ReasonUnavailable, Limit: t.most, RetryAfter: retry, Policy: c.Policy}
		}
		if c.N > t.most { // this is known without the store
			*d = weir.Decision{Reason: weir.ReasonNever, Limit: t.most, RetryAfter: weir.Never, Policy: c.Policy}
		}
		allowed = allowed && d.Allowed
		if counted {
			counter.Add(1)
		}
	}
	if !allowed {
		nothingOpen(charges, decisions)
	}
	return allowed
}

// divide is the limit of one process. The fallback must be locked.
func (f *fallback) divide(l weir.Limit) weir.Limit {
	if live := f.live(); live > 1 {
		return dividedLimit(l, int64(live))
	}
	return l
}

// dividedLimit is a limit that by processes together keep to about l: permits are rounded down, but to at least one, and the
// rate of a token bucket is exact as long as its period does not have to be longer than any may be.
func dividedLimit(l weir.Limit, by int64) weir.Limit {
	share := func(n int64) int64 { return max(n/by, 1) }
	permits, rate := share(l.Permits()), l.Rate()
	if l.Algorithm() != weir.AlgorithmTokenBucket {
		return limits.WithPermits(l, permits)
	}
	switch {
	case rate.Permits%by == 0:
		rate.Permits /= by
	case int64(rate.Period) <= int64(algo.MaxPeriod)/by:
		rate.Period *= time.Duration(by)
	default:
		rate.Permits = share(rate.Permits)
	}
	return weir.TokenBucket(rate, permits)
}

// refund gives permits back in this process, and the store is not told of them.
func (f *fallback) refund(charges []Charge) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.collect(charges, true)
	defer clear(f.charges)
	_ = Refund(f.ctx, f.memory, f.charges) // fails after Close only
	f.forgive()
}

// undo undoes a decide that has taken permits at a time of the memory or later: what can have come back since, it does not give
// back.
func (f *fallback) undo(charges []Charge, since int64) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.collect(charges, true)
	defer clear(f.charges)
	for i := range f.charges {
		c := &f.charges[i]
		key := c.recordKey()
		before := f.memory.lacking(key)
		f.takeBack(i, since)
		c.N = min(c.N, before-f.memory.lacking(key)) // the rest has come back, and any debt is of others
	}
	f.forgive()
}

// giveBack gives back f.charges as far as they have not come back since a time of the memory. The fallback must be locked.
func (f *fallback) giveBack(since int64) {
	for i := range f.charges {
		f.takeBack(i, since)
	}
}

// takeBack gives back a charge of f.charges as a loan of which nothing was spent. The fallback must be locked.
func (f *fallback) takeBack(i int, since int64) {
	_ = f.memory.Settle(f.ctx, Hold{Charges: f.charges[i : i+1], Taken: since}, nil) // fails after Close only
}

// forgive has the store not told of f.charges. The fallback must be locked.
func (f *fallback) forgive() {
	for i := range f.charges {
		c := &f.charges[i]
		if d := f.debts[c.recordKey()]; d != nil {
			d.charge.N = max(d.charge.N-c.N, 0)
		}
	}
}

// passes takes what charges of FailLocal need from the share of this process, before the store is asked. If that is not there,
// nothing is taken and the decisions say so; retry is after how long the share does not count any more. Permits of
// concurrency limits pass.
func (f *fallback) passes(charges []Charge, decisions []weir.Decision, retry time.Duration) (ok bool, err error) {
	if err := Check(Ask{Mode: ModePeek}, charges, decisions); err != nil {
		return false, err
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	f.collect(charges, false)
	defer clear(f.charges)
	if len(f.charges) == 0 {
		return true, nil
	}
	f.decisions = slices.Grow(f.decisions[:0], len(f.charges))[:len(f.charges)]
	if err := Take(f.ctx, f.memory, f.charges, f.decisions); err != nil || allGranted(f.decisions) {
		return err == nil, err
	}
	local := 0
	for i := range charges {
		c, d := &charges[i], &decisions[i]
		t, _ := termsOf(c.Limit) // which was checked
		if !sharedOut(c) {
			*d = weir.Decision{Allowed: true, Limit: t.most, Policy: c.Policy}
			continue
		}
		*d = f.decisions[local]
		local++
		onlyNow(d, c, t, retry)
	}
	f.denied.Add(1)
	return false, nil
}

// sharedOut reports whether a charge has to pass.
func sharedOut(c *Charge) bool {
	return c.Fail == FailLocal && c.N > 0 && c.Limit.Algorithm() != weir.AlgorithmConcurrency
}

// onlyNow corrects the decision on a charge that asks for more than a share of the limit: it can be allowed after retry.
func onlyNow(d *weir.Decision, c *Charge, t *terms, retry time.Duration) {
	if d.Reason == weir.ReasonNever && c.N <= t.most {
		d.Reason, d.RetryAfter = weir.ReasonUnavailable, retry
	}
}

// unpass undoes a passes that was called at a time of the memory or later.
func (f *fallback) unpass(charges []Charge, since int64) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.collect(charges, false)
	defer clear(f.charges)
	f.giveBack(since)
}

// debit takes what was taken elsewhere, if all charges are of FailLocal.
func (f *fallback) debit(charges []Charge, decisions []weir.Decision) (ok bool, err error) {
	for i := range charges {
		if charges[i].Fail != FailLocal {
			return false, nil
		}
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	f.collect(charges, true)
	defer clear(f.charges)
	if failed := Debit(f.ctx, f.memory, f.charges, decisions); failed != nil {
		return true, failed
	}
	for i := range charges {
		f.owe(&charges[i], charges[i].N)
	}
	return true, nil
}

// settle ends a reservation that the store does not know, with what it cost or, if actual is nil, as if nothing had been taken.
// ok is false for those that the store knows.
func (f *fallback) settle(ctx context.Context, h Hold, actual []int64) (ok bool, err error) {
	id, local := strings.CutPrefix(h.ID, localID)
	if !local {
		if ok = strings.HasPrefix(h.ID, openID); ok {
			err = CheckSettle(h, actual)
		}
		return ok, err
	}
	h.ID = id
	f.lock.Lock()
	defer f.lock.Unlock()
	if failed := f.memory.Settle(ctx, h, actual); failed != nil {
		return true, failed
	}
	for i, n := range actual {
		if c := &h.Charges[i]; c.Fail == FailLocal && n > c.N {
			f.owe(c, n-c.N)
		}
	}
	return true, nil
}

// reset makes all permits of keys available.
func (f *fallback) reset(charges []Charge) {
	f.lock.Lock()
	defer f.lock.Unlock()
	_, _ = f.memory.Do(f.ctx, Ask{Mode: ModeReset}, charges, nil) // the names were checked
	for _, key := range recordKeys(charges) {
		f.drop(key)
	}
}

func (f *fallback) stats() FallbackStats {
	return FallbackStats{
		Closed: f.closed.Load(), Open: f.open.Load(), LocalAllowed: f.allowed.Load(), LocalRefused: f.denied.Load(),
		Keys: f.memory.Len(), Owed: int(f.owing.Load()),
	}
}

// debt is what was taken for a key without the store, which has not been told. It is never more than what is lacking in the
// memory of the fallback: permits that have come back there have come back in the store.
type debt struct {
	charge  Charge // with the limit that is not divided, and N as what was taken
	telling *telling
	alone   bool // the store could not be told of it with others
}

// telling is a call that tells the store of debts.
type telling struct {
	done chan struct{}
	err  error
}

// claim is a debt that one caller tells the store of.
type claim struct {
	key    recordKey
	charge Charge // with N as what is owed
	taken  int64  // what it took
	alone  bool   // the store is told of it in a call of its own
}

// owe says that the store must be told that n permits of a charge were taken. The fallback must be locked.
func (f *fallback) owe(c *Charge, n int64) {
	if n == 0 || c.Limit.Algorithm() == weir.AlgorithmConcurrency { // what is out there, is until it is settled here
		return
	}
	d := f.debts[c.recordKey()]
	if d == nil {
		f.pruneSome(2)
		if len(f.debts) >= f.maxKeys+f.maxKeys/4+64 { // more than can be limited
			f.pruneSome(len(f.debts))
		}
		d = &debt{}
		f.debts[c.recordKey().clone()] = d
		f.owing.Add(1)
	}
	n = min(d.charge.N+n, algo.MaxPermits)
	d.charge = *c
	d.charge.Policy, d.charge.Key, d.charge.N = "", "", n // the names are those of the caller
}

// owed is how much of a debt is left. The fallback must be locked.
func (f *fallback) owed(key recordKey, d *debt) int64 {
	if d.charge.N == 0 {
		return 0
	}
	return min(d.charge.N, f.memory.lacking(key))
}

// drop forgets a debt. The fallback must be locked.
func (f *fallback) drop(key recordKey) {
	if _, ok := f.debts[key]; ok {
		delete(f.debts, key)
		f.owing.Add(-1)
	}
}

// pruneSome looks at as many debts and drops those of which nothing is left. The fallback must be locked.
func (f *fallback) pruneSome(n int) {
	for key, d := range f.debts {
		if n--; n < 0 {
			return
		}
		if d.telling == nil && f.owed(key, d) == 0 {
			f.drop(key)
		}
	}
}

// prune is pruneSome.
func (f *fallback) prune(n int) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.pruneSome(n)
}

// claim takes on what is owed of the keys of charges. If another call is telling the store of one, it returns that, and takes
// on nothing.
func (f *fallback) claim(charges []Charge) (claims []claim, mine, other *telling) {
	f.lock.Lock()
	defer f.lock.Unlock()
	for i := range charges {
		if d := f.debts[charges[i].recordKey()]; d != nil && d.telling != nil {
			return nil, nil, d.telling
		}
	}
	mine = &telling{done: make(chan struct{})}
	for i := range charges {
		key := charges[i].recordKey()
		if d := f.debts[key]; d != nil {
			claims = f.take(claims, key, d, mine)
		}
	}
	return claims, mine, nil
}

// claimSome takes on what is owed of as many keys as a request may have, whichever they are; or of one of which the store is told
// in a call of its own, as requests for all keys that are taken on wait until all are told.
func (f *fallback) claimSome() (claims []claim, mine *telling) {
	f.lock.Lock()
	defer f.lock.Unlock()
	mine = &telling{done: make(chan struct{})}
	looked := 0
	for key, d := range f.debts {
		if looked++; len(claims) == MostCharges || looked > 4*MostCharges {
			break
		}
		if d.telling != nil || d.alone && len(claims) > 0 {
			continue
		}
		if claims = f.take(claims, key, d, mine); len(claims) == 1 && claims[0].alone {
			break
		}
	}
	return claims, mine
}

// take takes on a debt, or drops it if nothing is left of it.
func (f *fallback) take(claims []claim, key recordKey, d *debt, mine *telling) []claim {
	n := f.owed(key, d)
	if n == 0 {
		f.drop(key)
		return claims
	}
	d.telling = mine
	c := claim{key, d.charge, d.charge.N, d.alone}
	c.charge.Policy, c.charge.Key, c.charge.N = key.policy, key.key, n
	return append(claims, c)
}

// told ends claims of which the store was told, unless err says that it was not.
func (f *fallback) told(claims []claim, err error) {
	_, never := errors.AsType[*weir.OptionError](err) // it cannot be told, ever
	never = never || len(claims) == 1 && errors.Is(err, ErrUnreadable)
	f.lock.Lock()
	defer f.lock.Unlock()
	for i := range claims {
		c := &claims[i]
		d := f.debts[c.key]
		if d == nil { // it was reset meanwhile
			continue
		}
		d.telling = nil
		if d.alone = err != nil; err == nil {
			d.charge.N = max(d.charge.N-c.taken, 0)
		}
		if never || d.charge.N == 0 {
			f.drop(c.key)
		}
	}
}

// lacking is how many permits of a key are taken and have not come back, debt included.
func (m *Memory) lacking(key recordKey) int64 {
	m.lock.Lock()
	defer m.lock.Unlock()
	e := m.keys[key]
	if e == nil {
		return 0
	}
	e.ready(m.now(), nil)
	most := e.terms.most
	n := most - e.peek(0).Remaining
	if n < most {
		return n
	}
	c := e.clone()
	c.refund(most)
	return n + most - c.peek(0).Remaining
}
