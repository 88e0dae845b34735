package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/internal/respclient"
	"github.com/weirhq/weir/store"
	"github.com/weirhq/weir/store/redis/internal/resp"
)

// lane is a queue of requests with senders of its own: one for each master of a cluster, so that one that does not answer does
// not keep the others' requests waiting, or else one for everything.
type lane struct {
	address     string // of a master of a cluster; others are looked up
	first, last *request
	senders     []*sender
	gone        bool // the address is no longer that of a master

	// These are kept for the masters of a cluster. Times are since lanes.began.
	answered atomic.Int64 // when the request began that was answered last, 0 if none was
	row      atomic.Int64 // requests in a row that have failed, which changes under the lock
	since    int64        // when the first of them began, of the lock
	until    int64        // when one is sent again if there are laneFailures, of the lock
}

// sender has a connection to the server of a lane, over which it sends what waits there.
type sender struct {
	lane *lane
	use  use
	wake *sync.Cond // when use becomes busy

	// These belong to the sender while it is busy, and to a caller while it is lent.
	conn    *resp.Conn // nil without
	address string     // to which it is
	since   time.Time  // when it was made
	demoted bool       // its server is no longer the master: the name may lead to another one by now
	// late is a request whose caller has given up before the server replied. It was sent at sent.
	late *request
	sent time.Time
}

// use is what a sender and its connection are used for.
type use byte

const (
	idle  use = iota
	busy      // by the sender, for what waits in the lane
	lent      // by a caller, for its request alone
	ended     // the sender has returned
)

func (l *lane) add(r *request) {
	r.lane, r.before, r.behind = l, l.last, nil
	if l.last == nil {
		l.first = r
	} else {
		l.last.behind = r
	}
	l.last = r
}

func (l *lane) remove(r *request) {
	if r.before == nil {
		l.first = r.behind
	} else {
		r.before.behind = r.behind
	}
	if r.behind == nil {
		l.last = r.before
	} else {
		r.behind.before = r.before
	}
	r.lane, r.before, r.behind = nil, nil, nil
}

// idle is a sender that is not used, one with a connection if there is any; or nil.
func (l *lane) idle() *sender {
	var found *sender
	for _, s := range l.senders {
		if s.use == idle {
			if s.conn != nil {
				return s
			}
			if found == nil {
				found = s
			}
		}
	}
	return found
}

// start has a sender send what waits.
func (s *sender) start() {
	s.use = busy
	s.wake.Signal()
}

const (
	// laneFailures is how many requests in a row must fail until those for a lane fail at once.
	laneFailures = 5
	// laneWait is how long a request must have waited before the deadline of its caller counts as a failure.
	laneWait = 10 * time.Millisecond
	// maxLanes is how many lanes there are at most, which is more than a cluster has masters.
	maxLanes = 1024
	// lanesFor is how long it is believed which slots the masters have, or which server is the master that sentinels name.
	// Requests that go to the wrong one learn it there.
	lanesFor = 5 * time.Second
	// lanesRetry is after how long it is asked again if there is a reason to.
	lanesRetry = 200 * time.Millisecond
	slots      = 16384
)

// lanes are the lanes of a dispatcher.
type lanes struct {
	byAddress map[string]*lane // of the lock of the dispatcher
	bySlot    [slots]*lane
	one       *lane                  // for what is in no known slot, and for everything if there is no cluster
	master    atomic.Pointer[string] // the address that sentinels named last
	began     time.Time
	refreshed atomic.Int64 // when it was asked, in nanoseconds since began, whatever the wall clock is set to
	running   atomic.Bool  // it is being asked
	refreshes sync.WaitGroup
}

// open opens the first lanes.
func (d *dispatcher) open(conn *resp.Conn, address string, all []ranges) {
	d.lanes.began = time.Now()
	d.lanes.byAddress = make(map[string]*lane)
	d.lanes.master.Store(&address)
	d.lock.Lock()
	defer d.lock.Unlock()
	d.lanes.one = d.lane(address)
	first := d.lanes.one.senders[0]
	first.conn, first.address, first.since = conn, address, time.Now()
	if d.servers.cluster {
		d.arrange(all)
	}
}

// lane is the lane of an address, or nil if there are too many. The caller has the lock.
func (d *dispatcher) lane(address string) *lane {
	if l := d.lanes.byAddress[address]; l != nil {
		return l
	}
	if len(d.lanes.byAddress) >= maxLanes || d.closed {
		return nil
	}
	l := &lane{address: address}
	d.lanes.byAddress[address] = l
	for range d.perLane {
		s := &sender{lane: l, wake: sync.NewCond(&d.lock)}
		l.senders = append(l.senders, s)
		d.senders.Go(func() { d.send(s) })
	}
	return l
}

// laneOf is the lane of a request, or nil if there are too many. The caller has the lock.
func (d *dispatcher) laneOf(r *request) *lane {
	if !d.servers.cluster {
		return d.lanes.one
	}
	if r.to != "" {
		l := d.lane(r.to)
		if l != nil && !r.asking {
			d.lanes.bySlot[r.slot] = l
		}
		return l
	}
	if l := d.lanes.bySlot[r.slot]; l != nil {
		return l
	}
	return d.lanes.one
}

// arrange has the slots served by the lanes of their masters, and reports whether that is known of all. The caller has the lock.
func (d *dispatcher) arrange(all []ranges) bool {
	covered := 0
	masters := make(map[string]bool)
	for _, r := range all {
		l := d.lane(r.address)
		if l == nil {
			return false
		}
		masters[r.address] = true
		for slot := r.from; slot <= r.to; slot++ {
			d.lanes.bySlot[slot] = l
		}
		covered += r.to - r.from + 1
	}
	if covered < slots {
		return false
	}
	d.lanes.one = d.lanes.bySlot[0]
	for address, l := range d.lanes.byAddress {
		if !masters[address] {
			l.gone = true
			delete(d.lanes.byAddress, address)
			for _, s := range l.senders {
				if s.use == idle {
					s.start()
				}
			}
		}
	}
	return true
}

// spared reports whether a request for a lane fails at once: its master does not answer, and another one does. A request is let
// through once in a while, and no other meanwhile; all are if no master answers. The caller has the lock.
func (d *dispatcher) spared(l *lane, now int64) bool {
	if l.row.Load() < laneFailures || !d.othersAnswer(l) {
		return false
	}
	if now >= l.until {
		l.until = now + int64(d.patience)
		return false
	}
	return true
}

// othersAnswer reports whether another master has answered since a moment before a lane began to fail, and not failed after that.
// The caller has the lock.
func (d *dispatcher) othersAnswer(l *lane) bool {
	for _, other := range d.lanes.byAddress {
		if at := other.answered.Load(); other != l && at != 0 && at >= l.since-int64(d.patience) && other.row.Load() == 0 {
			return true
		}
	}
	return false
}

// heard takes note of what became of a request for the lane of a master, which began at a time, and returns its error.
func (d *dispatcher) heard(ctx context.Context, l *lane, began int64, err error) error {
	if err == nil || isRedirect(err) {
		l.answered.Store(max(began, 1))
		if l.row.Load() != 0 {
			d.lock.Lock()
			l.row.Store(0)
			d.lock.Unlock()
		}
		return err
	}
	now := int64(time.Since(d.lanes.began))
	canceled := ctx.Err() != nil && (errors.Is(ctx.Err(), context.Canceled) || now-began < int64(laneWait))
	if canceled || errors.Is(err, errGone) || errors.Is(err, store.ErrClosed) { // which say nothing about the master
		return err
	}
	d.lock.Lock()
	if l.row.Add(1) == 1 {
		l.since = began
	}
	l.until = now + int64(d.patience)
	part := d.othersAnswer(l)
	d.lock.Unlock()
	if part {
		return fmt.Errorf("%w: %w", store.ErrPartUnavailable, err)
	}
	return err
}

// isRedirect reports whether a node of a cluster has replied that a request is to be sent elsewhere, or again.
func isRedirect(err error) bool {
	e, _ := errors.AsType[respclient.Error](err)
	word, _, _ := strings.Cut(string(e), " ")
	return word == "MOVED" || word == "ASK" || word == "TRYAGAIN"
}

// watch asks once in a while which servers are the masters. It returns the time since lanes.began if there may be several.
func (d *dispatcher) watch() (now int64) {
	if !d.servers.cluster && d.servers.sentinels == nil {
		return 0
	}
	now = int64(time.Since(d.lanes.began))
	if was := d.lanes.refreshed.Load(); now-was > int64(lanesFor) && d.lanes.refreshed.CompareAndSwap(was, now) {
		d.lock.Lock()
		if !d.closed && d.lanes.running.CompareAndSwap(false, true) {
			d.lanes.refreshes.Go(d.refresh)
		}
		d.lock.Unlock()
	}
	return now
}

// watchSoon has watch ask soon which servers are the masters, as a request found that they have changed.
func (d *dispatcher) watchSoon() {
	soon := int64(time.Since(d.lanes.began) + lanesRetry - lanesFor)
	for {
		was := d.lanes.refreshed.Load()
		if was <= soon || d.lanes.refreshed.CompareAndSwap(was, soon) {
			return
		}
	}
}

// refresh asks which servers are the masters, and has it asked soon again if that is not known of all slots afterwards.
func (d *dispatcher) refresh() {
	defer d.lanes.running.Store(false)
	ctx, cancel := context.WithTimeout(d.life, d.patience)
	defer cancel()
	if d.servers.sentinels != nil {
		if conn, address, err := d.servers.master(ctx); err == nil {
			conn.Close()
			d.lanes.master.Store(&address)
		}
		return
	}
	all, err := d.servers.ask(ctx, d.nodes())
	d.lock.Lock()
	defer d.lock.Unlock()
	if err != nil || !d.arrange(all) {
		d.watchSoon()
	}
}

// nodes are the masters of a cluster in any order, and then what was configured.
func (d *dispatcher) nodes() []string {
	d.lock.Lock()
	defer d.lock.Unlock()
	var list []string
	for address := range d.lanes.byAddress {
		list = append(list, address)
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] }) //nolint:gosec // no secret
	return append(list, d.servers.addresses...)
}

// connect makes a connection for a sender.
func (d *dispatcher) connect(s *sender) (err error) {
	if d.servers.sentinels == nil {
		s.address = s.lane.address
		s.conn, err = d.servers.dialer.dial(d.life, &d.servers.login, s.address)
	} else if s.conn, s.address, err = d.servers.master(d.life); err == nil {
		address := s.address
		d.lanes.master.Store(&address)
	}
	s.since = time.Now()
	if err != nil {
		s.conn = nil
		d.watchSoon()
	}
	return err
}

// disconnect ends the connection of a sender.
func (s *sender) disconnect() {
	if s.conn != nil {
		s.conn.Close()
		s.conn, s.demoted = nil, false
	}
}

// demotedFor is how old a connection must be to be made anew where its server is a replica.
const demotedFor = time.Second

// heed takes note of an error that the server replied: as a replica it may have been the master before, and the name or the
// address leads to another server by now.
func (s *sender) heed(err error) {
	e, ok := errors.AsType[respclient.Error](err)
	if ok && (strings.Contains(string(e), "READONLY ") || strings.HasPrefix(string(e), "MASTERDOWN ")) {
		s.demoted = time.Since(s.since) >= demotedFor
	}
}

// usable reports whether the connection of a sender can be used, and leads where requests go now.
func (d *dispatcher) usable(s *sender) bool {
	if s.conn == nil || s.demoted || s.conn.Ended() {
		return false
	}
	return d.servers.sentinels == nil || s.address == *d.lanes.master.Load()
}
