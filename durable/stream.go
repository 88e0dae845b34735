package durable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirhq/weir"
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
	// results can take: more are refused as Unavailable at once.
	mostOutstanding      = 100_000
	mostOutstandingBytes = 128 << 20
	// outstandingBytes is what a call takes beside its message, callBytes one that has a goroutine, chargeBytes each of its
	// charges, and adjustmentBytes an adjustment that is asked for.
	outstandingBytes = 256
	callBytes        = 8 << 10
	chargeBytes      = 512
	adjustmentBytes  = 640
)

// weight is how much room a message of a length takes until its result is sent.
func (m *Message) weight(length int) int {
	length += outstandingBytes
	if m.Kind != MessageCall || m.Call.single() {
		return length
	}
	if m.Call.Verb == VerbAdjustments {
		length += adjustmentBytes * min(max(m.Call.Most, 0), mostAdjustments)
	}
	return length + callBytes + chargeBytes*len(m.Call.Charges)
}

// outstanding is what has no result yet of a stream.
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
// until the stream ends. The zero StreamPeer is not usable: call [NewStreamPeer].
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

// asking is a call that waits for its result.
type asking struct {
	result func(*Result)
	weight int
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
		if m.Kind != MessageResult {
			return errMessage
		}
		p.mu.Lock()
		a, ok := p.asked[m.ID]
		if ok {
			delete(p.asked, m.ID)
			p.outstanding.remove(a.weight)
		}
		p.mu.Unlock()
		if ok {
			a.result(m.Result)
		}
	}
}

// mostHeard is the latest time that is believed: a node that began with it could tell it to others for ten years.
const mostHeard = mostTime - int64(10*365*24*time.Hour)

// hear takes in what the time is, and when that was heard. One that has been on its way for longer than what was heard before
// changes no time, and one that no owner can go on with counts for nothing.
func (p *StreamPeer) hear(t told) {
	if t.unix < 0 || t.unix > mostHeard {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.time.at.IsZero() {
		t.unix = max(t.unix, p.time.on(t.at))
	}
	p.time = t
}

// Time implements [Peer].
func (p *StreamPeer) Time() (unix int64, heard time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.time.unix, p.time.at
}

// fail ends the peer: all calls that wait return.
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
		r := failed(closed)
		a.result(&r)
	}
}

// Done implements [Peer].
func (p *StreamPeer) Done() <-chan struct{} { return p.done }

var errMessageLength = errors.New("weir: a request is too long: its policies, keys and reservations do not fit into a message")

var errBusy = fmt.Errorf("%w: too many requests wait for the owner of the limits", store.ErrUnavailable)

// Enqueue is Call without waiting: calls of one charge join their queues in the order in which they are enqueued. The function is
// called exactly once with the result, in which names are left out, maybe before Enqueue returns, and must not wait for anything.
// Enqueue returns how to withdraw a call that asks for permits, which has a result then, too.
func (p *StreamPeer) Enqueue(c *Call, result func(*Result)) (withdraw func()) {
	id, err := p.send(c, result)
	if err != nil {
		r := failed(err)
		result(&r)
		return func() {}
	}
	return func() {
		b, _ := AppendMessage(nil, &Message{Kind: MessageWithdraw, ID: id})
		p.out.put(b)
	}
}

func (p *StreamPeer) send(c *Call, result func(*Result)) (id uint64, err error) {
	m := &Message{Kind: MessageCall, Call: c}
	p.mu.Lock()
	p.last++
	m.ID = p.last
	p.mu.Unlock()
	b, err := AppendMessage(make([]byte, 0, usualBytes), m)
	if err == nil && len(b) > mostCallBytes {
		err = errMessageLength
	}
	if err != nil {
		return 0, err
	}
	a := asking{result, m.weight(len(b))}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed != nil:
		return 0, errNotOwner
	case !p.outstanding.add(a.weight):
		return 0, errBusy
	}
	p.asked[m.ID] = a
	p.out.put(b) // which does not wait
	return m.ID, nil
}

// Call implements [Peer].
func (p *StreamPeer) Call(ctx context.Context, c *Call) Result {
	got := make(chan *Result, 1)
	withdraw := p.Enqueue(c, func(r *Result) { got <- r })
	select {
	case r := <-got:
		return r.of(c)
	case <-ctx.Done():
	}
	if !c.takes() {
		return failed(fmt.Errorf("weir: it is not known whether it was done: %w", ctx.Err()))
	}
	withdraw() // which has a result too, or what was taken a moment ago would be lost
	timer := time.NewTimer(withdrawTime)
	defer timer.Stop()
	select {
	case r := <-got:
		if r.Reason == weir.ReasonNone {
			return r.of(c)
		}
	case <-timer.C:
	}
	return notBegun(ctx, c)
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
