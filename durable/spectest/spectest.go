// Package spectest is how durable limits must behave, for all that can be asked: the owner, a node that is not the owner, or a
// process that asks over a network. It runs in real time, in less than 6 s, and in virtual time.
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

// Asked can be asked for permits: a *durable.Owner, or a *durable.Node.
type Asked interface {
	Acquire(ctx context.Context, r durable.Request) durable.Answer
	Commit(ctx context.Context, r durable.Reservation, actual int64) error
	Cancel(ctx context.Context, r durable.Reservation) error
}

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

// bench is one row at work: it asks one after the other of those who can be asked.
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

func (b *bench) ask(n int64, wait time.Duration) durable.Request {
	return durable.Request{
		Policy: "spec", Key: b.key, Limit: b.limit, N: n, Wait: wait, QueueLimit: durable.DefaultQueueLimit,
	}
}

func (b *bench) next() Asked { //nolint:ireturn // there are several
	b.turn++
	return b.s.Asked[b.turn%len(b.s.Asked)]
}

// get asks and wants an outcome.
func (b *bench) get(r durable.Request, outcome durable.Outcome) durable.Answer {
	b.t.Helper()
	a := b.next().Acquire(b.t.Context(), r)
	b.want(a, outcome)
	return a
}

func (b *bench) want(a durable.Answer, outcome durable.Outcome) {
	b.t.Helper()
	if a.Outcome != outcome {
		b.t.Errorf("%v (%v), want %v", a.Outcome, a.Err, outcome)
	}
}

// waits is a request that waits.
type waits struct {
	begin  time.Time
	done   chan struct{}
	cancel context.CancelFunc
	answer durable.Answer
	took   time.Duration
}

// start asks without waiting for the answer.
func (b *bench) start(r durable.Request) *waits {
	ctx, cancel := context.WithCancel(b.t.Context())
	w := &waits{begin: time.Now(), done: make(chan struct{}), cancel: cancel}
	who := b.next()
	go func() {
		defer close(w.done)
		w.answer = who.Acquire(ctx, r)
		w.took = time.Since(w.begin)
	}()
	return w
}

// end waits for an answer and wants an outcome.
func (b *bench) end(w *waits, outcome durable.Outcome) {
	b.t.Helper()
	<-w.done
	w.cancel()
	b.want(w.answer, outcome)
}

// queued waits until so many permits are waited for, which shows by what does not fit behind them, or until somebody has been
// answered who may be before. It asks for all that there can be, so that it never gets any.
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
		r.QueueLimit = permits + r.N - 1
		switch a := b.s.Asked[0].Acquire(b.t.Context(), r); a.Outcome {
		case durable.QueueFull:
			return
		case durable.Expired:
		default:
			b.t.Fatalf("while the queue was to grow: %v (%v)", a.Outcome, a.Err)
		}
	}
	b.t.Fatalf("the queue never had %d permits", permits)
}

// without asks until the owner knows that somebody has gone, and wants an outcome then. Another node does not wait for ever until
// the owner has heard that a request is withdrawn.
func (b *bench) without(r durable.Request, before, outcome durable.Outcome) {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; <-time.After(time.Millisecond) {
		if a := b.next().Acquire(b.t.Context(), r); a.Outcome != before || time.Now().After(deadline) {
			b.want(a, outcome)
			return
		}
	}
}

func deadlinePassed(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	for range s.Asked {
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		b.want(b.next().Acquire(ctx, b.ask(1, time.Second)), durable.Expired)
		cancel()
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		b.want(b.next().Acquire(ctx, b.ask(1, time.Second)), durable.Canceled)
	}
	b.get(b.ask(5, 0), durable.Granted)
}

func grantedAtOnce(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	for left := int64(4); left >= 0; left-- {
		a := b.get(b.ask(1, time.Minute), durable.Granted)
		if !a.Decision.Allowed || a.Decision.Remaining != left || a.Decision.Limit != 5 {
			t.Errorf("%+v, want %d left", a.Decision, left)
		}
	}
	a := b.get(b.ask(1, 0), durable.Refused)
	if d := a.Decision; d.Allowed || d.RetryAfter <= slow-time.Minute || d.RetryAfter > slow || d.Reason != weir.ReasonLimited {
		t.Errorf("%+v", d)
	}
}

func independentKeys(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	b.get(b.ask(5, 0), durable.Granted)
	other := b.ask(5, 0)
	other.Key += "/"
	b.get(other, durable.Granted)
	other = b.ask(5, 0)
	other.Policy += "2"
	b.get(other, durable.Granted)
	b.get(b.ask(1, 0), durable.Refused)
}

func queueFull(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	b.get(b.ask(5, 0), durable.Granted)
	first, second := b.start(b.ask(2, time.Minute)), b.start(b.ask(2, time.Minute))
	b.queued(4)
	more := b.ask(1, soon)
	more.QueueLimit = 4
	if a := b.get(more, durable.QueueFull); a.Decision.Reason != weir.ReasonQueueFull {
		t.Errorf("%+v", a.Decision)
	}
	second.cancel() // which makes room
	b.end(second, durable.Canceled)
	b.without(more, durable.QueueFull, durable.Expired)
	first.cancel()
	b.end(first, durable.Canceled)
}

func noQueue(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	r := b.ask(1, time.Minute)
	r.QueueLimit = 0
	var all []*waits
	for range 5 {
		all = append(all, b.start(r))
	}
	for _, w := range all {
		b.end(w, durable.Granted)
	}
	b.get(r, durable.QueueFull)
}

// oldestFirst lets three wait for permits that are given back one after the other.
func oldestFirst(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	r := b.ask(1, 0)
	r.Reserve = slow
	var held []durable.Reservation
	for range 3 {
		held = append(held, b.get(r, durable.Granted).Reservation)
	}
	b.get(b.ask(2, 0), durable.Granted)
	var all []*waits
	for i := range held {
		all = append(all, b.start(b.ask(1, time.Minute)))
		b.queued(int64(i) + 1)
	}
	for i, w := range all {
		if err := b.next().Cancel(t.Context(), held[i]); err != nil {
			t.Error(err)
		}
		b.end(w, durable.Granted)
		for _, later := range all[i+1:] {
			select {
			case <-later.done:
				t.Errorf("%v behind number %d, for which alone a permit was there", later.answer.Outcome, i)
			default:
			}
		}
	}
}

func nobodyOvertakes(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	b.get(b.ask(3, 0), durable.Granted)
	head := b.start(b.ask(4, time.Minute))
	b.queued(4)
	b.get(b.ask(1, 0), durable.Refused)
	b.get(b.ask(1, soon), durable.Expired)
	head.cancel()
	b.end(head, durable.Canceled)
	b.without(b.ask(2, 0), durable.Refused, durable.Granted)
}

func ownDeadline(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	b.get(b.ask(5, 0), durable.Granted)
	head := b.start(b.ask(1, time.Minute))
	b.queued(1)
	const wait = 150 * time.Millisecond
	short := b.start(b.ask(1, wait))
	b.end(short, durable.Expired)
	if short.took < wait || short.took > wait+slack {
		t.Errorf("it expired after %v, want %v", short.took, wait)
	}
	if short.answer.Decision.Reason != weir.ReasonDeadline {
		t.Errorf("%+v", short.answer.Decision)
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon) // whichever comes first counts
	defer cancel()
	b.want(b.next().Acquire(ctx, b.ask(1, time.Minute)), durable.Expired)
	head.cancel()
	b.end(head, durable.Canceled)
}

func expiredLeavesRoom(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	b.get(b.ask(5, 0), durable.Granted)
	r := b.ask(3, soon)
	r.QueueLimit = 3
	b.get(r, durable.Expired)
	live := b.ask(3, soon) // QueueFull if the one before were counted
	live.QueueLimit = 3
	b.get(live, durable.Expired)
}

func headExpires(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	b.get(b.ask(3, 0), durable.Granted)
	head := b.start(b.ask(4, 250*time.Millisecond))
	b.queued(4, head)
	next := b.start(b.ask(2, time.Minute))
	b.end(head, durable.Expired)
	b.end(next, durable.Granted)
	if d := next.took; d > 250*time.Millisecond+slack {
		t.Errorf("it took %v", d)
	}
}

func headCanceled(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	b.get(b.ask(3, 0), durable.Granted)
	head := b.start(b.ask(4, time.Minute))
	b.queued(4)
	next := b.start(b.ask(2, time.Minute))
	b.queued(6)
	head.cancel()
	b.end(head, durable.Canceled)
	b.end(next, durable.Granted)
	b.get(b.ask(1, 0), durable.Refused)
}

func never(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	a := b.get(b.ask(6, time.Minute), durable.Never)
	if a.Decision.RetryAfter != weir.Never || a.Decision.Reason != weir.ReasonNever {
		t.Errorf("%+v", a.Decision)
	}
	b.get(b.ask(5, 0), durable.Granted)
}

func probe(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	for range 10 {
		b.get(b.ask(0, 0), durable.Granted)
	}
	b.get(b.ask(5, 0), durable.Granted)
	b.get(b.ask(0, 0), durable.Refused)
	b.get(b.ask(0, soon), durable.Expired)
}

func smallerLimit(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	b.get(b.ask(1, 0), durable.Granted)
	b.limit = limits.WithPermits(b.limit, 2)
	b.get(b.ask(3, 0), durable.Never)
	b.get(b.ask(2, 0), durable.Granted)
	b.get(b.ask(1, 0), durable.Refused)
	b.limit = limits.WithPermits(b.limit, 5) // what was clamped does not come back
	b.get(b.ask(1, 0), durable.Refused)
}

func reservations(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	r := b.ask(4, 0)
	r.Reserve = slow
	a := b.get(r, durable.Granted)
	if a.Reservation.ID == "" || a.Reservation.Permits != 4 {
		t.Errorf("%+v", a.Reservation)
	}
	if err := b.next().Commit(t.Context(), a.Reservation, 1); err != nil {
		t.Error(err)
	}
	for range s.Asked {
		if err := b.next().Commit(t.Context(), a.Reservation, 1); !errors.Is(err, durable.ErrNotReserved) {
			t.Error(err)
		}
		if err := b.next().Cancel(t.Context(), a.Reservation); !errors.Is(err, durable.ErrNotReserved) {
			t.Error(err)
		}
	}
	a = b.get(r, durable.Granted)
	if err := b.next().Cancel(t.Context(), a.Reservation); err != nil {
		t.Error(err)
	}
	b.get(b.ask(4, 0), durable.Granted)
	b.get(b.ask(1, 0), durable.Refused)

	b = begin(t, s, every(slow, 5))
	r = b.ask(4, 0)
	r.Reserve = soon
	a = b.get(r, durable.Granted)
	b.get(b.ask(4, slack), durable.Granted) // as it expires
	if err := b.next().Commit(t.Context(), a.Reservation, 1); !errors.Is(err, durable.ErrNotReserved) {
		t.Error(err)
	}
}

func settings(t *testing.T, s *Subject) {
	b := begin(t, s, every(slow, 5))
	wrong := map[string]func(r *durable.Request){
		"no policy":      func(r *durable.Request) { r.Policy = "" },
		"negative n":     func(r *durable.Request) { r.N = -1 },
		"long wait":      func(r *durable.Request) { r.Wait = durable.MaxWait + time.Minute },
		"negative wait":  func(r *durable.Request) { r.Wait = -1 },
		"negative queue": func(r *durable.Request) { r.QueueLimit = -1 },
		"no rate":        func(r *durable.Request) { r.Limit = limits.WithRate(r.Limit, weir.Rate{}) },
		"negative burst": func(r *durable.Request) { r.Limit = limits.WithPermits(r.Limit, -1) },
		"long reserve":   func(r *durable.Request) { r.Reserve = 25 * time.Hour },
	}
	for name, change := range wrong {
		r := b.ask(1, 0)
		change(&r)
		for _, who := range s.Asked {
			a := who.Acquire(t.Context(), r)
			if a.Outcome != durable.Unavailable || a.Err == nil || errors.Is(a.Err, store.ErrUnavailable) {
				t.Errorf("%s: %v (%v)", name, a.Outcome, a.Err)
			}
		}
	}
	b.get(b.ask(5, 0), durable.Granted)
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
				a := who.Acquire(t.Context(), b.ask(1, wait))
				switch a.Outcome {
				case durable.Granted:
					granted.Add(1)
				case durable.Expired:
				default:
					t.Errorf("%v (%v)", a.Outcome, a.Err)
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
