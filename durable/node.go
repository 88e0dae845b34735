package durable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/store"
)

// Peer asks the owner in another process.
type Peer interface {
	// Call has the owner carry a call out. One that asks for permits is withdrawn if ctx ends. If the connection is lost before
	// the result has come, that has an error.
	Call(ctx context.Context, c *Call) Result
	// Time is the latest time of the limits that the owner has told, in Unix nanoseconds, and when it has told one last. That
	// is the zero time if it has told none. An owner tells it each second: one that has not for 3 s counts as not reached.
	Time() (unix int64, heard time.Time)
	// Done is closed when the connection has ended: nothing can be asked any more.
	Done() <-chan struct{}
	// Close ends the connection. Calls that wait fail.
	Close() error
}

// NodeOptions configure a [Node].
type NodeOptions struct {
	// Engine is what the cluster agrees by. Required. It is not closed by the node.
	Engine Engine
	// Address is what other nodes reach this one by. Required, unless Follower is set.
	Address string
	// Dial connects to the owner at an address. It must not wait for the connection longer than ctx lasts. Required, unless
	// this is the only node.
	Dial func(ctx context.Context, address string) (Peer, error)
	// Follower keeps this node from becoming the owner.
	Follower bool
	// Owner configures this node as the owner.
	Owner OwnerOptions
	// Requeue moves a request whose owner has gone to the end of the next owner's queue, for as long as the request may wait.
	// Default: false, it fails at once, and the caller decides.
	Requeue bool
	// OwnerWait is how long a request waits at most where there is no owner: from 0 to 1 min. Default: 5 s.
	OwnerWait time.Duration
	// Logger logs which node owns the limits. Default: nil, silent.
	Logger *slog.Logger
}

// Node is a process of the cluster. It decides itself if it is the owner, and asks the owner otherwise, so that callers need not
// know. It has two goroutines of its own, and those of an [Owner] while it is one, until Close. The zero Node is not usable:
// call [NewNode].
type Node struct {
	options NodeOptions
	ctx     context.Context //nolint:containedctx // until Close
	end     context.CancelFunc
	work    sync.WaitGroup

	// of follow alone
	unreached repeated  // why the owner cannot be reached
	dropped   repeated  // that the connection was lost
	since     time.Time // when it was made
	brief     int       // how many in a row were lost at once
	said      Ownership // of which the log says that it is connected

	mu      sync.Mutex
	owner   *Owner // if this node is the owner
	peer    Peer   // if another one is, and it can be reached
	address string
	epoch   int64
	named   time.Time     // when address and epoch were heard of, or the owner was connected to
	heard   told          // the time of the limits, as of the last owner that was heard of
	changed chan struct{} // closed when any of these changes
	closed  bool
	lost    time.Time     // since when there is no owner that can be reached, zero if there is one: see noteOwner
	without time.Duration // for how long there was none before
	terms   int64
	counted *Owner     // the last one that this node was, until its counters are in past
	until   time.Time  // until when it is not to be the owner
	rests   bool       // it is not, and does not try to be
	stop    func()     // ends what campaign does
	past    OwnerStats // of the terms before
}

// NewNode joins a cluster. The error is an *[weir.OptionError], or that of the engine.
func NewNode(o NodeOptions) (*Node, error) {
	switch {
	case o.Engine == nil:
		return nil, &weir.OptionError{Option: "NodeOptions.Engine", Value: "nil", Accepted: "an engine"}
	case o.Address == "" && !o.Follower:
		return nil, &weir.OptionError{Option: "NodeOptions.Address", Value: `""`, Accepted: "what other nodes reach this one by"}
	case o.OwnerWait < 0 || o.OwnerWait > time.Minute:
		return nil, &weir.OptionError{Option: "NodeOptions.OwnerWait", Value: o.OwnerWait.String(), Accepted: "from 0 to 1m"}
	case o.OwnerWait == 0:
		o.OwnerWait = 5 * time.Second //nolint:mnd // the default
	}
	var err error
	if o.Owner, err = o.Owner.checked(); err != nil {
		return nil, err
	}
	n := &Node{options: o, changed: make(chan struct{}), lost: time.Now()}
	n.ctx, n.end = context.WithCancel(context.Background())
	n.stop = func() {}
	watch, err := o.Engine.Watch(n.ctx)
	if err != nil {
		n.end()
		return nil, fmt.Errorf("weir: who owns the limits cannot be watched: %w", err)
	}
	n.work.Go(func() { n.follow(watch) })
	if !o.Follower {
		n.work.Go(n.campaign)
	}
	return n, nil
}

// retryCampaign is how long to wait after a campaign has failed.
const retryCampaign = 200 * time.Millisecond

// campaign makes this node the owner as often as it is elected.
func (n *Node) campaign() {
	var failed repeated
	for n.ctx.Err() == nil {
		ctx, rest := n.round()
		if rest > 0 {
			clock.Sleep(n.ctx, rest)
			continue
		}
		term, err := n.options.Engine.Campaign(ctx, n.options.Address)
		if err != nil {
			if ctx.Err() != nil {
				continue
			}
			if failed.tell(err) {
				n.warn("campaigning for the limits has failed", err)
			}
			if errors.Is(err, ErrEngineClosed) { // which stays so
				return
			}
			clock.Sleep(ctx, retryCampaign)
			continue
		}
		if !n.own(term, ctx.Done()) {
			return
		}
	}
}

// round begins what campaign does until it is told to stop. It returns how long this node is not to be the owner instead.
func (n *Node) round() (ctx context.Context, rest time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stop()
	ctx, n.stop = context.WithCancel(n.ctx)
	rest = time.Until(n.until)
	if n.rests = rest > 0; n.rests {
		close(n.changed)
		n.changed = make(chan struct{})
	}
	return ctx, rest
}

// own is the owner until the term ends, or it is to stop. It returns false if the node cannot be one.
func (n *Node) own(term Term, stop <-chan struct{}) bool {
	n.mu.Lock()
	n.hear(n.peer)
	heard := n.heard
	n.mu.Unlock()
	owner, err := newOwner(term, n.options.Owner, heard)
	if err != nil { // was not checked before
		n.warn("the options of the owner are wrong", err)
		_ = term.Resign(n.ctx)
		return false
	}
	n.set(func() {
		n.owner, n.counted = owner, owner
		n.terms++
	})
	n.info("this node owns the limits", "epoch", term.Epoch())
	select {
	case <-term.Done():
	case <-stop:
	}
	n.set(func() { n.owner, n.heard = nil, owner.time })
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	err = owner.Stop(ctx)
	select {
	case <-stop:
		if err != nil {
			n.warn("the limits could not be handed over", err)
		}
	default: // the term was over before
	}
	n.countPast()
	return true
}

// HandOver ends the term of this node if it is the owner, as [Node.Close] does, and keeps it from being the owner for so long:
// for one that is about to leave the cluster, and asks the owner until then. It returns when another one can be the owner, or
// ctx ends. The error is an *[weir.OptionError] if away is not positive.
func (n *Node) HandOver(ctx context.Context, away time.Duration) error {
	switch {
	case away <= 0:
		return &weir.OptionError{Option: "away", Value: away.String(), Accepted: "more than 0"}
	case n.options.Follower:
		return nil
	}
	n.mu.Lock()
	n.until = time.Now().Add(away)
	if !n.rests {
		n.stop()
	}
	n.mu.Unlock()
	for {
		n.mu.Lock()
		rests, changed, closed := n.rests, n.changed, n.closed
		n.mu.Unlock()
		switch {
		case closed:
			return ErrNodeClosed
		case rests:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err() //nolint:wrapcheck // of the caller
		}
	}
}

// stopTime is how long an owner may take to hand over.
const stopTime = 5 * time.Second

// follow keeps a connection to the owner.
func (n *Node) follow(watch <-chan Ownership) {
	var redial <-chan time.Time
	var known Ownership
	for {
		var lost <-chan struct{}
		var look <-chan time.Time
		if _, peer, _, _ := n.route(); peer != nil {
			lost, look = peer.Done(), time.After(n.lookAgain())
		}
		select {
		case <-look:
			continue
		case <-lost:
			n.dropPeer()
			redial = time.After(n.lostPeer())
			continue
		case o, ok := <-watch:
			if !ok {
				n.dropPeer()
				return
			}
			if o == known {
				continue
			}
			known = o
		case <-redial:
		case <-n.ctx.Done():
			n.dropPeer()
			return
		}
		redial = nil
		for again := true; again; {
			var done bool
			if known, again, done = n.connect(known, watch); !again && !done {
				redial = time.After(retryCampaign)
			}
		}
	}
}

// mostBrief is how many connections in a row that are lost at once are made again without a longer pause.
const mostBrief = 10

// lostPeer logs that the connection to the owner was lost, and returns when to make it again: soon, unless the other process
// accepts connections and does not keep them.
func (n *Node) lostPeer() (pause time.Duration) {
	if n.dropped.tell(errOwnerGone) {
		n.said = Ownership{}
		n.warn("the connection to the owner of the limits was lost", errOwnerGone)
	}
	if n.brief++; time.Since(n.since) > retryCampaign {
		n.brief = 0
	}
	if n.brief > mostBrief {
		return retryCampaign
	}
	return retryNotOwner
}

func (n *Node) dropPeer() {
	var old Peer
	n.set(func() {
		n.hear(n.peer)
		old, n.peer = n.peer, nil
	})
	if old == nil {
		return
	}
	n.work.Go(func() { // the results of an owner that stops are on their way
		select {
		case <-old.Done():
		default:
			clock.Sleep(n.ctx, drainTime)
		}
		_ = old.Close()
	})
}

// drainTime is for how long an owner that is none any more can still send results.
const drainTime = 100 * time.Millisecond

// connect connects to the owner, if it is another node, and reports whether there is nothing left to do. If it hears of another
// owner meanwhile, it does not wait any longer, and returns that one, which must be connected to.
func (n *Node) connect(o Ownership, watch <-chan Ownership) (now Ownership, again, done bool) {
	n.dropPeer()
	n.set(func() {
		if o.Epoch != n.epoch || o.Address != n.address {
			n.epoch, n.address, n.named = o.Epoch, o.Address, time.Now()
		}
	})
	if o.Address == "" || o.Address == n.options.Address && !n.options.Follower {
		return o, false, true
	}
	if n.options.Dial == nil {
		n.warn("another node owns the limits", errors.New("weir: NodeOptions.Dial is not set"))
		return o, false, true
	}
	ctx, cancel := context.WithTimeout(n.ctx, time.Second)
	defer cancel()
	type dialed struct {
		peer Peer
		err  error
	}
	result := make(chan dialed, 1)
	go func() {
		peer, err := n.options.Dial(ctx, o.Address)
		result <- dialed{peer, err}
	}()
	for {
		select {
		case r := <-result:
			if r.err != nil {
				if n.unreached.tell(r.err) {
					n.warn("the owner of the limits cannot be reached", r.err)
				}
				return o, false, false
			}
			n.unreached = repeated{}
			if n.since = time.Now(); n.said != o {
				n.said = o
				n.info("another node owns the limits", "address", o.Address, "epoch", o.Epoch)
			}
			n.set(func() { n.peer, n.named = r.peer, time.Now() })
			return o, false, true
		case next, open := <-watch:
			if open && next == o {
				continue
			}
			cancel()
			if r := <-result; r.err == nil {
				_ = r.peer.Close()
			}
			return next, open, true // of a watch that has ended there is nothing to connect to, as the node ends
		}
	}
}

// set changes what is known of the owner, and wakes the goroutines that wait for that.
func (n *Node) set(f func()) {
	n.mu.Lock()
	f()
	n.noteOwner(time.Now())
	close(n.changed)
	n.changed = make(chan struct{})
	n.mu.Unlock()
}

func (n *Node) warn(what string, err error) {
	if n.options.Logger != nil {
		n.options.Logger.Warn(what, "error", err.Error())
	}
}

// repeated is an error that comes again with every attempt.
type repeated struct {
	began time.Time
	told  []string // since then
}

const (
	// repeatAfter is how long the same error is not told again.
	repeatAfter = 10 * time.Second
	// mostTold is how many errors are told in that time: some differ each time, as those with the port of a connection.
	mostTold = 3
)

// tell reports whether err is to be logged: it is another one, or was not for a while.
func (r *repeated) tell(err error) bool {
	now, text := time.Now(), err.Error()
	if now.Sub(r.began) >= repeatAfter {
		r.began, r.told = now, r.told[:0]
	}
	if len(r.told) == mostTold || slices.Contains(r.told, text) {
		return false
	}
	r.told = append(r.told, text)
	return true
}

func (n *Node) info(what string, args ...any) {
	if n.options.Logger != nil {
		n.options.Logger.Info(what, args...)
	}
}

// Ownership is which node owns the limits, as far as this one knows.
func (n *Node) Ownership() Ownership {
	n.mu.Lock()
	defer n.mu.Unlock()
	return Ownership{Address: n.address, Epoch: n.epoch}
}

// Owner is the owner if it is this node, otherwise nil.
func (n *Node) Owner() *Owner {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.owner
}

var (
	// ErrNodeClosed is returned if the node was closed. It matches [store.ErrClosed].
	ErrNodeClosed = fmt.Errorf("%w: the node is closed", store.ErrClosed)
	// ErrNoOwner is returned if no process owned the limits, or none that could be reached, for as long as could be waited.
	ErrNoOwner = fmt.Errorf("%w: no process owns the limits", store.ErrUnavailable)
)

// route is where to ask: an owner, a peer, or none yet, which a change may end.
func (n *Node) route() (owner *Owner, peer Peer, changed <-chan struct{}, closed bool) { //nolint:ireturn // there are several
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.owner, n.peer, n.changed, n.closed
}

// Close leaves the cluster. If the node is the owner, waiting requests are refused with ReasonClosed, and another node can take
// over at once.
func (n *Node) Close() error {
	n.mu.Lock()
	first := !n.closed
	n.closed = true
	n.mu.Unlock()
	if first {
		n.set(func() {})
		n.end()
	}
	n.work.Wait()
	return nil
}
