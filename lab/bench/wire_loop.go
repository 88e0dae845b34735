package bench

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// serveLoop is the least that can serve calls of gRPC: one goroutine for each connection, which replies to every call with the
// same frames, and writes when no more has arrived. It decodes neither the header of a call nor its message.
func (m *wireMember) serveLoop(l net.Listener) error {
	return serveEach(l, func(c net.Conn) { _ = newLoopConn(c, m.Reply).serve() })
}

const (
	loopBuffer = 64 << 10
	// loopCredit is how much data is taken before the client is told that it can send as much again.
	loopCredit = 32 << 10
	// loopWindow is how much a peer takes at first.
	loopWindow = 65535
)

// loopConn is one connection.
type loopConn struct {
	in      *bufio.Reader
	out     *bufio.Writer
	frames  *http2.Framer
	header  []byte // of every reply, which no table of HPACK is needed for
	message []byte
	trailer []byte
	taken   uint32   // of data that the client was not told of
	window  int64    // how much the client takes
	waiting []uint32 // calls whose replies it does not take yet
}

func newLoopConn(c net.Conn, reply []byte) *loopConn {
	s := &loopConn{in: bufio.NewReaderSize(c, loopBuffer), out: bufio.NewWriterSize(c, loopBuffer), window: loopWindow}
	s.frames = http2.NewFramer(s.out, s.in)
	s.frames.SetReuseFrames()
	s.header = plainFields(hpack.HeaderField{Name: ":status", Value: "200"},
		hpack.HeaderField{Name: "content-type", Value: "application/grpc"})
	s.trailer = plainFields(hpack.HeaderField{Name: "grpc-status", Value: "0"})
	const notCompressed = 0
	s.message = append(binary.BigEndian.AppendUint32([]byte{notCompressed}, uint32(len(reply))), reply...)
	return s
}

// plainFields encodes fields that the table of HPACK does not have to remember.
func plainFields(fields ...hpack.HeaderField) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range fields {
		f.Sensitive = true
		_ = e.WriteField(f) // into memory
	}
	return b.Bytes()
}

// serve replies to calls until there are no more.
func (s *loopConn) serve() error {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(s.in, preface); err != nil {
		return fmt.Errorf("bench: the preface: %w", err)
	}
	err := s.frames.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: loopWindow})
	for err == nil {
		if s.in.Buffered() == 0 {
			err = s.out.Flush()
		}
		var f http2.Frame
		if err == nil {
			f, err = s.frames.ReadFrame()
		}
		if err == nil {
			err = s.take(f)
		}
	}
	return fmt.Errorf("bench: a connection: %w", err)
}

func (s *loopConn) take(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return s.frames.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return s.frames.WritePing(true, f.Data)
		}
	case *http2.WindowUpdateFrame:
		if f.StreamID == 0 {
			s.window += int64(f.Increment)
			return s.reply()
		}
	case *http2.DataFrame:
		if s.taken += f.Length; s.taken >= loopCredit {
			if err := s.frames.WriteWindowUpdate(0, s.taken); err != nil {
				return err
			}
			s.taken = 0
		}
		if f.StreamEnded() {
			s.waiting = append(s.waiting, f.StreamID)
			return s.reply()
		}
	}
	return nil
}

// reply replies to the calls that wait, as long as the client takes more.
func (s *loopConn) reply() error {
	done := 0
	for _, id := range s.waiting {
		if s.window < int64(len(s.message)) {
			break
		}
		s.window -= int64(len(s.message))
		if err := errors.Join(
			s.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: s.header, EndHeaders: true}),
			s.frames.WriteData(id, false, s.message),
			s.frames.WriteHeaders(http2.HeadersFrameParam{
				StreamID: id, BlockFragment: s.trailer, EndHeaders: true, EndStream: true,
			}),
		); err != nil {
			return err
		}
		done++
	}
	s.waiting = s.waiting[:copy(s.waiting, s.waiting[done:])]
	return nil
}
