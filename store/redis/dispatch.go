package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirhq/weir/store"
)

// request is a call of the script.
type request struct {
	keys, args []string

	state atomic.Int32
	done  chan struct{} // holds one
	reply string
	err   error
	timer *time.Timer

	lane           *lane    // whose queue it is in, if it is in any
	before, behind *request // in the queue
}

// The states of a request.
const (
	waiting = iota
	answered
	abandoned
)

var (
	errCrowded = errors.New("as many requests wait for it as may")
	errLate    = errors.New("it did not answer in time")
)

// unavailable is the error for a call that got no answer because of err.
func unavailable(err error) error { return fmt.Errorf("%w: %w", store.ErrUnavailable, err) }

const leastPatience = time.Second

// mostBatch is how many requests are sent together.
const mostBatch = 256

// apart is how long a request waits before it is sent again whose keys were found on two nodes of a cluster.
const apart = 10 * time.Millisecond

// dispatcher sends requests, those that wait at a time together. Its senders may have to wait for a connection or for an answer;
// callers never wait longer than they want to.
type dispatcher struct {
	client  rueidis.Client
	script  string
	digest  string
	timeout time.Duration
	// patience is how long a sender waits for the answers to what it has sent, longer than the callers do: a server that does not
	// answer gets no more requests meanwhile.
	patience time.Duration
	most     int64
	perLane  int // senders

	inFlight atomic.Int64
	pool     sync.Pool
	lanes    lanes

	lock    sync.Mutex // of the queues too
	closed  bool
	senders sync.WaitGroup
}

func newDispatcher(client rueidis.Client, script, digest string, timeout time.Duration, most, senders int) *dispatcher {
	d := &dispatcher{
		client: client, script: script, digest: digest,
		timeout: timeout, patience: max(timeout, leastPatience), most: int64(most), perLane: senders,
	}
	d.pool.New = func() any { return &request{done: make(chan struct{}, 1)} }
	d.start()
	return d
}

// call sends the script with keys and args, and returns its reply. An error says that it may or may not have run.
func (d *dispatcher) call(ctx context.Context, keys, args []string) (string, error) {
	return d.callWithin(ctx, d.timeout, keys, args)
}

// callWithin is call for a caller who waits for so long.
func (d *dispatcher) callWithin(ctx context.Context, timeout time.Duration, keys, args []string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", unavailable(err)
	}
	if timeout <= 0 {
		return "", unavailable(errLate)
	}
	if d.inFlight.Add(1) > d.most {
		d.inFlight.Add(-1)
		return "", unavailable(errCrowded)
	}
	r := d.pool.Get().(*request) // nothing else is in the pool
	r.keys, r.args = keys, args
	if r.timer == nil {
		r.timer = time.NewTimer(timeout)
	} else {
		r.timer.Reset(timeout)
	}
	var again error // why it has not run
	for {
		r.state.Store(waiting)
		if !d.enqueue(r) {
			d.finish(r)
			return "", store.ErrClosed
		}
		err := r.wait(ctx, r.done)
		if err != nil {
			if d.abandon(r) {
				if again != nil {
					return "", again
				}
				return "", unavailable(err)
			}
			<-r.done
		}
		if err != nil || !isTryAgain(r.err) {
			break
		}
		again = r.err
		if r.pause(ctx) != nil { // it cannot run before its keys are on one node again
			break
		}
	}
	reply, err := r.reply, r.err
	d.finish(r)
	return reply, err
}

// wait waits until done, or returns why the caller waits no more.
func (r *request) wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-r.timer.C:
		return errLate
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pause lets time pass before the request is sent again.
func (r *request) pause(ctx context.Context) error {
	passed := make(chan struct{})
	t := time.AfterFunc(apart, func() { close(passed) })
	defer t.Stop()
	return r.wait(ctx, passed)
}

func isTryAgain(err error) bool {
	if err == nil {
		return false
	}
	var answer *rueidis.RedisError
	return errors.As(err, &answer) && answer.IsTryAgain()
}

// abandon gives up a request, unless it is answered. The sender gives it back; one that was not sent will not be.
func (d *dispatcher) abandon(r *request) bool {
	d.lock.Lock() // or it might be in the queue once more already, for another caller
	given := r.state.CompareAndSwap(waiting, abandoned)
	queued := given && r.lane != nil
	if queued {
		r.lane.remove(r)
	}
	d.lock.Unlock()
	if queued {
		d.finish(r)
	}
	return given
}

// finish gives a request back that no other goroutine has.
func (d *dispatcher) finish(r *request) {
	r.timer.Stop()
	r.keys, r.args, r.reply, r.err = nil, nil, "", nil
	d.inFlight.Add(-1)
	d.pool.Put(r)
}

// answer hands an answer to the caller, if it still waits.
func (d *dispatcher) answer(r *request, reply string, err error) {
	r.reply, r.err = reply, err
	if r.state.CompareAndSwap(waiting, answered) {
		r.done <- struct{}{}
		return
	}
	d.finish(r)
}

// send sends what waits in a lane until the dispatcher is closed.
func (d *dispatcher) send(l *lane) {
	batch := make([]*request, 0, mostBatch)
	commands := make([]rueidis.Completed, 0, mostBatch)
	for {
		d.lock.Lock()
		for l.first == nil && !d.closed {
			l.wake.Wait()
		}
		closed := d.closed
		batch = batch[:0]
		for l.first != nil && (len(batch) < mostBatch || closed) {
			r := l.first
			l.remove(r)
			batch = append(batch, r)
		}
		more := l.first != nil
		d.lock.Unlock()
		if closed {
			for _, r := range batch {
				d.answer(r, "", store.ErrClosed)
			}
			return
		}
		if more {
			l.wake.Signal()
		}
		live := batch[:0]
		for _, r := range batch {
			if r.state.Load() == abandoned { // no caller waits, and the server has not seen it
				d.finish(r)
				continue
			}
			live = append(live, r)
		}
		commands = d.exchange(live, commands)
		clear(batch)
	}
}

// exchange sends a batch and hands out the answers. Where the server does not know the script, which then has not run, it is
// sent by the first request that met this, and the others follow.
func (d *dispatcher) exchange(batch []*request, commands []rueidis.Completed) []rueidis.Completed {
	inFull := 0 // how many of the batch carry the script
	for len(batch) > 0 {
		commands = commands[:0]
		for i, r := range batch {
			commands = append(commands, d.command(r, i < inFull))
		}
		if inFull > 0 { // the others need it
			commands = commands[:inFull]
		}
		ctx, cancel := context.WithTimeout(context.Background(), d.patience)
		var results []rueidis.RedisResult
		if len(commands) == 1 {
			results = []rueidis.RedisResult{d.client.Do(ctx, commands[0])}
		} else {
			results = d.client.DoMulti(ctx, commands...)
		}
		cancel()
		left := batch[:0]
		for i, result := range results {
			reply, err := result.ToString()
			if known, ok := rueidis.IsRedisErr(err); ok && known.IsNoScript() && inFull == 0 {
				left = append(left, batch[i])
				continue
			}
			if err != nil {
				reply, err = "", unavailable(err)
				commands = nil // the client may still look at them
			}
			d.answer(batch[i], reply, err)
		}
		if inFull > 0 {
			left = append(left, batch[len(results):]...)
			inFull = 0
		} else {
			inFull = 1
		}
		clear(batch[len(left):])
		batch = left
	}
	return commands
}

func (d *dispatcher) command(r *request, inFull bool) rueidis.Completed {
	if inFull {
		return d.client.B().Eval().Script(d.script).Numkeys(int64(len(r.keys))).Key(r.keys...).Arg(r.args...).Build()
	}
	return d.client.B().Evalsha().Sha1(d.digest).Numkeys(int64(len(r.keys))).Key(r.keys...).Arg(r.args...).Build()
}

func (d *dispatcher) close() {
	d.lock.Lock()
	closed := d.closed
	d.closed = true
	d.lock.Unlock()
	if closed {
		return
	}
	for _, l := range d.lanes.all {
		l.wake.Broadcast()
	}
	d.senders.Wait()
	d.lanes.refreshes.Wait()
	d.client.Close()
}
