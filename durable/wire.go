package durable

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// What nodes tell each other is a sequence of messages, each of which begins with the version of the protocol, its kind and the
// number of the request that it belongs to. Numbers are variable-length integers; texts have their length before them.
// Deadlines travel as durations.

// MessageKind is what a message is for.
type MessageKind uint8

const (
	// MessageCall makes a call, which MessageWithdraw withdraws if it asks for permits.
	MessageCall MessageKind = 1 + iota
	// MessageWithdraw withdraws a call. A MessageResult to that follows.
	MessageWithdraw
	// MessageResult is the reply to MessageCall.
	MessageResult
	// MessageTime has the time of the limits. It belongs to no call.
	MessageTime

	messageKinds
)

const messageVersion = 2

// mostTime bounds the times that nodes tell each other.
const mostTime = 1 << 62

const (
	// MostMessageBytes is how long a message can be, which is that of some results. Others are shorter.
	MostMessageBytes = 1 << 20

	// usualBytes is how long most messages are at most.
	usualBytes = 128

	mostCallBytes  = 128 << 10
	mostShortBytes = 4096
)

// mostBytes is how long a message of a kind can be.
func (k MessageKind) mostBytes() int {
	switch k {
	case MessageResult:
		return MostMessageBytes
	case MessageCall:
		return mostCallBytes
	default:
		return mostShortBytes
	}
}

// Message is what one node sends to another. Which fields count depends on its kind.
type Message struct {
	Kind MessageKind
	// ID numbers the calls of a connection.
	ID uint64
	// Call is that of MessageCall, and Result that of MessageResult. An error survives as a text, and as whether it was
	// ErrNotReserved, an *weir.OptionError or store.ErrUnavailable. Decisions and adjustments travel without the names that they
	// have in common with the call, and states of a call as whether they are asked for.
	Call   *Call
	Result *Result
	// Time is that of MessageTime, in Unix nanoseconds.
	Time int64
}

var errMessage = errors.New("weir: not a message of this version between nodes")

// AppendMessage appends the binary form of a message to b. The error is an *[weir.OptionError].
func AppendMessage(b []byte, m *Message) ([]byte, error) {
	b = append(b, messageVersion, byte(m.Kind))
	b = binary.AppendUvarint(b, m.ID)
	switch m.Kind { //nolint:exhaustive // the others have nothing of their own
	case MessageCall:
		return appendCall(b, m.Call)
	case MessageResult:
		b = appendResult(b, m.Result)
	case MessageTime:
		b = appendNumbers(b, m.Time)
	}
	return b, nil
}

func number(v bool) int64 {
	if v {
		return 1
	}
	return 0
}

func appendNumbers(b []byte, all ...int64) []byte {
	for _, n := range all {
		b = binary.AppendVarint(b, n)
	}
	return b
}

func appendString[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// ParseMessage reads a message, which may be anything: what is not a message is an error.
func ParseMessage(b []byte) (m Message, err error) {
	if len(b) < 3 || b[0] != messageVersion || b[1] == 0 || b[1] >= byte(messageKinds) {
		return Message{}, errMessage
	}
	if m.Kind = MessageKind(b[1]); len(b) > m.Kind.mostBytes() {
		return Message{}, errMessage
	}
	d := reader{rest: b[2:]}
	m.ID = d.unsigned()
	switch m.Kind { //nolint:exhaustive // the others have nothing of their own
	case MessageCall:
		m.Call = d.call()
	case MessageResult:
		m.Result = d.result()
	case MessageTime:
		m.Time = d.signed()
		if m.Time < -mostTime || m.Time > mostTime {
			d.fail()
		}
	case MessageWithdraw:
	}
	if d.failed || len(d.rest) > 0 {
		return Message{}, errMessage
	}
	return m, nil
}

func appendDecision(b []byte, d *weir.Decision) []byte {
	return appendNumbers(
		b, number(d.Allowed), int64(d.Reason), d.Limit, d.Remaining, int64(d.RetryAfter), int64(d.ResetAfter),
	)
}

// reader reads the parts of a message.
type reader struct {
	rest   []byte
	failed bool
}

func (d *reader) fail() { d.rest, d.failed = nil, true }

func (d *reader) byte() byte {
	if len(d.rest) == 0 {
		d.fail()
		return 0
	}
	v := d.rest[0]
	d.rest = d.rest[1:]
	return v
}

func (d *reader) unsigned() uint64 {
	v, size := binary.Uvarint(d.rest)
	return advance(d, v, size)
}

func (d *reader) signed() int64 {
	v, size := binary.Varint(d.rest)
	return advance(d, v, size)
}

// advance goes on behind a number of so many bytes, which is none if that is not positive.
func advance[T any](d *reader, v T, size int) (none T) {
	if size <= 0 {
		d.fail()
		return none
	}
	d.rest = d.rest[size:]
	return v
}

func (d *reader) bool() bool {
	v := d.signed()
	if v != 0 && v != 1 {
		d.fail()
	}
	return v == 1
}

func (d *reader) text() string {
	n := d.unsigned()
	if n > uint64(len(d.rest)) {
		d.fail()
		return ""
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

func (d *reader) duration() time.Duration { return time.Duration(d.signed()) }

func (d *reader) reason(v int64) weir.Reason {
	if v < 0 || v > int64(weir.ReasonUnavailable) {
		d.fail()
		return weir.ReasonNone
	}
	return weir.Reason(v)
}

func (d *reader) decision() (v weir.Decision) {
	v.Allowed, v.Reason = d.bool(), d.reason(d.signed())
	v.Limit, v.Remaining = d.signed(), d.signed()
	v.RetryAfter, v.ResetAfter = d.duration(), d.duration()
	return v
}

// limit reads a limit, or the zero one, which is empty.
func (d *reader) limit() weir.Limit {
	text := d.text()
	if d.failed || text == "" {
		return weir.Limit{}
	}
	l, err := store.ParseLimit([]byte(text))
	if err != nil {
		d.fail()
	}
	return l
}

// count reads how many of something follow, of which there are at most so many and each of which takes a byte at least.
func (d *reader) count(most int) int {
	n := d.unsigned()
	if n > uint64(most) || n > uint64(len(d.rest)) {
		d.fail()
		return 0
	}
	return int(n)
}
