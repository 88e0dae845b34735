package durable_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
	"github.com/weirhq/weir/internal/reference"
)

// scripted is what happens at an instant: a request, or something else.
type scripted struct {
	kind   scriptedKind
	at     time.Duration
	n      int64 // of a request, or what is given if it is positive, and taken otherwise
	wait   time.Duration
	queue  int64
	cancel int // which request goes away
}

type scriptedKind uint8

const (
	scriptAsk scriptedKind = iota
	scriptCancel
	scriptAdjust
	scriptStop  // the owner ends, and another one begins
	scriptCrash // the same without a chance to write anything
)

// verdict is what became of a request, and when.
type verdict struct {
	outcome   weir.Reason
	at        time.Duration
	remaining int64         // of those granted or refused
	retry     time.Duration // of those refused while the queue was empty
}

// book is the limit by the book: one request at a time, the oldest first, those who wait in a list, and the permits in numbers
// of any size.
type book struct {
	law   reference.Limiter
	most  int64
	began int64
	queue []place
	out   []verdict
}

type place struct {
	index    int
	n        int64
	deadline time.Duration
}

// serve answers those whose deadline has passed, and grants the oldest of the others what they wait for.
func (b *book) serve(now time.Duration) {
	b.queue = slices.DeleteFunc(b.queue, func(p place) bool {
		if p.deadline <= now {
			b.out[p.index] = verdict{outcome: weir.ReasonDeadline, at: now}
		}
		return p.deadline <= now
	})
	for len(b.queue) > 0 {
		r, _ := b.law.Take(b.began+int64(now), b.queue[0].n)
		if !r.Allowed {
			return
		}
		b.out[b.queue[0].index] = verdict{weir.ReasonNone, now, r.Remaining, 0}
		b.queue = b.queue[1:]
	}
}

// play serves at every instant of a time at which a waiting caller may be served.
func (b *book) play(from, to time.Duration) {
	for now := from; len(b.queue) > 0; {
		next := now + b.law.Peek(b.began+int64(now), b.queue[0].n).RetryAfter
		for _, p := range b.queue {
			next = min(next, p.deadline)
		}
		if next > to {
			break
		}
		now = next
		b.serve(now)
	}
	b.serve(to)
}

func (b *book) ask(index int, s *scripted) verdict {
	waiting, wait := int64(0), s.wait
	if s.queue == 0 { // for which there is no queue
		wait = 0
	}
	for _, p := range b.queue {
		waiting += p.n
	}
	now := b.began + int64(s.at)
	first := b.law.Peek(now, s.n)
	switch {
	case s.n > b.most:
		return verdict{outcome: weir.ReasonNever, at: s.at}
	case (len(b.queue) == 0 || s.n == 0) && first.Allowed: // a probe ignores the queue until it stands in it
		r, _ := b.law.Take(now, s.n)
		return verdict{weir.ReasonNone, s.at, r.Remaining, 0}
	case wait == 0 && len(b.queue) == 0:
		return verdict{weir.ReasonLimited, s.at, first.Remaining, first.RetryAfter}
	case wait == 0:
		return verdict{weir.ReasonLimited, s.at, first.Remaining, 0}
	case s.n > 0 && waiting+s.n > s.queue:
		return verdict{outcome: weir.ReasonQueueFull, at: s.at}
	}
	b.queue = append(b.queue, place{index, s.n, s.at + s.wait})
	return verdict{outcome: unanswered}
}

// leave ends the waiting calls for which it holds.
func (b *book) leave(now time.Duration, why weir.Reason, who func(index int) bool) {
	b.queue = slices.DeleteFunc(b.queue, func(p place) bool {
		if who(p.index) {
			b.out[p.index] = verdict{outcome: why, at: now}
			return true
		}
		return false
	})
}

// expected is what becomes of each request of a script.
func expected(script []scripted, b *book) []verdict {
	b.out = make([]verdict, len(script))
	last, all := time.Duration(0), func(int) bool { return true }
	for i := range script {
		s := &script[i]
		b.play(last, s.at)
		last = s.at
		switch s.kind {
		case scriptAsk:
			b.out[i] = b.ask(i, s)
		case scriptCancel:
			b.leave(s.at, weir.ReasonCanceled, func(index int) bool { return index == s.cancel })
			b.serve(s.at)
		case scriptAdjust:
			if s.n > 0 {
				b.law.Refund(b.began+int64(s.at), s.n)
			} else {
				b.law.Charge(b.began+int64(s.at), -s.n, b.most)
			}
			b.serve(s.at)
		case scriptStop:
			b.leave(s.at, weir.ReasonClosed, all)
		case scriptCrash:
			b.leave(s.at, weir.ReasonUnavailable, all)
		}
	}
	b.play(last, last+48*time.Hour)
	return b.out
}

// modeledLimit is a limit at random, the same by the book, how long those who ask for it wait, and when it begins.
func modeledLimit(r *rand.Rand) (l weir.Limit, law reference.Limiter, span, begin time.Duration) {
	permits, period := 1+r.Int64N(60), time.Duration(1+r.Int64N(int64(3*time.Second)))+time.Second
	if r.IntN(2) == 0 {
		period = period.Round(time.Second)
	}
	rate := weir.Rate{Permits: permits, Period: period}
	switch r.IntN(5) {
	case 0:
		burst := 1 + r.Int64N(60)
		return weir.TokenBucket(rate, burst), reference.NewTokenBucket(permits, period, burst), time.Second, 0
	case 1:
		return weir.FixedWindow(rate), reference.NewFixedWindow(permits, period, 0), period, 0
	case 2:
		segments := 1 + r.IntN(12)
		return weir.SlidingWindow(rate, segments),
			reference.NewSlidingWindow(permits, period, segments, 0), period, 0
	case 3:
		return weir.SlidingCounter(rate), reference.NewSlidingCounter(permits, period, 0), period, 0
	}
	unit := algo.CalendarMonth
	span, begin = 12*time.Hour, 30*24*time.Hour // which is the last day of January
	if r.IntN(2) == 0 {
		unit, span, begin = algo.CalendarMinute, time.Minute, 0
	}
	l = weir.CalendarWindow(permits, algo.Calendar{Unit: unit})
	return l, reference.NewCalendarWindow(permits, l.Calendar()), span, begin
}

func modeledScript(r *rand.Rand, most int64, span time.Duration, crashes bool) []scripted {
	script := make([]scripted, 120)
	at := time.Duration(0)
	for i := range script {
		if r.IntN(3) > 0 {
			at += time.Duration(r.Int64N(int64(span / 8)))
		}
		s := scripted{at: at, n: 1 + r.Int64N(min(most+1, 10)), queue: r.Int64N(50)}
		if r.IntN(3) > 0 {
			s.wait = time.Duration(1 + r.Int64N(int64(span)))
		}
		switch kind := r.IntN(60); {
		case kind < 8 && i > 0:
			s.kind, s.cancel = scriptCancel, r.IntN(i)
		case kind < 11:
			s.kind, s.n = scriptAdjust, s.n-5
		case kind == 11 && crashes:
			s.kind = scriptCrash
		case kind < 13:
			s.kind = scriptStop
		case kind < 16:
			s.n = 0
		case kind == 16:
			s.n = most + 1 + r.Int64N(2)
		}
		script[i] = s
	}
	return script
}

// TestOwnerEqualsTheBook plays scripts of requests that wait, go away and do not wait, of adjustments, and of owners that follow one
// another, under limits of all algorithms whose permits come with time: every request is answered as by the book, and at that very
// instant, whatever K is. Between owners nothing is burned: those that are ahead stop in an orderly way, and those whose every grant
// is written crash.
func TestOwnerEqualsTheBook(t *testing.T) {
	for seed := range seeds(80, 24) {
		for _, k := range []int64{1, 7, 0} {
			if !t.Run(fmt.Sprintf("%d/%d", seed, k), func(t *testing.T) { modeled(t, seed, k, inMemory) }) {
				return
			}
		}
	}
}

// TestOwnerOverAFileEqualsTheBook is the same where each owner opens the file anew.
func TestOwnerOverAFileEqualsTheBook(t *testing.T) {
	for seed := range seeds(20, 6) {
		for _, k := range []int64{1, 0} {
			if !t.Run(fmt.Sprintf("%d/%d", seed, k), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "limits")
				modeled(t, seed, k, func(t *testing.T) func() durable.Engine { return inFile(t, path) })
			}) {
				return
			}
		}
	}
}

// inMemory is a cluster in memory, as each owner sees it.
func inMemory(*testing.T) func() durable.Engine {
	m := must(durable.NewMemory(durable.MemoryOptions{TTL: time.Hour}))
	return func() durable.Engine { return m.Engine() }
}

// inFile is a file that is opened anew for each owner.
func inFile(t *testing.T, path string) func() durable.Engine {
	t.Helper()
	var f *durable.File
	t.Cleanup(func() { _ = f.Close() })
	return func() durable.Engine {
		if f != nil {
			_ = f.Close()
		}
		f = must(durable.OpenFile(path, durable.FileOptions{}))
		return f.Engine()
	}
}

func modeled(t *testing.T, seed uint64, k int64, kept func(*testing.T) func() durable.Engine) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 4))
	limit, law, span, begin := modeledLimit(r)
	most := law.Peek(0, 0).Remaining
	script := modeledScript(r, most, span, k == 1)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(begin)
		engine := kept(t)
		p := &playing{t: t, limit: limit, began: time.Now(), got: make([]verdict, len(script)), tickets: make([]func(), len(script))}
		for i := range p.got {
			p.got[i].outcome = unanswered
		}
		options := durable.OwnerOptions{Reserve: k, Sweep: max(span, time.Second)}
		term := must(engine().Campaign(t.Context(), "first"))
		p.owner = must(durable.NewOwner(term, options))
		defer func() { _ = p.owner.Stop(context.Background()) }()
		for i := range script {
			s := &script[i]
			time.Sleep(time.Until(p.began.Add(s.at)))
			if i == 0 || s.at > script[i-1].at || s.kind != scriptAsk {
				synctest.Wait() // what was to happen until now has happened
			}
			p.play(i, s)
			if s.kind >= scriptStop {
				if s.kind == scriptCrash {
					_ = term.Resign(t.Context())
					synctest.Wait()
				}
				if err := p.owner.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
				term = must(engine().Campaign(t.Context(), "next"))
				p.owner = must(durable.NewOwner(term, options))
			}
		}
		time.Sleep(span + time.Second)
		synctest.Wait()
		if err := p.owner.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := expected(script, &book{law: law, most: most, began: p.began.UnixNano()})
		for i := range want {
			if want[i].retry == 0 {
				p.got[i].retry = 0 // which depends on those who wait
			}
			if script[i].kind == scriptAsk && p.got[i] != want[i] {
				t.Fatalf("%v, request %d %+v: %+v, want %+v", limit, i, script[i], p.got[i], want[i])
			}
		}
	})
}

// playing is a script that is being played.
type playing struct {
	t       *testing.T
	limit   weir.Limit
	owner   *durable.Owner
	began   time.Time
	tickets []func()

	mu  sync.Mutex
	got []verdict
}

func (p *playing) play(i int, s *scripted) {
	p.t.Helper()
	switch s.kind {
	case scriptAsk:
		r := spectest.Request{Policy: "p", Limit: p.limit, N: s.n, Wait: s.wait, Queue: s.queue}
		p.tickets[i] = enqueue(p.owner, r, func(a spectest.Answer) {
			v := verdict{outcome: a.Reason, at: time.Since(p.began)}
			if a.Reason == weir.ReasonNone || a.Reason == weir.ReasonLimited {
				v.remaining, v.retry = a.Remaining, a.RetryAfter
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.got[i] = v
		})
	case scriptCancel:
		if leave := p.tickets[s.cancel]; leave != nil {
			leave()
		}
		synctest.Wait()
	case scriptAdjust:
		a := durable.Adjustment{Policy: "p", Permits: s.n, By: "x", Reason: "y"}
		if _, err := p.owner.Adjust(p.t.Context(), p.limit, a); err != nil {
			p.t.Fatal(err)
		}
		synctest.Wait()
	case scriptStop, scriptCrash: // which end the owner, too
	}
}
