package durable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirhq/weir/store"
)

// Stream carries messages between two nodes, in both directions, each of which is used by one goroutine at a time.
type Stream interface {
	// Send sends a message. It may wait until there is room.
	Send(message []byte) error
	// Receive waits for the next message. It fails for good once the stream has ended.
	Receive() ([]byte, error)
	// Close ends the stream: calls of Send and Receive return.
	Close() error
}

const (
	// mostOutstanding is how many requests of a stream can be unanswered, and mostOutstandingBytes how much room they and their
	// answers can take: more are answered Unavailable at once.
	mostOutstanding      = 100_000
	mostOutstandingBytes = 128 << 20
	// outstandingBytes is what a request takes beside its message, callBytes a call, which has a goroutine, and
	// adjustmentBytes an adjustment that is asked for.
	outstandingBytes = 256
	callBytes        = 8 << 10
	adjustmentBytes  = 640
)

// weight is how much room a message of a length takes until it has been answered.
func (m *Message) weight(length int) int {
	switch {
	case m.Kind == MessageSettle:
		length += callBytes
	case m.Kind != MessageCall:
	case m.Call.Kind == CallAdjustments:
		length += callBytes + adjustmentBytes*int(min(max(m.Call.Number, 0), mostListed))
	default:
		length += callBytes
	}
	return outstandingBytes + length
}

// outstanding is what has not been answered of a stream.
type outstanding struct{ count, bytes int }

// add counts a request, unless it is one too many.
func (o *outstanding) add(weight int) bool {
	if o.count >= mostOutstanding || o.bytes+weight > mostOutstandingBytes {
		return false
	}
	o.count++
	o.bytes += weight
	return true
}

func (o *outstanding) remove(weight int) {
	o.count--
	o.bytes -= weight
}

// StreamPeer is a [Peer] over a stream, which carries all requests of the node at once. It has two goroutines until Close, or
// until the stream ends.
type StreamPeer struct {
	stream Stream
	out    outbox
	work   sync.WaitGroup
	done   chan struct{}

	mu     sync.Mutex
	last   uint64
	asked  map[uint64]asking
	closed error
	time   told

	outstanding outstanding
}

// asking is who waits for a message: for an answer, or for a result.
type asking struct {
	answer func(Answer)
	result func(*Result)
	weight int
}

func (a asking) unavailable(err error) {
	if a.result != nil {
		a.result(&Result{Outcome: Unavailable, Err: err})
		return
	}
	a.answer(Answer{Outcome: Unavailable, Err: err})
}

var _ Peer = (*StreamPeer)(nil)

// mustStream refuses a nil stream at the call: another goroutine would use it.
func mustStream(s Stream) {
	if s == nil {
		panic("weir: durable: nil stream")
	}
}

// NewStreamPeer returns the peer at the other end of a stream, which is closed with it. A nil s
// panics.
func NewStreamPeer(s Stream) *StreamPeer {
	mustStream(s)
	p := &StreamPeer{stream: s, done: make(chan struct{}), asked: make(map[uint64]asking)}
	p.out.init()
	p.work.Go(func() { p.fail(p.out.send(s)) })
	p.work.Go(func() { p.fail(p.receive()) })
	return p
}

func (p *StreamPeer) receive() error {
	for {
		b, err := p.stream.Receive()
		if err != nil {
			return fmt.Errorf("%w", err)
		}
		m, err := ParseMessage(b)
		if err != nil {
			return err
		}
		if m.Kind == MessageTime {
			p.hear(told{m.Time, time.Now()})
			continue
		}
		if m.Kind != MessageAnswer && m.Kind != MessageResult {
			return errMessage
		}
		p.mu.Lock()
		a, ok := p.asked[m.ID]
		if ok {
			delete(p.asked, m.ID)
			p.outstanding.remove(a.weight)
		}
		p.mu.Unlock()
		switch {
		case !ok:
		case m.Kind == MessageAnswer && a.answer != nil:
			a.answer(m.Answer)
		case m.Kind == MessageResult && a.result != nil:
			a.result(m.Result)
		default:
			a.unavailable(errOwnerGone)
			return errMessage
		}
	}
}

// hear takes in what the time is, unless it has been on its way for longer than what was heard before.
func (p *StreamPeer) hear(t told) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.time.at.IsZero() || p.time.on(t.at) < t.unix {
		p.time = t
	}
}

// Time implements [Peer].
func (p *StreamPeer) Time() (unix int64, heard time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.time.unix, p.time.at
}

// fail ends the peer: whoever waits is told.
func (p *StreamPeer) fail(err error) {
	p.mu.Lock()
	if p.closed == nil {
		p.closed = fmt.Errorf("%w: %w", errOwnerGone, err)
		close(p.done)
	}
	closed, asked := p.closed, p.asked
	p.asked = nil
	p.mu.Unlock()
	p.out.close()
	_ = p.stream.Close()
	for _, a := range asked {
		a.unavailable(closed)
	}
}

// Done implements [Peer].
func (p *StreamPeer) Done() <-chan struct{} { return p.done }

// Enqueue implements [Peer].
func (p *StreamPeer) Enqueue(r Request, answer func(Answer)) (cancel func()) {
	id, err := p.ask(&Message{Kind: MessageAsk, Request: r}, asking{answer: answer})
	if err != nil {
		answer(refusedBy(&r, Unavailable, err))
		return func() {}
	}
	return func() { p.withdraw(id) }
}

var errMessageLength = errors.New("weir: a request is too long: its policies, keys and reservations do not fit into a message")

var errBusy = fmt.Errorf("%w: too many requests wait for the owner of the limits", store.ErrUnavailable)

// ask sends a message that will be answered.
func (p *StreamPeer) ask(m *Message, a asking) (id uint64, err error) {
	p.mu.Lock()
	p.last++
	m.ID = p.last
	p.mu.Unlock()
	b, err := p.message(m)
	if err != nil {
		return 0, err
	}
	a.weight = m.weight(len(b))
	p.mu.Lock()
	switch {
	case p.closed != nil:
		err = errNotOwner
	case !p.outstanding.add(a.weight):
		err = errBusy
	default:
		p.asked[m.ID] = a
		p.out.put(b) // which does not wait
	}
	p.mu.Unlock()
	return m.ID, err
}

// message is the binary form of a message that is not too long.
func (p *StreamPeer) message(m *Message) ([]byte, error) {
	b, err := AppendMessage(nil, m)
	if err == nil && len(b) > m.Kind.mostBytes() {
		err = errMessageLength
	}
	return b, err
}

// withdraw sends that a request is withdrawn.
func (p *StreamPeer) withdraw(id uint64) {
	b, _ := AppendMessage(nil, &Message{Kind: MessageWithdraw, ID: id})
	p.out.put(b)
}

// Call implements [Peer].
func (p *StreamPeer) Call(ctx context.Context, c *Call) Result {
	got := make(chan *Result, 1)
	id, err := p.ask(&Message{Kind: MessageCall, Call: c}, asking{result: func(r *Result) { got <- r }})
	if err != nil {
		return failed(err)
	}
	select {
	case r := <-got:
		return named(r, c)
	case <-ctx.Done():
	}
	if c.Kind != CallTake {
		return failed(fmt.Errorf("weir: it is not known whether it was done: %w", ctx.Err()))
	}
	p.withdraw(id) // which is answered too, or what was granted a moment ago would be lost
	timer := time.NewTimer(withdrawTime)
	defer timer.Stop()
	select {
	case r := <-got:
		if r.Outcome == Granted {
			return named(r, c)
		}
	case <-timer.C:
	}
	return notBegun(ctx, c)
}

// named is a result with the names of its call.
func named(r *Result, c *Call) Result {
	if !r.name(c) {
		return failed(fmt.Errorf("%w: %w", store.ErrUnavailable, errMessage))
	}
	return *r
}

// Settle implements [Peer].
func (p *StreamPeer) Settle(ctx context.Context, r Reservation, actual int64, cancel bool) error {
	got := make(chan Answer, 1)
	m := &Message{Kind: MessageSettle, Reservation: r, Actual: actual, Cancel: cancel}
	if _, err := p.ask(m, asking{answer: func(a Answer) { got <- a }}); err != nil {
		return err
	}
	select {
	case a := <-got:
		if a.Outcome == Granted {
			return nil
		}
		if a.Err != nil {
			return a.Err
		}
		return fmt.Errorf("weir: it is not known whether the reservation was settled: %w: %v", store.ErrUnavailable, a.Outcome)
	case <-ctx.Done():
		return fmt.Errorf("weir: it is not known whether the reservation was settled: %w", ctx.Err())
	}
}

// Close implements [Peer].
func (p *StreamPeer) Close() error {
	p.fail(errors.New("weir: the connection was closed"))
	p.work.Wait()
	return nil
}

// outbox is messages that wait to be sent, in order.
type outbox struct {
	mu     sync.Mutex
	ready  sync.Cond // there is something to send
	sent   sync.Cond // there is room
	queue  [][]byte
	unsent int // bytes, those included that are being sent
	closed bool
}

func (o *outbox) init() { o.ready.L, o.sent.L = &o.mu, &o.mu }

const (
	// mostUnsent is how many messages wait to be sent before no more are asked for, and mostUnsentBytes how long they are.
	mostUnsent      = 10_000
	mostUnsentBytes = 4 << 20
)

// room waits until not too many messages wait to be sent.
func (o *outbox) room() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for (len(o.queue) >= mostUnsent || o.unsent >= mostUnsentBytes) && !o.closed {
		o.sent.Wait()
	}
}

func (o *outbox) put(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.queue = append(o.queue, b)
		o.unsent += len(b)
		o.ready.Signal()
	}
}

// flush waits until everything has been sent that was put in.
func (o *outbox) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.unsent > 0 && !o.closed {
		o.sent.Wait()
	}
}

func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.queue = true, nil
	o.ready.Broadcast()
	o.sent.Broadcast()
}

// send sends what is put in until it is closed or the stream fails.
func (o *outbox) send(s Stream) error {
	var batch [][]byte
	sent := 0
	for {
		o.mu.Lock()
		if o.unsent -= sent; sent > 0 {
			o.sent.Broadcast()
		}
		for len(o.queue) == 0 && !o.closed {
			o.ready.Wait()
		}
		if o.closed {
			o.mu.Unlock()
			return nil
		}
		batch, o.queue = o.queue, batch[:0]
		sent = o.unsent
		o.sent.Broadcast()
		o.mu.Unlock()
		for i, b := range batch {
			batch[i] = nil
			if err := s.Send(b); err != nil {
				return fmt.Errorf("%w", err)
			}
		}
	}
}
