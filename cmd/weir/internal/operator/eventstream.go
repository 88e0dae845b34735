package operator

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

const (
	eventStreamType = "text/event-stream"
	// mostEvent is how long an event may be.
	mostEvent = 16 << 20
)

var errLongEvent = errors.New("weir: an event is too long")

// readEvents calls got for each event of a stream, as the standard of HTML has them, until it returns false, and heard for each
// line, or 64 KiB of one. Fields other than event and data are left out, as the server sends none. An event that the end of the
// stream cuts off does not count.
func readEvents(r io.Reader, heard func(), got func(Event) bool) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	var (
		e    Event
		line []byte
		data bool
	)
	for {
		piece, err := lines.ReadSlice('\n')
		line = append(line, piece...)
		if len(line)+len(e.Data) > mostEvent {
			return errLongEvent
		}
		part := errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !part {
			return err
		}
		if heard(); part {
			continue
		}
		field, value, _ := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(bytes.TrimRight(line, "\r\n")) == 0:
			if data && !got(e) {
				return nil
			}
			e, data = Event{Data: e.Data[:0]}, false
		case string(field) == "event":
			e.Name = string(value)
		case string(field) == "data":
			if data {
				e.Data = append(e.Data, '\n')
			}
			e.Data, data = append(e.Data, value...), true
		}
		line = line[:0]
	}
}
