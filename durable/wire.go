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

const messageVersion = 3

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

// appendCall appends a call: of each verb what counts, and of charges whose limits do not count an empty one.
func appendCall(b []byte, c *Call) ([]byte, error) {
	b = append(b, byte(c.Verb))
	b = binary.AppendUvarint(b, uint64(len(c.Charges)))
	for i := range c.Charges {
		charge := &c.Charges[i]
		b = appendString(appendString(b, charge.Policy), charge.Key)
		b = appendNumbers(b, charge.N, charge.Queue)
		var text [64]byte
		limit := text[:0]
		if c.limited() {
			var err error
			if limit, err = store.AppendLimit(text[:0], charge.Limit); err != nil {
				return b, err //nolint:wrapcheck // it names what is wrong
			}
		}
		b = appendString(b, limit)
	}
	switch c.Verb {
	case VerbDo:
		b = append(b, byte(c.Ask.Mode))
		b = appendNumbers(b, int64(c.Ask.Wait), int64(c.Ask.Hold), c.Ask.Least, number(c.Ask.States != nil))
	case VerbSettle:
		b = appendString(b, c.Hold.ID)
		b = appendNumbers(b, c.Hold.Expires, c.Hold.Taken, number(c.Actual != nil))
		b = binary.AppendUvarint(b, uint64(len(c.Actual)))
		b = appendNumbers(b, c.Actual...)
	case VerbAdjust:
		b = appendNumbers(b, c.Adjustment.Permits)
		b = appendString(appendString(b, c.Adjustment.By), c.Adjustment.Reason)
	default:
		b = appendNumbers(b, int64(c.Most))
	}
	return b, nil
}

// call reads what appendCall wrote. What it says is checked where it is carried out.
func (d *reader) call() *Call {
	c := &Call{Verb: Verb(d.byte())}
	c.Charges = make([]store.Charge, d.count(store.MostCharges))
	for i := range c.Charges {
		charge := &c.Charges[i]
		charge.Policy, charge.Key, charge.N, charge.Queue = d.text(), d.text(), d.signed(), d.signed()
		charge.Limit = d.limit()
	}
	switch c.Verb {
	case VerbDo:
		if c.Ask.Mode = store.Mode(d.byte()); c.Ask.Mode > store.ModeReset {
			d.fail()
		}
		c.Ask.Wait, c.Ask.Hold, c.Ask.Least = d.duration(), d.duration(), d.signed()
		if d.bool() {
			c.Ask.States = make([]store.State, len(c.Charges))
		}
	case VerbSettle:
		c.Hold.ID, c.Hold.Expires, c.Hold.Taken = d.text(), d.signed(), d.signed()
		if d.bool() {
			c.Actual = make([]int64, 0, len(c.Charges))
		}
		for range d.count(store.MostCharges) {
			c.Actual = append(c.Actual, d.signed())
		}
	case VerbAdjust:
		c.Adjustment = new(Adjustment)
		c.Adjustment.Permits, c.Adjustment.By, c.Adjustment.Reason = d.signed(), d.text(), d.text()
	case VerbAdjustments:
		c.Most = int(d.signed())
	default:
		d.fail()
	}
	return c
}

// appendResult appends a result, or of one with an error that.
func appendResult(b []byte, r *Result) []byte {
	if b = appendError(b, r.Err); r.Err != nil {
		return b
	}
	b = append(b, byte(r.Reason))
	b = binary.AppendUvarint(b, uint64(len(r.Decisions)))
	for i := range r.Decisions {
		b = appendDecision(b, &r.Decisions[i])
	}
	b = binary.AppendUvarint(b, uint64(len(r.States)))
	for i := range r.States {
		s := &r.States[i]
		b = appendNumbers(b, number(s.Known), s.Reserved, int64(s.Reservations), s.Forgotten)
		b = appendDecision(b, &s.Decision)
	}
	b = appendString(b, r.Hold.ID)
	b = appendNumbers(b, r.Hold.Expires, r.Hold.Taken, r.Lent)
	b = binary.AppendUvarint(b, uint64(len(r.Adjustments)))
	for i := range r.Adjustments {
		a := &r.Adjustments[i]
		b = appendNumbers(b, a.Time.UnixNano(), a.Permits, a.Remaining)
		b = appendString(appendString(b, a.By), a.Reason)
	}
	return b
}

// result reads what appendResult wrote.
func (d *reader) result() *Result {
	r := new(Result)
	if r.Err = d.err(); r.Err != nil {
		r.Reason = weir.ReasonUnavailable
		return r
	}
	if r.Reason = d.reason(int64(d.byte())); r.Reason == weir.ReasonUnavailable { // which has an error
		d.fail()
	}
	if n := d.count(store.MostCharges); n > 0 {
		r.Decisions = make([]weir.Decision, n)
	}
	for i := range r.Decisions {
		r.Decisions[i] = d.decision()
	}
	if n := d.count(store.MostCharges); n > 0 {
		r.States = make([]store.State, n)
	}
	for i := range r.States {
		s := &r.States[i]
		s.Known, s.Reserved, s.Reservations, s.Forgotten = d.bool(), d.signed(), int(d.signed()), d.signed()
		s.Decision = d.decision()
	}
	r.Hold.ID, r.Hold.Expires, r.Hold.Taken, r.Lent = d.text(), d.signed(), d.signed(), d.signed()
	if n := d.count(mostAdjustments); n > 0 {
		r.Adjustments = make([]Adjustment, n)
	}
	for i := range r.Adjustments {
		a := &r.Adjustments[i]
		a.Time, a.Permits, a.Remaining = time.Unix(0, d.signed()), d.signed(), d.signed()
		a.By, a.Reason = d.text(), d.text()
	}
	return r
}

// of is the result of a call, with the names that it has in common with it, or an error if it cannot be one.
func (r *Result) of(c *Call) Result {
	if r.Err != nil {
		return *r
	}
	if !r.fits(c) {
		return failed(errResult)
	}
	for i := range r.Decisions {
		r.Decisions[i].Policy = c.Charges[i].Policy
	}
	for i := range r.States {
		r.States[i].Decision.Policy = c.Charges[i].Policy
	}
	for i := range r.Adjustments {
		r.Adjustments[i].Policy, r.Adjustments[i].Key = c.Charges[0].Policy, c.Charges[0].Key
	}
	return *r
}

// The kinds of errors that a node tells apart.
const (
	errorNone byte = iota
	errorOther
	errorNotReserved
	errorUnavailable
	errorOption
	errorNotOwner
	errorOwnerGone
)

// mostErrorBytes is how much of a text of an error is sent.
const mostErrorBytes = 512

func cut(text string) string { return text[:min(len(text), mostErrorBytes)] }

// appendError appends the kind of an error and its text, or those of an option.
func appendError(b []byte, err error) []byte {
	if err == nil {
		return append(b, errorNone)
	}
	if misuse, ok := errors.AsType[*weir.OptionError](err); ok {
		b = append(b, errorOption)
		return appendString(appendString(appendString(b, cut(misuse.Option)), cut(misuse.Value)), cut(misuse.Accepted))
	}
	kind := errorOther
	switch {
	case errors.Is(err, ErrNotReserved):
		kind = errorNotReserved
	case errors.Is(err, errNotOwner):
		kind = errorNotOwner
	case errors.Is(err, errOwnerGone):
		kind = errorOwnerGone
	case errors.Is(err, store.ErrUnavailable):
		kind = errorUnavailable
	}
	return appendString(append(b, kind), cut(err.Error()))
}

// remoteError is what another node said.
type remoteError struct {
	text string
	is   error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.is }

// err reads what appendError wrote.
func (d *reader) err() error {
	switch kind := d.byte(); kind {
	case errorNone:
		return nil
	case errorOption:
		return &weir.OptionError{Option: d.text(), Value: d.text(), Accepted: d.text()}
	case errorNotReserved:
		d.text()
		return ErrNotReserved
	case errorNotOwner:
		d.text()
		return errNotOwner
	case errorOwnerGone:
		d.text()
		return errOwnerGone
	case errorUnavailable:
		return &remoteError{d.text(), store.ErrUnavailable}
	case errorOther:
		return &remoteError{text: d.text()}
	default:
		d.fail()
		return nil
	}
}
