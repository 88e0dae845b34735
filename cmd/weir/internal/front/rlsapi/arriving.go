package rlsapi

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front"
)

// arriving bounds what there is in memory of messages that are not complete: gRPC itself keeps as much as a message may have
// for each call of each connection, and waits for the rest without end.
type arriving struct {
	most     int64         // bytes of all connections together
	own      int64         // bytes that a connection may have whatever there is of others
	patience time.Duration // from the first byte of a message to its last
	log      *slog.Logger

	held atomic.Int64
	cut  atomic.Uint64
	told atomic.Int64 // when it was told last that a connection was cut off, in seconds
}

func newArriving(log *slog.Logger) *arriving {
	return &arriving{most: 64 << 20, own: 256 << 10, patience: 30 * time.Second, log: log}
}

// errArriving says that a connection was cut off.
var errArriving = errors.New("weir: too much has arrived of messages that are not complete")

// errResets says that a connection was cut off.
var errResets = errors.New("weir: too many calls were given up")

// A client may give up calls: a proxy does when they take too long for it. resetRate and resetBurst are far above that, and far
// below what a client reaches that opens calls only to give them up, which costs the server more than the client.
const (
	resetRate  = 2_000 // a second
	resetBurst = 10_000
)

// watch bounds a connection, whose bytes are not encrypted any more.
func (a *arriving) watch(conn net.Conn, seat *front.Seat) net.Conn {
	return &watched{Conn: conn, all: a, seat: seat, preface: len(clientPreface)}
}

// clientPreface is what a client begins with.
const clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Frames of HTTP/2.
const (
	frameHeader = 9

	frameData    = 0x0
	frameHeaders = 0x1
	frameReset   = 0x3

	flagEnd    = 0x1
	flagPadded = 0x8
)

const (
	// messagePrefix is what stands before each message: whether it is compressed, and its length.
	messagePrefix = 5
	// framePrice is what a frame costs in memory besides its bytes.
	framePrice = 256
	// mostUnfinished is how many calls of a connection there may be whose message was begun, ended or not.
	mostUnfinished = 2 * mostStreams
)

// watched is a connection whose frames are followed as they are read. One goroutine reads.
type watched struct {
	net.Conn

	all     *arriving
	seat    *front.Seat
	asks    bool // a frame of a call was in what was read last
	preface int  // bytes of it that are to come

	frame        [frameHeader]byte
	got          int // bytes of frame
	left         int // bytes of its payload that are to come
	kind, flags  byte
	stream       uint32
	padding      int // bytes at its end that do not count, once they are known
	knowsPadding bool
	resets       *weir.Limiter // nil until a call was given up

	mu     sync.Mutex
	begun  map[uint32]*message // what has begun to arrive, by stream; changed by the goroutine that reads alone
	held   int64
	closed bool
	timer  *time.Timer // looks whether a message has begun too long ago
}

// message is the one that a call sends.
type message struct {
	prefix  [messagePrefix]byte
	arrived int // bytes, the prefix included
	held    int64
	since   time.Time
	refused bool // it is longer than gRPC takes
}

// Read implements [net.Conn].
func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.asks = false
	if why := w.follow(b[:n]); why != nil {
		w.all.tell(w.RemoteAddr(), why)
		return 0, why
	}
	if w.asks {
		w.seat.Touch()
	}
	return n, err
}

// Close implements [net.Conn].
func (w *watched) Close() error {
	w.mu.Lock()
	w.all.held.Add(-w.held)
	w.held, w.closed = 0, true
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Unlock()
	return w.Conn.Close()
}

// follow follows what was read. An error says why the connection has to end.
func (w *watched) follow(b []byte) error {
	if w.preface > 0 {
		n := min(w.preface, len(b))
		w.preface -= n
		b = b[n:]
	}
	for len(b) > 0 {
		if w.got < frameHeader {
			n := copy(w.frame[w.got:], b)
			w.got += n
			if b = b[n:]; w.got < frameHeader {
				return nil
			}
			w.left = int(w.frame[0])<<16 | int(w.frame[1])<<8 | int(w.frame[2])
			w.kind, w.flags = w.frame[3], w.frame[4]
			w.stream = binary.BigEndian.Uint32(w.frame[5:]) &^ (1 << 31)
			w.padding, w.knowsPadding = 0, w.flags&flagPadded == 0
			w.asks = w.asks || w.kind == frameData || w.kind == frameHeaders
		}
		n := min(w.left, len(b))
		payload := b[:n]
		b, w.left = b[n:], w.left-n
		if w.kind == frameData && !w.data(payload) {
			return errArriving
		}
		if w.left == 0 {
			w.got = 0
			if w.kind == frameReset && !w.mayReset() {
				return errResets
			}
			ends := (w.kind == frameData || w.kind == frameHeaders) && w.flags&flagEnd != 0
			if (ends || w.kind == frameReset) && len(w.begun) > 0 {
				w.mu.Lock()
				w.forget(w.stream)
				w.mu.Unlock()
			}
		}
	}
	return nil
}

// mayReset counts a call that the client has given up. It is false if there are too many.
func (w *watched) mayReset() bool {
	if w.resets == nil {
		var err error
		if w.resets, err = weir.New(weir.TokenBucket(weir.PerSecond(resetRate), resetBurst), weir.Options{}); err != nil {
			return false
		}
	}
	return w.resets.Allow()
}

// data follows a part of the payload of a frame. It is false if the connection has to end.
func (w *watched) data(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	if !w.knowsPadding {
		w.padding, w.knowsPadding = int(b[0]), true
		b = b[1:]
	}
	if over := w.padding - w.left; over > 0 { // some of it is here
		b = b[:max(len(b)-over, 0)]
	}
	m := w.begun[w.stream] // only this goroutine changes it
	if m == nil {
		var first message
		if first.take(b); first.arrived == 0 {
			return true // all is complete, as it is nearly always
		}
		m = new(message)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.closed && w.keep(m, b)
}

// keep counts what has arrived of a message that is not complete. It is false if that is too much. w.mu is held.
func (w *watched) keep(m *message, b []byte) bool {
	if m.refused {
		return true
	}
	whole, n := m.take(b)
	if m.arrived == 0 {
		w.forget(w.stream)
		return true
	}
	if whole || m.since.IsZero() {
		w.hold(-m.held)
		m.held, m.since = 0, time.Now()
	}
	if w.begun == nil {
		w.begun = make(map[uint32]*message)
	}
	if w.begun[w.stream] = m; len(w.begun) > mostUnfinished {
		return false
	}
	if m.length() > maxReports { // the call is refused
		w.hold(-m.held)
		m.refused, m.held = true, 0
		return true
	}
	if w.timer == nil {
		w.timer = time.AfterFunc(w.all.patience, w.late)
	}
	m.held += int64(n + framePrice)
	return w.hold(int64(n + framePrice))
}

// take takes bytes of messages: it reports whether one was completed, and how many bytes there are of the one after it.
func (m *message) take(b []byte) (whole bool, left int) {
	for len(b) > 0 {
		if m.arrived < messagePrefix {
			n := copy(m.prefix[m.arrived:], b)
			m.arrived += n
			left += n
			if b = b[n:]; m.arrived < messagePrefix {
				break
			}
		}
		rest := m.length() + messagePrefix - m.arrived
		n := min(rest, len(b))
		m.arrived += n
		left += n
		b = b[n:]
		if n == rest {
			whole, left, m.arrived = true, 0, 0
		}
	}
	return whole, left
}

// length is that of the message, as far as it is known.
func (m *message) length() int {
	if m.arrived < messagePrefix {
		return 0
	}
	return int(min(binary.BigEndian.Uint32(m.prefix[1:]), math.MaxInt32-messagePrefix))
}

// forget forgets what has arrived for a call. w.mu is held.
func (w *watched) forget(stream uint32) {
	if m := w.begun[stream]; m != nil {
		delete(w.begun, stream)
		w.hold(-m.held)
	}
}

// hold counts bytes that are kept, or are not any more. It is false if there are too many. w.mu is held.
func (w *watched) hold(n int64) bool {
	w.held += n
	return w.all.held.Add(n) <= w.all.most || w.held <= w.all.own
}

// late cuts the connection off if a message has begun too long ago.
func (w *watched) late() {
	w.mu.Lock()
	if w.closed || len(w.begun) == 0 {
		w.timer = nil
		w.mu.Unlock()
		return
	}
	left := w.all.patience
	for _, m := range w.begun {
		if !m.refused {
			left = min(left, w.all.patience-time.Since(m.since))
		}
	}
	if left > 0 {
		w.timer.Reset(left)
		w.mu.Unlock()
		return
	}
	w.mu.Unlock()
	w.all.tell(w.RemoteAddr(), errArriving)
	_ = w.Close() // whoever reads finds out
}

// tell tells that a connection was cut off, and why.
func (a *arriving) tell(client net.Addr, why error) {
	n := a.cut.Add(1)
	now, last := time.Now().Unix(), a.told.Load()
	if now-last >= 60 && a.told.CompareAndSwap(last, now) {
		message := "a gRPC client was cut off, as its messages are not completed"
		if errors.Is(why, errResets) {
			message = "a gRPC client was cut off, as it gives up one call after the other"
		}
		a.log.Warn(message, "client", client.String(), "cut_off_in_all", n)
	}
}

// watchedCredentials watch the connections of a server, where they are not encrypted.
type watchedCredentials struct {
	credentials.TransportCredentials

	all *arriving
}

// seated is what calls know of their connection: its place, and what there is to know otherwise.
type seated struct {
	credentials.AuthInfo

	seat *front.Seat
}

// seatOf is the place of the connection of a call, nil if it has none.
func seatOf(ctx context.Context) *front.Seat {
	if p, ok := peer.FromContext(ctx); ok {
		if of, ok := p.AuthInfo.(seated); ok {
			return of.seat
		}
	}
	return nil
}

// ServerHandshake implements [credentials.TransportCredentials].
func (w watchedCredentials) ServerHandshake(conn net.Conn) ( //nolint:ireturn // see the interface
	net.Conn, credentials.AuthInfo, error,
) {
	seat := front.SeatOf(conn)
	secure, info, err := w.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		return nil, nil, err
	}
	return w.all.watch(secure, seat), seated{info, seat}, nil
}

// Clone implements [credentials.TransportCredentials].
func (w watchedCredentials) Clone() credentials.TransportCredentials { //nolint:ireturn // see the interface
	return watchedCredentials{w.TransportCredentials.Clone(), w.all}
}
