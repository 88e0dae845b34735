// Package spectest is the suite that everything must pass that decides about durable limits: the owner, a node that is not the
// owner, or a process that asks over a network. It runs in real time, in less than 6 s, and in virtual time.
package spectest

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/store"
)

// Subject is what is tested.
type Subject struct {
	// Asked are asked in turns: at least one. Nodes must not re-queue.
	Asked []Asked
	// Again makes the owner end its term, by its own will or not, and returns what to ask from then on, once there is an owner
	// again. Default: nil, which leaves out the rows that need it.
	Again func(t *testing.T) []Asked
	// Reserve is that of the owner, 0 for its default, if Again ends terms as a crash does; -1 if the owner hands over. It counts
	// only where there is Again.
	Reserve int64
	// Fail makes writes fail, and work again. Default: nil, which leaves out the rows that need it.
	Fail func(fail bool)
	// Writes is how many transactions have been written. Default: nil, which leaves out the rows that need it.
	Writes func() int64
}

// Row is one requirement. Rows use keys of their own, so that all can run on one subject, one after the other.
type Row struct {
	Name string
	// Run tests it. Give it only a subject that has what it needs: see Needs.
	Run func(t *testing.T, s *Subject)
	// Needs reports whether the subject has what the row needs.
	Needs func(s *Subject) bool
}

// Run runs all rows for which the subject has what they need, as subtests. The subject is started once, and ends with t.
func Run(t *testing.T, start func(t *testing.T) Subject) {
	t.Helper()
	s := start(t)
	for _, r := range Rows() {
		if r.Needs(&s) {
			t.Run(r.Name, func(t *testing.T) { r.Run(t, &s) })
		}
	}
}

// Rows are all rows.
func Rows() []Row {
	always := func(*Subject) bool { return true }
	again := func(s *Subject) bool { return s.Again != nil }
	return []Row{
		{"ADeadlineThatHasPassedConsumesNothing", deadlinePassed, always},
		{"PermitsThatAreThereAreGranted", grantedAtOnce, always},
		{"KeysAreIndependent", independentKeys, always},
		{"AFullQueueRefuses", queueFull, always},
		{"WithoutAQueueTheFreeIsGranted", noQueue, always},
		{"TheOldestIsFirst", oldestFirst, always},
		{"NobodyOvertakes", nobodyOvertakes, always},
		{"EveryoneExpiresAtTheirOwnDeadline", ownDeadline, always},
		{"WhoeverHasExpiredLeavesRoom", expiredLeavesRoom, always},
		{"TheNextIsServedWhenTheHeadExpires", headExpires, always},
		{"TheNextIsServedWhenTheHeadGoesAway", headCanceled, always},
		{"MoreThanTheLimitIsNever", never, always},
		{"AProbeTakesNothing", probe, always},
		{"ASmallerLimitClamps", smallerLimit, always},
		{"ReservationsAreSettledOnce", reservations, always},
		{"WhatIsWrongIsNamed", settings, always},
		{"NoMoreThanTheRateIsGranted", neverMore, always},
		{"AFailedWriteGrantsNothing", failedWrite, func(s *Subject) bool { return s.Fail != nil }},
		{"AnIdleBucketWritesNothing", idleWritesNothing, func(s *Subject) bool { return s.Writes != nil }},
		{"GrantsSurviveTheOwner", grantsSurvive, again},
		{"ReservationsSurviveTheOwner", reservationsSurvive, again},
		{"WhoWaitsIsToldWhenTheOwnerGoes", waitersAreTold, again},
		{"ASmallerLimitClampsAfterwards", smallerAfterwards, again},
	}
}

const (
	slow = time.Hour // for a permit, so that none comes back during a test
	soon = 20 * time.Millisecond
	// slack is how late an answer may be on a machine that has much else to do.
	slack = time.Minute
)

// bench is one row at work: it asks the homes one after the other.
type bench struct {
	t     *testing.T
	s     *Subject
	turn  int
	limit weir.Limit
	key   string
}

func begin(t *testing.T, s *Subject, limit weir.Limit) *bench {
	t.Helper()
	return &bench{t: t, s: s, limit: limit, key: rand.Text()}
}

// every is a limit of one permit per interval, and so many at once.
func every(interval time.Duration, burst int64) weir.Limit {
	return weir.TokenBucket(weir.Per(1, interval), burst)
}

func (b *bench) ask(n int64, wait time.Duration) Request {
	return Request{
		Policy: "spec", Key: b.key, Limit: b.limit, N: n, Wait: wait, Queue: durable.DefaultQueueLimit,
	}
}

func (b *bench) next() Asked { //nolint:ireturn // there are several
	b.turn++
	return b.s.Asked[b.turn%len(b.s.Asked)]
}

// get asks and wants an outcome.
func (b *bench) get(r Request, outcome weir.Reason) Answer {
	b.t.Helper()
	a := Acquire(b.t.Context(), b.next(), r)
	b.want(a, outcome)
	return a
}

func (b *bench) want(a Answer, outcome weir.Reason) {
	b.t.Helper()
	if a.Reason != outcome || a.Allowed != (outcome == weir.ReasonNone) {
		b.t.Errorf("%v (%v), want %v", a.Reason, a.Err, outcome)
	}
}

// waits is a request that waits.
type waits struct {
	begin  time.Time
	done   chan struct{}
	cancel context.CancelFunc
	answer Answer
	took   time.Duration
}

// start asks without waiting for the answer.
func (b *bench) start(r Request) *waits {
	ctx, cancel := context.WithCancel(b.t.Context())
	w := &waits{begin: time.Now(), done: make(chan struct{}), cancel: cancel}
	who := b.next()
	go func() {
		defer close(w.done)
		w.answer = Acquire(ctx, who, r)
		w.took = time.Since(w.begin)
	}()
	return w
}

// end waits for an answer and wants an outcome.
func (b *bench) end(w *waits, outcome weir.Reason) {
	b.t.Helper()
	<-w.done
	w.cancel()
	b.want(w.answer, outcome)
}

// queued waits until so many permits are waited for, which shows by what does not fit behind them, or until a call has returned
// that may be one of those. It asks for all that there can be, so that it never gets any.
func (b *bench) queued(permits int64, brief ...*waits) {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		for _, w := range brief {
			select {
			case <-w.done:
				return
			default:
			}
		}
		r := b.ask(b.limit.Permits(), time.Millisecond)
		r.Queue = permits + r.N - 1
		switch a := Acquire(b.t.Context(), b.s.Asked[0], r); a.Reason {
		case weir.ReasonQueueFull:
			return
		case weir.ReasonDeadline:
		default:
			b.t.Fatalf("while the queue was to grow: %v (%v)", a.Reason, a.Err)
		}
	}
	b.t.Fatalf("the queue never had %d permits", permits)
}

// without asks until the owner knows that a caller has gone, and wants an outcome then. Another node does not wait for ever until
// the owner has heard that a request is withdrawn.
func (b *bench) without(r Request, before, outcome weir.Reason) {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; <-time.After(time.Millisecond) {
		if a := Acquire(b.t.Context(), b.next(), r); a.Reason != before || time.Now().After(deadline) {
			b.want(a, outcome)
			return
		}
	}
}

func deadlinePassed(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	for range s.Asked {
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		b.want(Acquire(ctx, b.next(), b.ask(1, time.Second)), weir.ReasonDeadline)
		cancel()
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		b.want(Acquire(ctx, b.next(), b.ask(1, time.Second)), weir.ReasonCanceled)
	}
	b.get(b.ask(5, 0), weir.ReasonNone)
}

func grantedAtOnce(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	for left := int64(4); left >= 0; left-- {
		a := b.get(b.ask(1, time.Minute), weir.ReasonNone)
		if !a.Allowed || a.Remaining != left || a.Limit != 5 {
			t.Errorf("%+v, want %d left", a.Decision, left)
		}
	}
	a := b.get(b.ask(1, 0), weir.ReasonLimited)
	if d := a.Decision; d.Allowed || d.RetryAfter <= slow-time.Minute || d.RetryAfter > slow || d.Reason != weir.ReasonLimited {
		t.Errorf("%+v", d)
	}
}

func independentKeys(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	b.get(b.ask(5, 0), weir.ReasonNone)
	other := b.ask(5, 0)
	other.Key += "/"
	b.get(other, weir.ReasonNone)
	other = b.ask(5, 0)
	other.Policy += "2"
	b.get(other, weir.ReasonNone)
	b.get(b.ask(1, 0), weir.ReasonLimited)
}

func queueFull(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	b.get(b.ask(5, 0), weir.ReasonNone)
	first, second := b.start(b.ask(2, time.Minute)), b.start(b.ask(2, time.Minute))
	b.queued(4)
	more := b.ask(1, soon)
	more.Queue = 4
	if a := b.get(more, weir.ReasonQueueFull); a.Reason != weir.ReasonQueueFull {
		t.Errorf("%+v", a.Decision)
	}
	second.cancel() // which makes room
	b.end(second, weir.ReasonCanceled)
	b.without(more, weir.ReasonQueueFull, weir.ReasonDeadline)
	first.cancel()
	b.end(first, weir.ReasonCanceled)
}

func noQueue(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	r := b.ask(1, time.Minute)
	r.Queue = 0
	var all []*waits
	for range 5 {
		all = append(all, b.start(r))
	}
	for _, w := range all {
		b.end(w, weir.ReasonNone)
	}
	b.get(r, weir.ReasonLimited)
}

// oldestFirst lets three wait for permits that are given back one after the other.
func oldestFirst(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	r := b.ask(1, 0)
	r.Hold = slow
	var held []store.Hold
	for range 3 {
		held = append(held, b.get(r, weir.ReasonNone).Hold)
	}
	b.get(b.ask(2, 0), weir.ReasonNone)
	var all []*waits
	for i := range held {
		all = append(all, b.start(b.ask(1, time.Minute)))
		b.queued(int64(i) + 1)
	}
	for i, w := range all {
		if err := b.next().Settle(t.Context(), held[i], nil); err != nil {
			t.Error(err)
		}
		b.end(w, weir.ReasonNone)
		for _, later := range all[i+1:] {
			select {
			case <-later.done:
				t.Errorf("%v behind number %d, for which alone a permit was there", later.answer.Reason, i)
			default:
			}
		}
	}
}

func nobodyOvertakes(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	b.get(b.ask(3, 0), weir.ReasonNone)
	head := b.start(b.ask(4, time.Minute))
	b.queued(4)
	b.get(b.ask(1, 0), weir.ReasonLimited)
	b.get(b.ask(1, soon), weir.ReasonDeadline)
	head.cancel()
	b.end(head, weir.ReasonCanceled)
	b.without(b.ask(2, 0), weir.ReasonLimited, weir.ReasonNone)
}

func ownDeadline(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	b.get(b.ask(5, 0), weir.ReasonNone)
	head := b.start(b.ask(1, time.Minute))
	b.queued(1)
	const wait = 150 * time.Millisecond
	short := b.start(b.ask(1, wait))
	b.end(short, weir.ReasonDeadline)
	if short.took < wait || short.took > wait+slack {
		t.Errorf("it expired after %v, want %v", short.took, wait)
	}
	if short.answer.Reason != weir.ReasonDeadline {
		t.Errorf("%+v", short.answer.Decision)
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon) // whichever comes first counts
	defer cancel()
	b.want(Acquire(ctx, b.next(), b.ask(1, time.Minute)), weir.ReasonDeadline)
	head.cancel()
	b.end(head, weir.ReasonCanceled)
}

func expiredLeavesRoom(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	b.get(b.ask(5, 0), weir.ReasonNone)
	r := b.ask(3, soon)
	r.Queue = 3
	b.get(r, weir.ReasonDeadline)
	live := b.ask(3, soon) // QueueFull if the one before were counted
	live.Queue = 3
	b.get(live, weir.ReasonDeadline)
}

func headExpires(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	b.get(b.ask(3, 0), weir.ReasonNone)
	head := b.start(b.ask(4, 250*time.Millisecond))
	b.queued(4, head)
	next := b.start(b.ask(2, time.Minute))
	b.end(head, weir.ReasonDeadline)
	b.end(next, weir.ReasonNone)
	if d := next.took; d > 250*time.Millisecond+slack {
		t.Errorf("it took %v", d)
	}
}

func headCanceled(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	b.get(b.ask(3, 0), weir.ReasonNone)
	head := b.start(b.ask(4, time.Minute))
	b.queued(4)
	next := b.start(b.ask(2, time.Minute))
	b.queued(6)
	head.cancel()
	b.end(head, weir.ReasonCanceled)
	b.end(next, weir.ReasonNone)
	b.get(b.ask(1, 0), weir.ReasonLimited)
}

func never(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	a := b.get(b.ask(6, time.Minute), weir.ReasonNever)
	if a.RetryAfter != weir.Never || a.Reason != weir.ReasonNever {
		t.Errorf("%+v", a.Decision)
	}
	b.get(b.ask(5, 0), weir.ReasonNone)
}

func probe(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	for range 10 {
		b.get(b.ask(0, 0), weir.ReasonNone)
	}
	b.get(b.ask(3, 0), weir.ReasonNone)
	w := b.start(b.ask(4, slow))
	b.queued(4)
	b.get(b.ask(0, 0), weir.ReasonNone) // it ignores those who wait
	b.get(b.ask(1, 0), weir.ReasonLimited)
	w.cancel()
	b.end(w, weir.ReasonCanceled)
	b.without(b.ask(2, 0), weir.ReasonLimited, weir.ReasonNone)
	b.get(b.ask(0, 0), weir.ReasonLimited)
	b.get(b.ask(0, soon), weir.ReasonDeadline)
}

func smallerLimit(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	b.get(b.ask(1, 0), weir.ReasonNone)
	b.limit = limits.WithPermits(b.limit, 2)
	b.get(b.ask(3, 0), weir.ReasonNever)
	b.get(b.ask(2, 0), weir.ReasonNone)
	b.get(b.ask(1, 0), weir.ReasonLimited)
	b.limit = limits.WithPermits(b.limit, 5) // what was clamped does not come back
	b.get(b.ask(1, 0), weir.ReasonLimited)
}

func reservations(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	r := b.ask(4, 0)
	r.Hold = slow
	a := b.get(r, weir.ReasonNone)
	if a.Hold.ID == "" || a.Hold.Charges[0].N != 4 {
		t.Errorf("%+v", a.Hold)
	}
	if err := b.next().Settle(t.Context(), a.Hold, []int64{1}); err != nil {
		t.Error(err)
	}
	for range s.Asked {
		if err := b.next().Settle(t.Context(), a.Hold, []int64{1}); !errors.Is(err, durable.ErrNotReserved) {
			t.Error(err)
		}
		if err := b.next().Settle(t.Context(), a.Hold, nil); !errors.Is(err, durable.ErrNotReserved) {
			t.Error(err)
		}
	}
	a = b.get(r, weir.ReasonNone)
	if err := b.next().Settle(t.Context(), a.Hold, nil); err != nil {
		t.Error(err)
	}
	b.get(b.ask(4, 0), weir.ReasonNone)
	b.get(b.ask(1, 0), weir.ReasonLimited)

	b = begin(t, s, every(slow, 5))
	r = b.ask(4, 0)
	r.Hold = soon
	a = b.get(r, weir.ReasonNone)
	b.get(b.ask(4, slack), weir.ReasonNone) // as it expires
	if err := b.next().Settle(t.Context(), a.Hold, []int64{1}); !errors.Is(err, durable.ErrNotReserved) {
		t.Error(err)
	}
}

func settings(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	wrong := map[string]func(r *Request){
		"no policy":      func(r *Request) { r.Policy = "" },
		"negative n":     func(r *Request) { r.N = -1 },
		"long wait":      func(r *Request) { r.Wait = store.MaxWait + time.Minute },
		"negative wait":  func(r *Request) { r.Wait = -1 },
		"negative queue": func(r *Request) { r.Queue = -1 },
		"no rate":        func(r *Request) { r.Limit = limits.WithRate(r.Limit, weir.Rate{}) },
		"negative burst": func(r *Request) { r.Limit = limits.WithPermits(r.Limit, -1) },
		"long reserve":   func(r *Request) { r.Hold = 25 * time.Hour },
	}
	for name, change := range wrong {
		r := b.ask(1, 0)
		change(&r)
		for _, who := range s.Asked {
			a := Acquire(t.Context(), who, r)
			if a.Reason != weir.ReasonUnavailable || a.Err == nil || errors.Is(a.Err, store.ErrUnavailable) {
				t.Errorf("%s: %v (%v)", name, a.Reason, a.Err)
			}
		}
	}
	b.get(b.ask(5, 0), weir.ReasonNone)
}

// neverMore: over any time no more than the burst and what has come back is granted, however many ask, whether they wait for as
// long as it takes or lose patience.
func neverMore(t *testing.T, s *Subject) {
	const interval, burst = 10 * time.Millisecond, 20
	b := begin(t, s, every(interval, burst))
	from := time.Now()
	var granted atomic.Int64
	goesOn := func() bool {
		since := time.Since(from)
		return since < 300*time.Millisecond || granted.Load() < burst && since < time.Minute
	}
	var work sync.WaitGroup
	for i := range 8 {
		who, wait := s.Asked[i%len(s.Asked)], soon
		if i%2 == 0 {
			wait = slack
		}
		work.Go(func() {
			for goesOn() {
				a := Acquire(t.Context(), who, b.ask(1, wait))
				switch a.Reason {
				case weir.ReasonNone:
					granted.Add(1)
				case weir.ReasonDeadline:
				default:
					t.Errorf("%v (%v)", a.Reason, a.Err)
					return
				}
			}
		})
	}
	work.Wait()
	if most := burst + int64(time.Since(from)/interval) + 1; granted.Load() > most || granted.Load() < burst {
		t.Errorf("%d were granted, want from %d to %d", granted.Load(), burst, most)
	}
}
