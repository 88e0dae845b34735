package load

import (
	"context"
	"math"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirhq/weir/internal/cputime"
)

// run is one measurement.
type run struct {
	o        *options
	newCodec func() codec
	dial     func() (net.Conn, error)
	newAlarm func() waiter
	batches  bool      // a closed loop sends when all is answered, not when one is
	schedule *schedule // nil in a closed loop

	base time.Time
	from time.Duration // what is intended from here on is counted
	end  time.Duration // nothing is sent at this time or later

	left       atomic.Int64 // requests that a closed loop may still send
	over       chan struct{}
	overOnce   sync.Once
	isEnded    atomic.Bool
	reconnects atomic.Int64
	missed     atomic.Int64 // requests that were due and not sent
	stopped    atomic.Int64 // when the run was over
	shards     []*shard
}

// result is what a run has measured.
type result struct {
	total       *shard
	elapsed     time.Duration
	cpu         time.Duration
	cpuKnown    bool
	processors  int
	reconnects  int64
	missed      int64
	interrupted bool
	failure     error // why it ended early
}

func newRun(o *options, newCodec func() codec, dial func() (net.Conn, error)) *run {
	r := &run{
		o: o, newCodec: newCodec, dial: dial, newAlarm: func() waiter { return newAlarm() }, batches: o.front != frontRLS,
		from: o.warmup, end: math.MaxInt64, over: make(chan struct{}),
	}
	if o.requests == 0 {
		r.end = o.warmup + o.duration
	}
	r.left.Store(math.MaxInt64)
	if o.requests > 0 {
		r.left.Store(o.requests)
	}
	if o.rate > 0 {
		r.schedule = newSchedule(o.rate, o.arrivals, o.seed, r.from, r.end, o.requests)
	}
	r.reset()
	return r
}

// reset forgets all counts.
func (r *run) reset() {
	r.shards = r.shards[:0]
	for range min(r.o.connections, 2*runtime.GOMAXPROCS(0)) {
		r.shards = append(r.shards, newShard(r.schedule != nil))
	}
}

func (r *run) now() time.Duration { return time.Since(r.base) }

// stop ends the run: nothing more is sent.
func (r *run) stop() {
	r.overOnce.Do(func() {
		now := r.now()
		r.stopped.Store(int64(now))
		if r.schedule != nil {
			r.missed.Add(r.schedule.stop(now))
		}
		r.isEnded.Store(true)
		close(r.over)
	})
}

func (r *run) isOver() bool { return r.isEnded.Load() }

// claim returns how many of n requests a closed loop may send now, 0 if it is over.
func (r *run) claim(n int) int {
	now := r.now()
	if r.isOver() || now >= r.end {
		return 0
	}
	if now < r.from || r.o.requests == 0 {
		return n
	}
	left := r.left.Add(-int64(n))
	return int(max(0, min(int64(n), left+int64(n))))
}

// skip counts requests that were due and have not been sent.
func (r *run) skip(due []time.Duration) {
	end := time.Duration(r.stopped.Load())
	if end == 0 {
		end = r.now()
	}
	for _, at := range due {
		if at >= r.from && at < end {
			r.missed.Add(1)
		}
	}
}

// connect makes all connections. What was counted before is forgotten.
func (r *run) connect() ([]*connection, error) {
	r.reset()
	const atOnce = 64
	all := make([]*connection, r.o.connections)
	opening, failed := errgroup.WithContext(context.Background())
	opening.SetLimit(atOnce)
	r.base = time.Now()
	for i := 0; i < len(all) && failed.Err() == nil; i++ {
		opening.Go(func() error {
			c := newConnection(r, i)
			err := c.open()
			if err == nil {
				all[i] = c
			}
			return err
		})
	}
	err := opening.Wait()
	if err == nil {
		return all, nil
	}
	for _, c := range all {
		if c != nil {
			_ = c.nc.Close() // nothing was asked
		}
	}
	return nil, err
}

// measure runs until it is over or the context ends. What watch does is done beside it.
func (r *run) measure(ctx context.Context, connections []*connection, watch func(over <-chan struct{})) result {
	r.base = time.Now()
	var (
		working errgroup.Group
		failure error
	)
	done := make(chan struct{})
	for _, c := range connections {
		c.progress = 0
		working.Go(c.work)
	}
	go func() {
		defer close(done)
		failure = working.Wait()
	}()
	ended := make(chan struct{})
	var watcher sync.WaitGroup
	if watch != nil {
		watcher.Go(func() { watch(ended) })
	}
	interrupted, used, known := r.supervise(ctx, connections, done)
	r.stop()
	close(ended)
	watcher.Wait()

	total := totals(r.shards)
	measured := result{
		total: total, processors: runtime.GOMAXPROCS(0), reconnects: r.reconnects.Load(), missed: r.missed.Load(),
		interrupted: interrupted, cpu: used, cpuKnown: known,
	}
	measured.elapsed = max(0, max(total.last, min(time.Duration(r.stopped.Load()), r.end))-r.from)
	if !interrupted { // or whatever has failed has been caused by that
		measured.failure = failure
	}
	if (r.o.requests > 0 && !interrupted || measured.failure != nil) && total.last > r.from {
		measured.elapsed = total.last - r.from
	}
	return measured
}

// patience is for how long answers are waited for after an interrupt.
const patience = time.Second

// supervise waits until everything is answered, and sees to it that this comes to an end. It returns how much time of the
// processors was used for what is counted, which is none until the warm-up is over, and whether that is known.
func (r *run) supervise(
	ctx context.Context, connections []*connection, done <-chan struct{},
) (interrupted bool, used time.Duration, known bool) {
	const period = 50 * time.Millisecond
	tick := time.NewTicker(period)
	defer tick.Stop()
	counts := false
	var start time.Duration
	warm := time.NewTimer(r.from)
	defer warm.Stop()
	end := time.NewTimer(r.end)
	defer end.Stop()
	timeout := r.o.timeout
	canceled := ctx.Done()
	for {
		select {
		case <-done:
			now, err := cputime.Used()
			if err == nil && counts {
				used = now - start
			}
			return interrupted, used, err == nil
		case <-warm.C:
			start, _ = cputime.Used()
			counts = true
		case <-end.C:
			r.stop()
		case <-canceled:
			interrupted, canceled = true, nil
			timeout = min(timeout, patience)
			r.stop()
		case <-tick.C:
			now := r.now()
			for _, c := range connections {
				c.expire(now, timeout)
			}
		}
	}
}

// probe asks the server once, so that what is wrong is told before anything is measured. It ends with the context.
func (r *run) probe(ctx context.Context) error {
	r.base = time.Now()
	c := newConnection(r, 0)
	if err := c.open(); err != nil {
		return err
	}
	defer c.nc.Close() //nolint:errcheck // it has told what it knows
	_ = c.nc.SetDeadline(time.Now().Add(r.o.timeout))
	stop := context.AfterFunc(ctx, func() { _ = c.nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := c.send(1, nil); err != nil {
		return err
	}
	for c.inFlight > 0 {
		if err := c.receive(); err != nil {
			return err
		}
	}
	for i := range c.replies {
		if reply := &c.replies[i]; reply.outcome == failed {
			return &probeError{fit(reply.fault.text, longestFault)}
		}
	}
	return nil
}

// probeError is about a server that does not do what it is asked.
type probeError struct{ text string }

func (e *probeError) Error() string { return e.text }
