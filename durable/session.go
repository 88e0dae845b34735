package durable

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Serve answers the requests of another node until the stream ends or ctx does, and withdraws those that are unanswered then.
// Requests that come while this node is not the owner are answered Unavailable. It closes the stream.
func (n *Node) Serve(ctx context.Context, s Stream) error {
	session := &session{node: n, asked: make(map[uint64]Ticket), calls: make(map[uint64]context.CancelFunc)}
	session.out.init()
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	defer context.AfterFunc(n.ctx, func() { _ = s.Close() })() //nolint:contextcheck // it is that of the node
	var sending sync.WaitGroup
	sending.Go(func() {
		_ = session.out.send(s)
		session.out.close()
		_ = s.Close()
	})
	err := session.receive(ctx, s)
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

	mu    sync.Mutex
	asked map[uint64]Ticket // those that wait
	calls map[uint64]context.CancelFunc
	count int // those that have not been answered
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
		switch m.Kind {
		case MessageAsk:
			s.ask(ctx, m.ID, m.Request)
		case MessageWithdraw:
			s.withdraw(m.ID)
		case MessageSettle:
			s.begin(&m, func() { s.settle(ctx, &m) })
		case MessageCall:
			asked, cancel := context.WithCancel(ctx)
			s.mu.Lock()
			s.calls[m.ID] = cancel // before it can be withdrawn
			s.mu.Unlock()
			s.begin(&m, func() { s.call(asked, &m) })
		default:
			return errMessage
		}
	}
}

func (s *session) ask(ctx context.Context, id uint64, r Request) {
	s.mu.Lock()
	s.count++
	full := s.count > mostOutstanding
	s.mu.Unlock()
	if full {
		s.answer(id, refusedBy(&r, Unavailable, errBusy))
		return
	}
	if owner := s.node.Owner(); owner != nil {
		s.enqueue(owner, id, r) //nolint:contextcheck // a record is read for everybody
		return
	}
	s.work.Go(func() { // others may have heard of the election first
		owner := s.node.elected(ctx)
		if owner == nil {
			s.answer(id, refusedBy(&r, Unavailable, errNotOwner))
			return
		}
		s.enqueue(owner, id, r) //nolint:contextcheck // a record is read for everybody
	})
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

func (s *session) enqueue(owner *Owner, id uint64, r Request) {
	answered := false
	ticket := owner.Enqueue(r, func(a Answer) {
		s.mu.Lock()
		answered = true
		delete(s.asked, id)
		s.mu.Unlock()
		s.answer(id, a)
	})
	s.mu.Lock()
	gone := s.asked == nil
	if !answered && !gone {
		s.asked[id] = ticket
	}
	s.mu.Unlock()
	if gone {
		ticket.Cancel()
	}
}

func (s *session) answer(id uint64, a Answer) {
	s.mu.Lock()
	s.count--
	s.mu.Unlock()
	b, _ := AppendMessage(nil, &Message{Kind: MessageAnswer, ID: id, Answer: a})
	s.out.put(b)
}

// withdraw withdraws what was asked.
func (s *session) withdraw(id uint64) {
	s.mu.Lock()
	ticket, cancel := s.asked[id], s.calls[id]
	s.mu.Unlock()
	ticket.Cancel()
	if cancel != nil {
		cancel()
	}
}

// begin has a goroutine answer a message, unless there are too many.
func (s *session) begin(m *Message, f func()) {
	s.mu.Lock()
	s.count++
	full := s.count > mostOutstanding
	s.mu.Unlock()
	switch {
	case !full:
		s.work.Go(f)
	case m.Kind == MessageCall:
		r := failed(errBusy)
		s.result(m.ID, &r)
	default:
		s.answer(m.ID, Answer{Outcome: Unavailable, Err: errBusy})
	}
}

func (s *session) settle(ctx context.Context, m *Message) {
	owner := s.node.elected(ctx)
	if owner == nil {
		s.answer(m.ID, Answer{Outcome: Unavailable, Err: errNotOwner})
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
	s.answer(m.ID, a)
}

func (s *session) call(ctx context.Context, m *Message) {
	r := failed(errNotOwner)
	if owner := s.node.elected(ctx); owner != nil {
		r = owner.Call(ctx, m.Call)
	}
	s.result(m.ID, &r)
}

func (s *session) result(id uint64, r *Result) {
	s.mu.Lock()
	s.count--
	if cancel := s.calls[id]; cancel != nil {
		cancel()
		delete(s.calls, id)
	}
	s.mu.Unlock()
	b, _ := AppendMessage(nil, &Message{Kind: MessageResult, ID: id, Result: r})
	s.out.put(b)
}

// end withdraws what waits.
func (s *session) end() {
	s.mu.Lock()
	asked, calls := s.asked, s.calls
	s.asked, s.calls = nil, nil
	for _, cancel := range calls {
		cancel()
	}
	s.mu.Unlock()
	for _, t := range asked {
		t.Cancel()
	}
}
