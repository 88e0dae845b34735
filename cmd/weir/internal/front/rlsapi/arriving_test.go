package rlsapi

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// frame appends a frame of HTTP/2.
func frame(b []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	b = append(b, byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), kind, flags)
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// sized is a message of n bytes, as it is sent.
func sized(n int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(n)), make([]byte, n)...)
}

func watching(most, own int64) *watched {
	conn, _ := net.Pipe()
	a := newArriving(slog.New(slog.DiscardHandler))
	a.most, a.own = most, own
	w, _ := a.watch(conn, nil).(*watched)
	return w
}

// TestFramesAreFollowed: whatever the frames that messages are sent in, and the pieces they are read in, it is known what of them is
// not complete.
func TestFramesAreFollowed(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		w := watching(1<<30, 1<<30)
		bytes := []byte(clientPreface)
		left, kept := map[uint32][]byte{}, 0
		for i := range 20 { // the messages of some calls, of which some are cut short
			stream := uint32(2*i + 1)
			for range 1 + random.IntN(3) {
				left[stream] = append(left[stream], sized(random.IntN(3000))...)
			}
			if random.IntN(3) == 0 {
				left[stream] = left[stream][:len(left[stream])-1]
			}
		}
		expected := map[uint32]message{}
		for stream, b := range left {
			var m message
			m.take(b)
			expected[stream] = m
		}
		for len(left) > 0 {
			for stream, b := range left { // in any order
				n := min(random.IntN(1200), len(b))
				payload, flags := b[:n:n], byte(0)
				if random.IntN(4) == 0 {
					pad := random.IntN(20)
					payload = append(append([]byte{byte(pad)}, payload...), make([]byte, pad)...)
					flags |= flagPadded
				}
				if left[stream] = b[n:]; n == len(b) {
					delete(left, stream)
					switch random.IntN(4) {
					case 0:
						flags |= flagEnd
						delete(expected, stream)
					case 1:
						bytes = frame(bytes, frameData, flags, stream, payload)
						bytes = frame(bytes, frameReset, 0, stream, make([]byte, 4))
						delete(expected, stream)
						continue
					}
				}
				bytes = frame(bytes, frameData, flags, stream, payload)
				bytes = frame(bytes, 0x6, 0, 0, make([]byte, 8)) // a ping
			}
		}
		for len(bytes) > 0 {
			n := min(1+random.IntN(2000), len(bytes))
			if w.follow(bytes[:n]) != nil {
				t.Fatal("it is cut off")
			}
			bytes = bytes[n:]
		}
		for stream, m := range expected {
			if m.arrived == 0 {
				continue
			}
			if kept++; w.begun[stream] == nil || w.begun[stream].arrived != m.arrived {
				t.Fatalf("call %d: %+v, want %+v", stream, w.begun[stream], m)
			}
		}
		if len(w.begun) != kept || (w.held == 0) != (kept == 0) || w.held != w.all.held.Load() {
			t.Fatalf("%d are not complete, want %d; %d bytes, %d in all", len(w.begun), kept, w.held, w.all.held.Load())
		}
		if _ = w.Close(); w.all.held.Load() != 0 {
			t.Fatal("a connection that is closed has something")
		}
	}
}

// TestUnfinishedMessagesAreBounded: beyond a few messages that are not complete, those of all connections together are bounded.
func TestUnfinishedMessagesAreBounded(t *testing.T) {
	w := watching(100_000, 10_000)
	other := &watched{Conn: w.Conn, all: w.all}
	calls := uint32(0)
	for {
		if calls++; w.follow(frame([]byte(clientPreface)[:w.preface], frameData, 0, calls, sized(5000)[:4000])) != nil {
			break
		}
	}
	if held := w.all.held.Load(); held < 100_000 || held > 105_000 {
		t.Errorf("%d bytes of %d calls", held, calls)
	}
	for i := range uint32(2) {
		if other.follow(frame(nil, frameData, 0, i, sized(5000)[:4000])) != nil {
			t.Error("a connection with little to say is cut off for another one")
		}
	}
	if other.follow(frame(nil, frameData, 0, 3, sized(5000)[:4000])) == nil {
		t.Error("it can have more than its own")
	}
	if _ = w.Close(); other.follow(frame(nil, frameData, 0, 4, sized(5000)[:4000])) != nil {
		t.Error("there is room again")
	}
	// Of a message that gRPC refuses nothing is kept, and whatever is sent of it does not count.
	_ = other.follow(frame(nil, frameReset, 0, 4, make([]byte, 4)))
	before := other.held
	for range 100 {
		if other.follow(frame(nil, frameData, 0, 5, sized(2 * maxReports)[:10_000])) != nil {
			t.Fatal("it is cut off")
		}
	}
	if other.held != before {
		t.Errorf("%d bytes", other.held-before)
	}
}

// TestUnfinishedMessagesEndInTime: a message has to come within the time there is for it, others have as much again.
func TestUnfinishedMessagesEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, conn := net.Pipe()
		a := newArriving(slog.New(slog.DiscardHandler))
		w := a.watch(conn, nil)
		ended := make(chan time.Duration, 1)
		start := time.Now()
		go func() {
			_, _ = io.Copy(io.Discard, w)
			ended <- time.Since(start)
		}()
		send := func(b []byte) {
			t.Helper()
			if _, err := client.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		m := sized(100)
		send([]byte(clientPreface))
		for range 5 { // each by itself is in time
			send(frame(nil, frameData, 0, 1, m[:50]))
			time.Sleep(a.patience - time.Second)
			send(frame(nil, frameData, 0, 1, m[50:]))
		}
		send(frame(nil, frameData, 0, 1, m[:50]))
		begun := time.Since(start)
		if at := <-ended; at != begun+a.patience || a.cut.Load() != 1 {
			t.Errorf("it ended after %v, %v after it began", at, at-begun)
		}
	})
}

// TestResetsAreBounded: a client may give up calls now and then, and many of them after a pause, but not one after the other for ever.
func TestResetsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(1<<20, 1<<20)
		defer w.Close()
		give := func(calls int) (err error) {
			for i := 0; i < calls && err == nil; i++ {
				b := frame([]byte(clientPreface)[:w.preface], frameHeaders, 0, uint32(2*i+1), nil)
				err = w.follow(frame(b, frameReset, 0, uint32(2*i+1), make([]byte, 4)))
			}
			return err
		}
		if err := give(resetBurst); err != nil {
			t.Fatalf("%d calls: %v", resetBurst, err)
		}
		for range 3 {
			time.Sleep(time.Second)
			if err := give(resetRate); err != nil {
				t.Fatalf("%d calls a second: %v", resetRate, err)
			}
		}
		if err := give(1); !errors.Is(err, errResets) {
			t.Errorf("one more: %v", err)
		}
	})
}
