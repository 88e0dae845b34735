package redis

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/internal/respclient"
	"github.com/weirhq/weir/store"
	"github.com/weirhq/weir/store/redis/internal/resp"
)

// request is a call of the script.
type request struct {
	keys, args []string
	slot       uint16 // in a cluster
	// to is the node that another node of a cluster has named, and asking that it has the keys although not the slot.
	to     string
	asking bool
	alone  bool // it must not be part of a batch

	state atomic.Int32
	done  chan struct{} // holds one
	reply string
	err   error
	by    string // the node that replied
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
	errGone    = errors.New("the node is no longer a master")
	errLanes   = errors.New("the cluster has too many masters")
)

// errSpared is what a request gets that is not sent, as the master of its keys does not answer.
var errSpared = fmt.Errorf("%w: it is not asked, as it did not answer before", store.ErrPartUnavailable)

// past is a time that has passed.
var past = time.Unix(1, 0) //nolint:gochecknoglobals // a constant

// unavailable is the error for a call that got no answer because of err.
func unavailable(err error) error { return fmt.Errorf("%w: %w", store.ErrUnavailable, err) }

const (
	leastPatience = time.Second
	// maxSent is how many requests are sent together.
	maxSent = 256
	// maxBatch is how many of them are one call of the script.
	maxBatch = 32
	// apart is how long a request waits before it is sent again whose keys were found on two nodes of a cluster.
	apart = 10 * time.Millisecond
	// maxRedirects is how often nodes of a cluster may send a request on to another node.
	maxRedirects = 8
)

// dispatcher sends requests. A caller that finds a connection which is not used sends its request itself. Others wait in a queue
// for a sender, which sends all of them together. A sender may have to wait for a connection or for an answer; callers never
// wait longer than they want to.
type dispatcher struct {
	servers *servers
	script  string
	digest  string
	timeout time.Duration
	// patience is how long a sender waits for the answers to what it has sent, longer than the callers do: a server that does not
	// answer gets no more requests meanwhile.
	patience time.Duration
	max      int64
	perLane  int // senders

	inFlight atomic.Int64
	pool     sync.Pool
	lanes    lanes

	life   context.Context //nolint:containedctx // ends when the dispatcher is closed
	end    context.CancelFunc
	lock   sync.Mutex // of the queues too
	closed bool

	senders sync.WaitGroup
}

func newDispatcher(servers *servers, script, digest string, o Options) (*dispatcher, error) {
	d := &dispatcher{
		servers: servers, script: script, digest: digest,
		timeout: o.Timeout, patience: max(o.Timeout, leastPatience), max: int64(o.MaxInFlight), perLane: o.Connections,
	}
	d.pool.New = func() any { return &request{done: make(chan struct{}, 1)} }
	d.life, d.end = context.WithCancel(context.Background())
	conn, address, all, err := servers.open(d.life)
	if err != nil {
		d.end()
		return nil, unavailable(err)
	}
	d.open(conn, address, all)
	return d, nil
}

// call sends the script with keys and args, and returns its reply, for which it waits until a time that has not come yet. An
// error says that it may or may not have run.
func (d *dispatcher) call(ctx context.Context, until time.Time, keys, args []string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", unavailable(err)
	}
	if d.inFlight.Add(1) > d.max {
		d.inFlight.Add(-1)
		return "", unavailable(errCrowded)
	}
	r := d.pool.Get().(*request) // nothing else is in the pool
	r.keys, r.args = keys, args
	if d.servers.cluster {
		r.slot = slotOf(keys[0])
	}
	var before error // why it has not run
	for redirects := 0; ; {
		given, err := d.ask(ctx, r, until)
		if !given {
			if before != nil && !errors.Is(err, store.ErrPartUnavailable) {
				err = before
			}
			return "", err
		}
		wait, again := d.redirected(r, &redirects)
		if !again {
			break
		}
		before = r.err
		if wait && r.pause(ctx, until) != nil { // it cannot run before its keys are on one node again
			break
		}
	}
	reply, err := r.reply, r.err
	d.finish(r)
	return reply, err
}

// ask has a request sent. If it was not answered in time, it is no longer the caller's, and there is an error.
func (d *dispatcher) ask(ctx context.Context, r *request, until time.Time) (given bool, err error) {
	now := d.watch()
	r.state.Store(waiting)
	d.lock.Lock()
	l := d.laneOf(r)
	switch {
	case d.closed:
		err = store.ErrClosed
	case l == nil:
		err = unavailable(errLanes)
	case l.row.Load() != 0 && d.spared(l, now):
		err = errSpared
		d.watchSoon() // another one may have become the master
	}
	if err != nil {
		d.lock.Unlock()
		d.finish(r)
		return false, err
	}
	given, err = d.through(ctx, l, r, until)
	switch {
	case !d.servers.cluster:
	case given:
		r.err = d.heard(ctx, l, now, r.err)
	default:
		err = d.heard(ctx, l, now, err)
	}
	return given, err
}

// through has a request sent by a lane. The caller has the lock, and does not have it afterwards.
func (d *dispatcher) through(ctx context.Context, l *lane, r *request, until time.Time) (given bool, err error) {
	s := l.idle()
	if s != nil && s.conn != nil && l.first == nil && !r.asking {
		s.use = lent
		d.lock.Unlock()
		sent, given, err := d.direct(ctx, s, r, until)
		if sent {
			return given, err
		}
		d.lock.Lock()
		if l.gone {
			d.giveBack(s)
			d.lock.Unlock()
			r.reply, r.err = "", unavailable(errGone)
			return true, nil
		}
		l.add(r)
		d.giveBack(s)
	} else {
		l.add(r)
		if s != nil {
			s.start()
		}
	}
	d.lock.Unlock()
	if err := r.wait(ctx, until, r.done); err != nil {
		if d.abandon(r) {
			return false, unavailable(err)
		}
		<-r.done
	}
	return true, nil
}

// giveBack ends the use of a sender by a caller that has the lock.
func (d *dispatcher) giveBack(s *sender) {
	s.use = idle
	if s.lane.first != nil || s.late != nil || d.closed || s.lane.gone {
		s.start()
	}
}

// direct sends a request over the connection of a sender that was lent. If it is not sent, the sender is still the caller's.
func (d *dispatcher) direct(ctx context.Context, s *sender, r *request, until time.Time) (sent, given bool, err error) {
	if !d.usable(s) {
		return false, false, nil
	}
	late, began := errLate, until.Add(-d.timeout)
	if at, ok := ctx.Deadline(); ok && at.Before(until) {
		until, late = at, context.DeadlineExceeded
	}
	stop := interruptedBy(ctx, s.conn)
	reply, err := d.one(ctx, s.conn, r, until)
	if stop != nil && stop() {
		late = ctx.Err()
	}
	r.by = s.address
	switch {
	case err == nil:
		r.reply, r.err = textOf(reply)
		s.heed(r.err)
	case isTimeout(err) && s.conn.Owed() == 1: // its reply may still come
		s.late, s.sent = r, began
		err = unavailable(late)
	default:
		s.disconnect()
		d.watchSoon()
		if isTimeout(err) {
			err = late
		}
		r.reply, r.err, err = "", unavailable(err), nil
	}
	d.lock.Lock()
	given = s.late == nil
	d.giveBack(s)
	d.lock.Unlock()
	return true, given, err
}

// interruptedBy has a connection stop waiting when a context is canceled. The function that it returns ends that, and reports
// whether it has happened; it is nil for a context that cannot be canceled.
func interruptedBy(ctx context.Context, conn *resp.Conn) func() bool {
	if ctx.Done() == nil {
		return nil
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		conn.Wait(past)
		close(done)
	})
	return func() bool {
		if stop() {
			return false
		}
		<-done
		return true
	}
}

// one sends a request alone, with the script if the server does not know it.
func (d *dispatcher) one(ctx context.Context, conn *resp.Conn, r *request, until time.Time) (respclient.Reply, error) {
	for inFull := false; ; inFull = true {
		d.command(conn, []*request{r}, inFull)
		if err := conn.Send(until); err != nil {
			return respclient.Reply{}, err
		}
		if ctx.Err() != nil { // before the time until which it waits was set
			conn.Wait(past)
		}
		var reply respclient.Reply
		var err error
		if d.inFlight.Load() == 1 { // or the others need the processors more
			reply, err = conn.ReceiveSoon()
		} else {
			reply, err = conn.Receive()
		}
		if err != nil || inFull || !isNoScript(reply.Err()) {
			return reply, err
		}
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// wait waits until done, or returns why the caller waits no more.
func (r *request) wait(ctx context.Context, until time.Time, done <-chan struct{}) error {
	if left := time.Until(until); r.timer == nil {
		r.timer = time.NewTimer(left)
	} else {
		r.timer.Reset(left)
	}
	defer r.timer.Stop()
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
func (r *request) pause(ctx context.Context, until time.Time) error {
	passed := make(chan struct{})
	t := time.AfterFunc(apart, func() { close(passed) })
	defer t.Stop()
	return r.wait(ctx, until, passed)
}

// redirected reports whether a request has surely not run and is to be sent again, to another node perhaps, and whether it has to
// wait before.
func (d *dispatcher) redirected(r *request, redirects *int) (wait, again bool) {
	if r.err == nil {
		return false, false
	}
	if errors.Is(r.err, errGone) {
		return false, true
	}
	var e respclient.Error
	if !d.servers.cluster || !errors.As(r.err, &e) {
		return false, false
	}
	word, rest, _ := strings.Cut(string(e), " ")
	switch word {
	case "MOVED", "ASK":
		_, address, _ := strings.Cut(rest, " ")
		if *redirects++; *redirects > maxRedirects || address == "" {
			return false, false
		}
		r.to, r.asking = place(address, r.by), word == "ASK"
		d.watchSoon()
		return false, true
	case "TRYAGAIN":
		wait = r.alone
		r.to, r.asking, r.alone = "", false, true
		return wait, true
	case "CLUSTERDOWN":
		d.watchSoon()
	}
	return false, false
}

func isNoScript(err error) bool {
	var e respclient.Error
	return errors.As(err, &e) && strings.HasPrefix(string(e), "NOSCRIPT")
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
	r.keys, r.args, r.reply, r.err = nil, nil, "", nil
	r.to, r.by, r.asking, r.alone = "", "", false, false
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

// send sends what waits in a lane until the dispatcher is closed, or the lane is gone.
func (d *dispatcher) send(s *sender) {
	defer s.disconnect()
	batch := make([]*request, 0, maxSent)
	d.lock.Lock()
	defer d.lock.Unlock()
	for {
		for s.use != busy {
			s.wake.Wait()
		}
		switch {
		case s.late != nil:
			d.unlocked(func() { d.receiveLate(s) })
		case d.closed || s.lane.gone:
			batch = s.lane.take(batch[:0], len(s.lane.senders)*maxSent) // or more, in the next round
			if len(batch) == 0 {
				s.use = ended
				return
			}
			err := store.ErrClosed
			if !d.closed {
				err = unavailable(errGone)
			}
			d.unlocked(func() { d.fail(batch, err) })
		case s.lane.first == nil:
			s.use = idle
		default:
			d.unlocked(func() { batch = d.sendBatch(s, batch) })
		}
	}
}

// unlocked calls f without the lock.
func (d *dispatcher) unlocked(f func()) {
	d.lock.Unlock()
	f()
	d.lock.Lock()
}

// take takes up to n requests from the queue.
func (l *lane) take(batch []*request, n int) []*request {
	for l.first != nil && len(batch) < n {
		r := l.first
		l.remove(r)
		batch = append(batch, r)
	}
	return batch
}

// sendBatch sends what waits in the lane of a sender, after it has connected.
func (d *dispatcher) sendBatch(s *sender, batch []*request) []*request {
	var err error
	if !d.usable(s) {
		s.disconnect()
		err = d.connect(s)
	}
	d.lock.Lock()
	batch = s.lane.take(batch[:0], maxSent)
	if s.lane.first != nil { // there is more than one sender can take
		if other := s.lane.idle(); other != nil {
			other.start()
		}
	}
	d.lock.Unlock()
	live := batch[:0]
	for _, r := range batch {
		if r.state.Load() == abandoned { // no caller waits, and the server has not seen it
			d.finish(r)
			continue
		}
		live = append(live, r)
	}
	switch {
	case err != nil:
		d.fail(live, unavailable(err))
	case len(live) > 0:
		d.exchange(s, live)
	}
	clear(batch)
	if len(live) > 1 {
		runtime.Gosched() // callers that come back at once are in the next batch
	}
	return batch
}

// fail has requests fail that were not sent.
func (d *dispatcher) fail(batch []*request, err error) {
	for _, r := range batch {
		d.answer(r, "", err)
	}
	clear(batch)
}

// receiveLate reads a reply for which its caller has not waited.
func (d *dispatcher) receiveLate(s *sender) {
	s.conn.Wait(s.sent.Add(d.patience))
	if _, err := s.conn.Receive(); err != nil {
		s.disconnect()
		d.watchSoon()
	}
	r := s.late
	s.late = nil
	d.finish(r)
}

// exchange sends requests and hands out the replies. Where the server does not know the script, which then has not run, it is
// sent with the first that met this, and the others follow.
func (d *dispatcher) exchange(s *sender, batch []*request) {
	calls := d.calls(batch)
	inFull := false
	for len(calls) > 0 {
		for i, call := range calls {
			if call[0].asking {
				s.conn.Command("ASKING")
			}
			d.command(s.conn, call, inFull && i == 0)
		}
		err := s.conn.Send(time.Now().Add(d.patience))
		left := calls[:0]
		for i, call := range calls {
			var reply respclient.Reply
			if err == nil && call[0].asking {
				_, err = s.conn.Receive() // if it was refused, the next one says so
			}
			if err == nil {
				reply, err = s.conn.Receive()
			}
			switch {
			case err != nil:
				if isTimeout(err) {
					err = errLate
				}
				d.fail(call, unavailable(err))
			case isNoScript(reply.Err()) && (!inFull || i > 0):
				left = append(left, call)
			default:
				d.replied(s, call, reply)
			}
		}
		if err != nil {
			s.disconnect()
			d.watchSoon()
			d.failAll(left, err)
			return
		}
		calls, inFull = left, true
	}
}

func (d *dispatcher) failAll(calls [][]*request, err error) {
	for _, call := range calls {
		d.fail(call, unavailable(err))
	}
}

// calls makes requests calls of the script, of which each has the keys of one slot.
func (d *dispatcher) calls(batch []*request) [][]*request {
	if d.servers.cluster {
		slices.SortStableFunc(batch, func(a, b *request) int { return int(a.slot) - int(b.slot) })
	}
	group(batch)
	calls := make([][]*request, 0, 1+len(batch)/maxBatch)
	for len(batch) > 0 {
		n := 1
		for n < len(batch) && n < maxBatch && batch[n-1].joins() && batch[n].joins() && batch[n].slot == batch[0].slot {
			n++
		}
		calls = append(calls, batch[:n:n])
		batch = batch[n:]
	}
	return calls
}

// groupSeed is of the hashes by which group finds keys.
var groupSeed = maphash.MakeSeed() //nolint:gochecknoglobals // a constant of the process

// group has requests for the same single key follow each other, at the place of the first: the script takes of a record as often
// as that is asked for in turn, and reads and writes it once. Those of one key keep their order.
func group(batch []*request) {
	const slots = 2 * maxSent
	var (
		heads [slots]uint16 // by hash, the first request of a key, from 1
		next  [maxSent]uint16
		last  [maxSent]uint16 // of a first request
		apart bool
	)
	for i, r := range batch {
		last[i] = uint16(i)
		if len(r.keys) != 1 {
			continue
		}
		at := maphash.String(groupSeed, r.keys[0]) % slots
		for heads[at] != 0 && batch[heads[at]-1].keys[0] != r.keys[0] {
			at = (at + 1) % slots
		}
		if heads[at] == 0 {
			heads[at] = uint16(i + 1)
			continue
		}
		head := heads[at] - 1
		apart = apart || int(last[head]) != i-1
		next[last[head]] = uint16(i)
		last[head], last[i] = uint16(i), maxSent // it is none
	}
	if !apart {
		return
	}
	var all [maxSent]*request
	n := copy(all[:], batch)
	batch = batch[:0]
	for i, r := range all[:n] {
		if last[i] == maxSent {
			continue
		}
		batch = append(batch, r)
		for i := next[i]; i != 0; i = next[i] {
			batch = append(batch, all[i])
		}
	}
}

// joins reports whether a request can be one of several in a call of the script.
func (r *request) joins() bool {
	return !r.alone && !r.asking && len(r.keys) < 256 && len(r.args) < 256
}

// added is what a request adds to those that the one before it in a call has: nothing if each has one and they are equal.
func added(before, own []string) []string {
	if len(before) == 1 && len(own) == 1 && before[0] == own[0] {
		return nil
	}
	return own
}

// command adds a call of the script for requests: for one its keys and arguments, for several those of all, and before the
// arguments a zero, and how many keys and arguments each adds to those of the request before it, in a byte each.
func (d *dispatcher) command(conn *resp.Conn, call []*request, inFull bool) {
	keys, args := 0, 0
	var buf [1 + 2*maxBatch]byte
	layout := buf[:1]
	before := &request{}
	for _, r := range call {
		k, a := len(added(before.keys, r.keys)), len(added(before.args, r.args))
		keys += k
		args += a
		layout = append(layout, byte(k), byte(a))
		before = r
	}
	if len(call) > 1 {
		args++
	}
	conn.Begin(3 + keys + args)
	if inFull {
		conn.Arg("EVAL")
		conn.Arg(d.script)
	} else {
		conn.Arg("EVALSHA")
		conn.Arg(d.digest)
	}
	conn.Arg(strconv.Itoa(keys))
	before = &request{}
	for _, r := range call {
		for _, key := range added(before.keys, r.keys) {
			conn.Arg(key)
		}
		before = r
	}
	if len(call) > 1 {
		conn.Arg(string(layout))
	}
	before = &request{}
	for _, r := range call {
		for _, arg := range added(before.args, r.args) {
			conn.Arg(arg)
		}
		before = r
	}
}

// replied hands out what was replied to a call.
func (d *dispatcher) replied(s *sender, call []*request, reply respclient.Reply) {
	if len(call) == 1 {
		call[0].by = s.address
		text, err := textOf(reply)
		s.heed(err)
		d.answer(call[0], text, err)
		return
	}
	list, err := reply.List()
	s.heed(err)
	if err == nil && len(list) != len(call) {
		err = errReply
	}
	for i, r := range call {
		r.by = s.address
		if err != nil {
			d.answer(r, "", unavailable(err))
			continue
		}
		text, err := textOf(list[i])
		s.heed(err)
		d.answer(r, text, err)
	}
}

// textOf is what the script replied to one request.
func textOf(reply respclient.Reply) (string, error) {
	text, err := reply.Text()
	if err != nil {
		return "", unavailable(err)
	}
	return text, nil
}

func (d *dispatcher) close() {
	d.lock.Lock()
	if d.closed {
		d.lock.Unlock()
		return
	}
	d.closed = true
	for _, l := range d.lanes.byAddress {
		for _, s := range l.senders {
			if s.use == idle {
				s.start()
			}
		}
	}
	d.lock.Unlock()
	d.end()
	d.senders.Wait()
	d.lanes.refreshes.Wait()
}
