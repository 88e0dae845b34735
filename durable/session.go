package durable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirhq/weir"
)

// Serve serves the requests of another node until the stream or ctx ends, and then withdraws those that wait. Requests that come
// while this node is not the owner end as Unavailable. It closes the stream.
func (n *Node) Serve(ctx context.Context, s Stream) error {
	mustContext(ctx)
	mustStream(s)
	session := &session{node: n, asked: make(map[uint64]pending)}
	session.out.init()
	session.done.L = &session.mu
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	defer context.AfterFunc(n.ctx, func() { session.leave(s) })() //nolint:contextcheck // it is that of the node
	var sending sync.WaitGroup
	sending.Go(func() {
		_ = session.out.send(s)
		session.out.close()
		_ = s.Close()
	})
	ctx, end := context.WithCancel(ctx)
	session.work.Go(func() { session.tell(ctx) })
	err := session.receive(ctx, s)
	end()
	session.end()
	session.out.close()
	_ = s.Close()
	sending.Wait()
	session.work.Wait()
	return err
}

// session is what a node does for another one.
type session struct {
	node *Node
	out  outbox
	work sync.WaitGroup

	mu          sync.Mutex
	asked       map[uint64]pending // what can be withdrawn, nil once the session has ended
	outstanding outstanding        // that has no result yet
	done        sync.Cond          // every call has its result, or the session has ended
	early       []*early
	draining    bool // a goroutine has taken on early
}

// early is a call that has come while it was not known yet whether this node is the owner.
type early struct {
	id     uint64
	call   *Call
	weight int
}

// pending is a call without a result yet.
type pending struct {
	waiter    *waiter            // of a single one that the owner knows
	cancel    context.CancelFunc // of one that has a goroutine
	early     *early             // of one that the owner does not know yet
	withdrawn bool
}

func (p pending) withdraw() {
	switch {
	case p.cancel != nil:
		p.cancel()
	case p.waiter != nil:
		p.waiter.cancel()
	}
}

// tell tells the peer the time of the limits, for as long as this node is the owner.
func (s *session) tell(ctx context.Context) {
	timer := time.NewTimer(tellEvery)
	defer timer.Stop()
	for ctx.Err() == nil {
		owner, _, changed, closed := s.node.route()
		if closed {
			return
		}
		if owner != nil {
			s.send(&Message{Kind: MessageTime, Time: owner.time.on(time.Now())})
		}
		timer.Reset(tellEvery)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

func (s *session) receive(ctx context.Context, stream Stream) error {
	for {
		s.out.room() // a client that does not read results would fill the memory
		b, err := stream.Receive()
		if err != nil {
			return fmt.Errorf("%w", err)
		}
		m, err := ParseMessage(b)
		if err != nil {
			return err
		}
		weight := m.weight(len(b))
		switch m.Kind {
		case MessageCall:
			err = s.begin(ctx, m.ID, m.Call, weight)
		case MessageWithdraw:
			s.withdraw(m.ID)
		default:
			err = errMessage
		}
		if err != nil {
			return err
		}
	}
}

// begin begins a call, unless there are too many. A single one, which is enqueued in the order in which it has come, needs no
// goroutine.
func (s *session) begin(ctx context.Context, id uint64, c *Call, weight int) error {
	var p pending
	owner := s.node.Owner()
	if !c.single() {
		ctx, p.cancel = context.WithCancel(ctx)
	} else if owner == nil || s.drains() {
		p.early = &early{id, c, weight}
	}
	full, err := s.enter(id, weight, p)
	switch {
	case err != nil:
		p.withdraw()
	case full:
		p.withdraw()
		r := failed(errBusy)
		s.send(&Message{Kind: MessageResult, ID: id, Result: &r})
	case p.cancel != nil:
		s.work.Go(func() { s.call(ctx, id, c, weight) })
	case p.early != nil:
		s.wait(ctx, p.early)
	default:
		s.enqueue(owner, id, c, weight) //nolint:contextcheck // a record is read for all
	}
	return err
}

// enter counts a call, which is refused if it is full. A number that is in use is an error: what it was used for could not be
// withdrawn any more.
func (s *session) enter(id uint64, weight int, p pending) (full bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, used := s.asked[id]; used {
		return false, errMessage
	}
	if full = !s.outstanding.add(weight); !full && (p.cancel != nil || p.early != nil) {
		s.asked[id] = p
	}
	return full, nil
}

// drains reports whether calls wait for the owner, which others must not overtake.
func (s *session) drains() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// wait keeps a call until it is known whether this node is the owner: others may have heard of the election first. The
// owner is given them in the order in which they came (TestEarlyKeepOrder).
func (s *session) wait(ctx context.Context, e *early) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.early = append(s.early, e)
	if !s.draining {
		s.draining = true
		s.work.Go(func() { s.drain(s.node.elected(ctx)) }) //nolint:contextcheck // a record is read for all
	}
}

// drain gives early requests to the owner, or refuses them if there is none.
func (s *session) drain(owner *Owner) {
	for {
		s.mu.Lock()
		if len(s.early) == 0 {
			s.early, s.draining = nil, false
			s.mu.Unlock()
			return
		}
		e := s.early[0]
		s.early = s.early[1:]
		here := s.asked[e.id].early == e // otherwise it was withdrawn
		if here {
			s.asked[e.id] = pending{} // from now on it is withdrawn from the owner
		}
		s.mu.Unlock()
		switch {
		case !here:
		case owner == nil:
			s.reply(e.id, failed(errNotOwner), e.weight)
		default:
			s.enqueue(owner, e.id, e.call, e.weight)
		}
	}
}

// electedTime is how long a node that others take for the owner waits to hear so itself.
const electedTime = 500 * time.Millisecond

// elected is the owner if it is this node, or becomes it in a moment.
func (n *Node) elected(ctx context.Context) *Owner {
	timer := time.NewTimer(electedTime)
	defer timer.Stop()
	for {
		owner, _, changed, closed := n.route()
		if owner != nil || closed {
			return owner
		}
		if at := n.Ownership().Address; at != "" && at != n.options.Address {
			return nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *session) enqueue(owner *Owner, id uint64, c *Call, weight int) {
	d := make([]weir.Decision, 1)
	if owner.quick(context.Background(), &c.Ask, c.Charges, d) {
		s.reply(id, Result{Reason: d[0].Reason, Decisions: d}, weight)
		return
	}
	if err := c.checkSent(); err != nil {
		s.reply(id, failed(err), weight)
		return
	}
	answered := false
	w := owner.enqueue(c, func(w *waiter) {
		s.mu.Lock()
		answered = true
		s.mu.Unlock()
		s.reply(id, w.result(), weight)
	})
	s.mu.Lock()
	gone := s.asked == nil || s.asked[id].withdrawn
	if !answered && !gone {
		s.asked[id] = pending{waiter: w}
	}
	s.mu.Unlock()
	if gone {
		w.cancel()
	}
}

// send sends a result.
func (s *session) send(m *Message) {
	b, _ := AppendMessage(make([]byte, 0, usualBytes), m)
	s.out.put(b)
}

// leave ends the session because the node ends. The owner refuses all that wait with Stopping: these results, and
// those of requests that it allowed a moment before, are sent first, within drainTime.
func (s *session) leave(stream Stream) {
	defer func() { _ = stream.Close() }()
	late := time.AfterFunc(drainTime, func() { _ = stream.Close() })
	defer late.Stop()
	s.mu.Lock()
	for s.outstanding.count > 0 && s.asked != nil {
		s.done.Wait()
	}
	s.mu.Unlock()
	s.out.flush()
}

// reply sends the result of a call.
func (s *session) reply(id uint64, r Result, weight int) {
	m := &Message{Kind: MessageResult, ID: id, Result: &r}
	b, _ := AppendMessage(make([]byte, 0, usualBytes), m)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outstanding.remove(weight)
	p := s.asked[id]
	if p.cancel != nil {
		p.cancel()
	}
	delete(s.asked, id)
	if !p.withdrawn && r.again() {
		b, _ = AppendMessage(make([]byte, 0, usualBytes), m)
	}
	s.out.put(b)
	if s.outstanding.count == 0 {
		s.done.Broadcast()
	}
}

// again makes a result that the caller has gone one that the next owner can be asked, and reports whether it was such a result.
// It is for what the peer has not withdrawn: then it is the session that ends, and the caller may still be there.
func (r *Result) again() bool {
	switch {
	case r.Reason == weir.ReasonCanceled:
		r.Reason = weir.ReasonClosed
		for i := range r.Decisions {
			r.Decisions[i].Reason = weir.ReasonClosed
		}
	case errors.Is(r.Err, context.Canceled):
		r.Err = errOwnerGone
	default:
		return false
	}
	return true
}

// withdraw withdraws what was asked.
func (s *session) withdraw(id uint64) {
	s.mu.Lock()
	p, here := s.asked[id]
	e := p.early
	if here {
		p.withdrawn, p.early = true, nil // so that it has one result
		s.asked[id] = p
	}
	s.mu.Unlock()
	if e != nil {
		s.reply(id, refusedAll(e.call, weir.ReasonCanceled), e.weight)
		return
	}
	p.withdraw()
}

func (s *session) call(ctx context.Context, id uint64, c *Call, weight int) {
	r := failed(errNotOwner)
	if owner := s.node.elected(ctx); owner != nil {
		r = owner.call(ctx, c)
	}
	s.reply(id, r, weight)
}

// end withdraws what waits.
func (s *session) end() {
	s.mu.Lock()
	all := s.asked
	s.asked = nil
	s.done.Broadcast()
	s.mu.Unlock()
	for _, p := range all {
		p.withdraw()
	}
}
