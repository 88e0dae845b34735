//go:build linux

package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
)

// The keys of a round, each with a limit and callers of its own kind.
const (
	busyKey     = iota // always has permits: tells when there is service
	bucketKey          // a token bucket, with callers who wait and others who do not
	windowKey          // a fixed window
	quotaKey           // a calendar quota, which must never be exceeded
	reservedKey        // a calendar quota of reservations
	queuedKey          // a slow bucket with a queue: see queueClient
	faultKeys
)

var keyNames = [faultKeys]string{"busy", "bucket", "window", "quota", "reserved", "queued"}

const (
	bucketRate, bucketBurst = 300, 60
	windowPermits           = 60
	windowLength            = 500 * time.Millisecond
	quotaPermits            = 600
	reservedPermits         = 400
	queuedRate, queuedBurst = 25, 1
	queuedExpiry            = time.Minute
	busyRate                = 1_000_000
	mostAsked               = 3 // permits at a time, of all but reservations
	reservedAsked           = 4
	faultPolicy             = "fault"
	callPause               = 6 * time.Millisecond
	callTimeout             = 3 * time.Second
	testProcess             = 3 // the index of the test among the processes
	processes               = 4
)

// loadConfig is one round of load.
type loadConfig struct {
	Round int
	// Day is the day on which months begin, far from today.
	Day int
}

func newLoadConfig(round int) loadConfig {
	if day := time.Now().UTC().Day(); day > 10 && day < 20 {
		return loadConfig{round, 1}
	}
	return loadConfig{round, 15}
}

func (c loadConfig) key(kind int) string { return fmt.Sprintf("%s-%d", keyNames[kind], c.Round) }

func (c loadConfig) limit(kind int) weir.Limit {
	month := algo.Calendar{Unit: algo.CalendarMonth, Day: c.Day}
	return [faultKeys]weir.Limit{
		busyKey:     weir.TokenBucket(weir.PerSecond(busyRate), busyRate),
		bucketKey:   weir.TokenBucket(weir.PerSecond(bucketRate), bucketBurst),
		windowKey:   weir.FixedWindow(weir.Per(windowPermits, windowLength)),
		quotaKey:    weir.CalendarWindow(quotaPermits, month),
		reservedKey: weir.CalendarWindow(reservedPermits, month),
		queuedKey:   weir.TokenBucket(weir.PerSecond(queuedRate), queuedBurst),
	}[kind]
}

func (c loadConfig) request(kind int) spectest.Request {
	return spectest.Request{Policy: faultPolicy, Key: c.key(kind), Limit: c.limit(kind), Queue: 200}
}

// event is a request and what has become of it.
type event struct {
	Round, Process, Caller, Key int
	N                           int64
	Asked, Answered             int64 // when, on the clock of monotonic
	Reason                      weir.Reason
	Remaining                   int64
	Epoch                       int64 // of the owner that was asked, if it was that of the same process and was asked directly
	ID                          string
	Expires                     int64 // of the reservation
	Settled                     settled
	Actual                      int64
	Err                         string

	// of queued requests
	Stream, Generation, Number int
}

// settled is what has become of a reservation.
type settled uint8

const (
	unsettled settled = iota
	committed
	cancelled
	unknown // its caller was not told
)

// load is many callers of a node.
type load struct {
	node    *durable.Node
	process int
	config  loadConfig
	log     func(event)
	ctx     context.Context //nolint:containedctx // until stop
	end     context.CancelFunc
	work    sync.WaitGroup
}

// callers is how many of them each key has in each process.
var callers = [faultKeys]int{busyKey: 1, bucketKey: 4, windowKey: 2, quotaKey: 2, reservedKey: 1}

func startLoad(n *durable.Node, process int, c loadConfig, log func(event)) *load {
	l := &load{node: n, process: process, config: c, log: log}
	l.ctx, l.end = context.WithCancel(context.Background())
	id := 0
	for kind, count := range callers {
		for range count {
			id++
			own := id
			l.work.Go(func() { l.call(kind, own) })
		}
	}
	return l
}

// stop has all callers end, who are answered before.
func (l *load) stop() {
	l.end()
	l.work.Wait()
}

func (l *load) call(kind, id int) {
	random := rand.New(rand.NewPCG(uint64(l.config.Round), uint64(l.process*100+id)))
	for l.ctx.Err() == nil {
		r := l.config.request(kind)
		r.N = 1 + random.Int64N(mostAsked)
		switch {
		case kind == bucketKey && id%2 == 0:
			r.Wait = 50*time.Millisecond + time.Duration(random.Int64N(int64(500*time.Millisecond)))
		case kind == reservedKey:
			r.N, r.Hold = reservedAsked, time.Hour
		}
		l.log(l.ask(kind, id, r, random))
		timer := time.NewTimer(callPause)
		select {
		case <-timer.C:
		case <-l.ctx.Done():
		}
	}
}

// ask makes one request, and settles what it has reserved.
func (l *load) ask(kind, id int, r spectest.Request, random *rand.Rand) event {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout+r.Wait)
	defer cancel()
	e := event{Round: l.config.Round, Process: l.process, Caller: id, Key: kind, N: r.N, Asked: monotonic()}
	var a spectest.Answer
	if owner := l.node.Owner(); owner != nil && random.IntN(2) == 0 {
		a = spectest.Acquire(ctx, owner, r)
		e.Epoch = owner.Epoch()
	} else {
		a = spectest.Acquire(ctx, l.node, r)
	}
	e.Answered = monotonic()
	e.Reason, e.Remaining = a.Reason, a.Remaining
	e.ID, e.Expires = a.Hold.ID, a.Hold.Expires
	if a.Err != nil {
		e.Err = a.Err.Error()
	}
	if e.ID == "" || random.IntN(5) == 0 {
		return e
	}
	var err error
	e.Settled = committed
	if random.IntN(4) == 0 {
		e.Settled = cancelled
		err = l.node.Settle(ctx, a.Hold, nil)
	} else {
		e.Actual = random.Int64N(reservedAsked + 1)
		err = l.node.Settle(ctx, a.Hold, []int64{e.Actual})
	}
	if err != nil {
		if errors.Is(err, durable.ErrNotReserved) {
			e.Err = err.Error()
		}
		e.Settled = unknown
	}
	return e
}
