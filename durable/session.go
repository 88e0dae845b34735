package durable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Serve serves the requests of another node until the stream or ctx ends, and then withdraws those that wait. Requests that come
// while this node is not the owner end as Unavailable. It closes the stream.
func (n *Node) Serve(ctx context.Context, s Stream) error {
	mustContext(ctx)
	mustStream(s)
	session := &session{node: n, asked: make(map[uint64]asked)}
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
	asked       map[uint64]asked // what can be withdrawn, nil once the session has ended
	outstanding outstanding      // that has not been answered
	done        sync.Cond        // everything has been answered, or the session has ended
	early       []*early
	draining    bool // early is somebody's
}

// early is a request that has come while it was not known yet whether this node is the owner.
type early struct {
	id      uint64
	request Request
	weight  int
}

// asked is a request, or a call, that has not been answered.
type asked struct {
	ticket    Ticket             // of a request that has one
	cancel    context.CancelFunc // of a call
	early     *early             // of a request that the owner does not know yet
	withdrawn bool
}

func (a asked) withdraw() {
	if a.cancel != nil {
		a.cancel()
	}
	a.ticket.Cancel()
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
		s.out.room() // or who asks without reading the answers would fill the memory
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
		case MessageAsk:
			err = s.ask(ctx, m.ID, m.Request, weight)
		case MessageWithdraw:
			s.withdraw(m.ID)
		case MessageSettle:
			err = s.begin(ctx, &m, weight, func(ctx context.Context) { s.settle(ctx, &m, weight) })
		case MessageCall:
			err = s.begin(ctx, &m, weight, func(ctx context.Context) { s.call(ctx, &m, weight) })
		default:
			err = errMessage
		}
		if err != nil {
			return err
		}
	}
}

// enter counts a request, which is refused if it is full. A number that is in use is an error: what it was used for could not
// be withdrawn any more.
func (s *session) enter(id uint64, weight int, a asked) (full bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, used := s.asked[id]; used {
		return false, errMessage
	}
	if full = !s.outstanding.add(weight); !full && (a.cancel != nil || a.early != nil) {
		s.asked[id] = a
	}
	return full, nil
}

func (s *session) ask(ctx context.Context, id uint64, r Request, weight int) error {
	owner := s.node.Owner()
	var a asked
	s.mu.Lock()
	if owner == nil || s.draining {
		a.early = &early{id, r, weight}
	}
	s.mu.Unlock()
	full, err := s.enter(id, weight, a)
	switch {
	case err != nil:
		return err
	case full:
		s.send(&Message{Kind: MessageAnswer, ID: id, Answer: refusedBy(&r, Unavailable, errBusy)})
	case a.early != nil:
		s.wait(ctx, a.early)
	default:
		s.enqueue(owner, id, r, weight) //nolint:contextcheck // a record is read for everybody
	}
	return nil
}

// wait keeps a request until it is known whether this node is the owner: others may have heard of the election first. The
// owner is given them in the order in which they came (TestEarlyKeepOrder).
func (s *session) wait(ctx context.Context, e *early) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.early = append(s.early, e)
	if !s.draining {
		s.draining = true
		s.work.Go(func() { s.drain(s.node.elected(ctx)) }) //nolint:contextcheck // a record is read for everybody
	}
}

// drain answers those who have waited, if there is no owner, or gives them to it.
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
			s.asked[e.id] = asked{} // from now on it is withdrawn from the owner
		}
		s.mu.Unlock()
		switch {
		case !here:
		case owner == nil:
			s.answer(e.id, e.weight, refusedBy(&e.request, Unavailable, errNotOwner))
		default:
			s.enqueue(owner, e.id, e.request, e.weight)
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

func (s *session) enqueue(owner *Owner, id uint64, r Request, weight int) {
	answered := false
	ticket := owner.Enqueue(r, func(a Answer) {
		s.mu.Lock()
		answered = true
		s.mu.Unlock()
		s.answer(id, weight, a)
	})
	s.mu.Lock()
	gone := s.asked == nil || s.asked[id].withdrawn
	if !answered && !gone {
		s.asked[id] = asked{ticket: ticket}
	}
	s.mu.Unlock()
	if gone {
		ticket.Cancel()
	}
}

// send sends an answer.
func (s *session) send(m *Message) {
	b, _ := AppendMessage(nil, m)
	s.out.put(b)
}

// leave ends the session because the node ends. The owner tells all that wait Stopping: these answers, and the permits of those
// it has granted a moment before, are sent first, within drainTime.
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

// reply sends the answer to what was asked.
func (s *session) reply(m *Message, weight int) {
	b, _ := AppendMessage(nil, m)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outstanding.remove(weight)
	a := s.asked[m.ID]
	if a.cancel != nil {
		a.cancel()
	}
	delete(s.asked, m.ID)
	if !a.withdrawn && m.again() {
		b, _ = AppendMessage(nil, m)
	}
	s.out.put(b)
	if s.outstanding.count == 0 {
		s.done.Broadcast()
	}
}

// again makes an answer that the caller has gone one that the next owner can be asked, and reports whether it was such an answer.
// It is for what the peer has not withdrawn: then it is the session that ends, and the caller may still be there.
func (m *Message) again() bool {
	switch {
	case m.Kind == MessageAnswer && m.Answer.Outcome == Canceled:
		m.Answer.Outcome, m.Answer.Decision.Reason = Stopping, reasons[Stopping]
	case m.Kind == MessageAnswer && errors.Is(m.Answer.Err, context.Canceled):
		m.Answer.Err = errOwnerGone
	case m.Kind == MessageResult && m.Result.Outcome == Canceled:
		m.Result.Outcome = Stopping
		for i := range m.Result.Decisions {
			m.Result.Decisions[i].Reason = reasons[Stopping]
		}
	case m.Kind == MessageResult && errors.Is(m.Result.Err, context.Canceled):
		m.Result.Err = errOwnerGone
	default:
		return false
	}
	return true
}

func (s *session) answer(id uint64, weight int, a Answer) {
	s.reply(&Message{Kind: MessageAnswer, ID: id, Answer: a}, weight)
}

// withdraw withdraws what was asked.
func (s *session) withdraw(id uint64) {
	s.mu.Lock()
	a, here := s.asked[id]
	if here {
		a.withdrawn = true
		s.asked[id] = a
	}
	e := a.early
	if e != nil {
		a.early = nil // so that it is answered once
		s.asked[id] = a
	}
	s.mu.Unlock()
	if e != nil {
		s.answer(id, e.weight, refusedBy(&e.request, Canceled, nil))
		return
	}
	a.withdraw()
}

// begin has a goroutine answer a message, unless there are too many.
func (s *session) begin(ctx context.Context, m *Message, weight int, f func(ctx context.Context)) error {
	ctx, cancel := context.WithCancel(ctx)
	full, err := s.enter(m.ID, weight, asked{cancel: cancel})
	switch {
	case err == nil && !full:
		s.work.Go(func() { f(ctx) })
		return nil
	case !full:
	case m.Kind == MessageCall:
		r := failed(errBusy)
		s.send(&Message{Kind: MessageResult, ID: m.ID, Result: &r})
	default:
		s.send(&Message{Kind: MessageAnswer, ID: m.ID, Answer: Answer{Outcome: Unavailable, Err: errBusy}})
	}
	cancel()
	return err
}

func (s *session) settle(ctx context.Context, m *Message, weight int) {
	owner := s.node.elected(ctx)
	if owner == nil {
		s.answer(m.ID, weight, Answer{Outcome: Unavailable, Err: errNotOwner})
		return
	}
	var err error
	if m.Cancel {
		err = owner.Cancel(ctx, m.Reservation)
	} else {
		err = owner.Commit(ctx, m.Reservation, m.Actual)
	}
	a := Answer{Outcome: Granted}
	if err != nil {
		a = Answer{Outcome: Unavailable, Err: err}
	}
	s.answer(m.ID, weight, a)
}

func (s *session) call(ctx context.Context, m *Message, weight int) {
	r := failed(errNotOwner)
	if owner := s.node.elected(ctx); owner != nil {
		r = owner.Call(ctx, m.Call)
	}
	s.reply(&Message{Kind: MessageResult, ID: m.ID, Result: &r}, weight)
}

// end withdraws what waits.
func (s *session) end() {
	s.mu.Lock()
	all := s.asked
	s.asked = nil
	s.done.Broadcast()
	s.mu.Unlock()
	for _, a := range all {
		a.withdraw()
	}
}
