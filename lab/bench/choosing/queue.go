package choosing

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
)

// patience is how long requests wait at most.
const patience = 1500 * time.Millisecond

// queueLasts is how long the simulation of queues is.
const queueLasts = 4 * time.Second

// Fate is a request that could wait, and what became of it.
type Fate struct {
	At, Until time.Duration
	Allowed   bool
}

// Line is what became of all requests with one kind of queue.
type Line struct {
	Name, Note string
	Fates      []Fate
}

// Queues lets 30 requests, which come within a second, ask a token bucket of 10/s and a burst of 5 without a queue, with one
// whose clients give up after a while, and with one that serves the last to come first.
func Queues() ([]Line, error) {
	var lines []Line
	for _, kind := range []struct {
		name, note string
		limit      int64
		newest     bool
	}{
		{"no queue", "who finds no permit is refused", 0, false},
		{"a queue of 12, oldest first", "in order; when 12 wait, the next one is refused", 12, false},
		{"a queue of 12, newest first", "the last to come is next; the oldest makes room", 12, true},
	} {
		clock := manualclock.New(0)
		bucket, err := weir.New(weir.TokenBucket(weir.PerSecond(permits), 5), weir.Options{
			QueueLimit: kind.limit, NewestFirst: kind.newest, Clock: clock,
		})
		if err != nil {
			return nil, err
		}
		fates, err := queue(clock, bucket)
		if err != nil {
			return nil, err
		}
		if err := bucket.Close(); err != nil {
			return nil, err
		}
		lines = append(lines, Line{kind.name, kind.note, fates})
	}
	return lines, nil
}

// queue lets requests wait in virtual time, in steps of a millisecond. What has been decided at a step is waited for before
// the next.
func queue(clock *manualclock.Clock, bucket *weir.Limiter) ([]Fate, error) {
	const requests = 30
	type answer struct {
		request int
		allowed bool
		err     error
	}
	answers := make(chan answer)
	fates := make([]Fate, requests)
	asked, answered := 0, 0
	gone := make([]context.CancelFunc, requests)
	settled := make([]bool, requests)
	for now := time.Duration(0); answered < requests; now += time.Millisecond {
		clock.Set(int64(now))
		for asked < requests && time.Duration(asked)*33*time.Millisecond <= now {
			i := asked
			ctx, cancel := context.WithCancel(context.Background())
			gone[i], fates[i].At = cancel, now
			before := bucket.Stats()
			go func() {
				lease, err := bucket.Acquire(ctx, 1)
				answers <- answer{i, lease.Allowed(), err}
			}()
			asked++
			// It has been decided on when it waits, or when it was answered.
			for undecided(before, bucket.Stats()) {
				runtime.Gosched() // the goroutine runs in real time
			}
		}
		for i := range asked {
			if !settled[i] && now-fates[i].At >= patience {
				gone[i]()
			}
		}
		for pending := true; pending; {
			pending = answered+bucket.Stats().Waiters < asked
			for i := range asked {
				pending = pending || !settled[i] && now-fates[i].At >= patience
			}
			if !pending {
				break
			}
			a := <-answers
			answered++
			gone[a.request]()
			settled[a.request] = true
			fates[a.request].Until, fates[a.request].Allowed = now, a.allowed
		}
		if now > queueLasts {
			return nil, fmt.Errorf("choosing: %d of %d requests are not answered after %v", requests-answered, requests, now)
		}
	}
	return fates, nil
}

// undecided reports whether no call has returned or begun to wait between two looks.
func undecided(before, now weir.Stats) bool {
	return now.Waiters == before.Waiters && now.Allowed+now.Refused == before.Allowed+before.Refused
}

// DrawQueues draws how long each request waited, and how it ended.
func DrawQueues(w io.Writer, lines []Line) error {
	const (
		left, top, right = 24.0, 104.0, 880.0
		rowHeight        = 166.0
		pitch            = 4.2 // of one request
	)
	p := newPicture(900, top+rowHeight*float64(len(lines))+28,
		"The same burst of 30 requests at a token bucket of 10 a second with a burst of 5: without a queue most are refused at "+
			"once, with a queue they wait in order, and newest first serves those who came last.")
	p.text(20, 34, "title", "start", "30 requests in a second at 10/s, burst 5: who waits, and for how long")
	p.text(20, 57, "dim", "start", "Each line is a request, from when it came to its answer. Clients wait for 1.5 s at most.")
	p.dot("ok", 646, 53, 4)
	p.text(656, 57, "dim", "start", "served")
	p.dot("no", 720, 53, 4)
	p.text(730, 57, "dim", "start", "refused, or has given up")
	x := func(at time.Duration) float64 { return left + (right-left)*at.Seconds()/2.5 }
	for row, l := range lines {
		y := top + rowHeight*float64(row)
		served, waited := 0, time.Duration(0)
		for _, f := range l.Fates {
			if f.Allowed {
				served++
				waited = max(waited, f.Until-f.At)
			}
		}
		p.text(left, y-2, "name", "start", l.Name)
		result := fmt.Sprintf("%s: %d served", l.Note, served)
		if waited > 0 {
			result += fmt.Sprintf(", after %.1f s at most", waited.Seconds())
		}
		p.text(right, y-2, "dim", "end", result)
		p.rect("plot", left, y+6, right-left, 134)
		for half := range 6 {
			at := time.Duration(half) * 500 * time.Millisecond
			p.stroke("grid", x(at), y+6, x(at), y+140)
		}
		for i, f := range l.Fates {
			line := y + 12 + pitch*float64(i)
			if f.Until > f.At {
				p.stroke("wait", x(f.At), line, x(f.Until), line)
			}
		}
		for i, f := range l.Fates {
			line := y + 12 + pitch*float64(i)
			class := "no"
			if f.Allowed {
				class = "ok"
			}
			p.dot(class, x(f.Until), line, 3)
		}
	}
	for half := range 6 {
		at := time.Duration(half) * 500 * time.Millisecond
		p.text(min(x(at), right-8), top+rowHeight*float64(len(lines))-6, "tick", "middle", fmt.Sprintf("%g s", at.Seconds()))
	}
	return p.write(w)
}
