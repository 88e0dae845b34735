// Package respclient is what a client of the protocol of Redis needs: it writes commands, and reads replies. What a server sends
// is read with a bound on everything, as a length is how much memory is asked for.
package respclient

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
)

// ErrProtocol is the error for bytes that are no reply, or one of a size that no reply to this client has.
var ErrProtocol = errors.New("it does not speak the protocol of Redis")

// AppendCommand appends a command. The first argument is its name.
func AppendCommand(b []byte, args ...string) []byte {
	b = AppendBegin(b, len(args))
	for _, arg := range args {
		b = AppendArg(b, arg)
	}
	return b
}

// AppendBegin begins a command of so many arguments, its name included, which follow by [AppendArg].
func AppendBegin(b []byte, args int) []byte {
	return append(strconv.AppendInt(append(b, '*'), int64(args), 10), '\r', '\n')
}

// AppendArg appends an argument of a command.
func AppendArg(b []byte, text string) []byte {
	b = append(strconv.AppendInt(append(b, '$'), int64(len(text)), 10), '\r', '\n')
	return append(append(b, text...), '\r', '\n')
}

// Error is an error that the server replied: its text, which begins with a word in capitals.
type Error string

// Error implements error.
func (e Error) Error() string { return string(e) }

// Kind is the type of a reply: the byte with which it begins.
type Kind byte

// Kinds of replies. Those of a null of version 2 become [Null].
const (
	Simple   Kind = '+'
	Failure  Kind = '-'
	Int      Kind = ':'
	Bulk     Kind = '$'
	Array    Kind = '*'
	Null     Kind = '_'
	Bool     Kind = '#'
	Double   Kind = ','
	Big      Kind = '('
	Blob     Kind = '!' // an error of any bytes
	Verbatim Kind = '='
	Map      Kind = '%'
	Set      Kind = '~'
	Push     Kind = '>'

	attributes Kind = '|'
)

// Reply is what a server replies to a command, of both versions of the protocol.
type Reply struct {
	Kind Kind
	// Value is what the reply says, unless it has elements. A verbatim text has no format here.
	Value string
	// Elems are the elements of a list, and the keys and values in turn of a map.
	Elems []Reply
}

// Err is the error that was replied, or nil.
func (r Reply) Err() error {
	if r.Kind == Failure || r.Kind == Blob {
		return Error(r.Value)
	}
	return nil
}

// Text is the text of a reply that is a string, a number or a simple text. Other replies are an error.
func (r Reply) Text() (string, error) {
	switch r.Kind { //nolint:exhaustive // all others are errors
	case Bulk, Simple, Int, Double, Big, Bool, Verbatim:
		return r.Value, nil
	}
	if err := r.Err(); err != nil {
		return "", err
	}
	return "", ErrProtocol
}

// Int is the number of a reply that is one, or whose text is one.
func (r Reply) Int() (int64, error) {
	text, err := r.Text()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, ErrProtocol
	}
	return n, nil
}

// List is the elements of a list. Those of a map are its keys and values in turn.
func (r Reply) List() ([]Reply, error) {
	switch r.Kind { //nolint:exhaustive // all others are errors
	case Array, Set, Map, Push:
		return r.Elems, nil
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return nil, ErrProtocol
}

const (
	maxReply    = 16 << 20 // bytes
	maxElements = 1 << 18  // of all lists in a reply
	maxLine     = 16 << 10 // bytes
	maxNested   = 16       // lists
)

// Scanner finds where replies end. It reads each byte once, however they come in pieces.
type Scanner struct {
	at    int             // bytes of the reply that were read
	seen  int             // bytes of a line that is not complete which have no end of line
	left  [maxNested]list // lists that are not complete
	depth int
	total int  // elements of the reply
	ended bool // at is where the reply ends
}

// list is a list that is not complete.
type list struct {
	left int
	part bool // it is not an element of the list around it: attributes
}

// Next returns the reply with which b begins, and how many bytes of b it has. It is 0 if the reply is not complete: then the next
// call must have the same bytes and more. The error is [ErrProtocol].
func (s *Scanner) Next(b []byte) (r Reply, n int, err error) {
	complete, err := s.scan(b)
	if !complete || err != nil {
		return Reply{}, 0, err
	}
	p := parser{rest: string(b[:s.at])}
	n = s.at
	*s = Scanner{}
	if r = p.reply(); p.wrong {
		return Reply{}, 0, ErrProtocol
	}
	return r, n, nil
}

// scan reports whether buf, which begins with a reply, has it whole. It is then the first s.at bytes.
func (s *Scanner) scan(buf []byte) (complete bool, err error) {
	for !s.ended {
		if s.at > len(buf) { // within a string
			return false, nil
		}
		rest := buf[s.at:]
		end := bytes.IndexByte(rest[s.seen:], '\n')
		if end < 0 {
			if s.seen = len(rest); s.seen > maxLine {
				return false, ErrProtocol
			}
			return false, nil
		}
		end += s.seen
		s.seen = 0
		if end > maxLine || end < 2 || rest[end-1] != '\r' {
			return false, ErrProtocol
		}
		s.at += end + 1
		s.ended, err = s.line(Kind(rest[0]), rest[1:end-1])
		if err != nil || s.at > maxReply {
			return false, ErrProtocol
		}
	}
	return s.at <= len(buf), nil
}

// line reads a line, and reports whether the reply ends with it, or with the string that it announces.
func (s *Scanner) line(kind Kind, text []byte) (complete bool, err error) {
	switch kind {
	case Simple, Failure, Int, Null, Bool, Double, Big:
		return s.end(), nil
	case Bulk, Verbatim, Blob, Array, Set, Push, Map, attributes:
	default:
		return false, ErrProtocol
	}
	if len(text) == 2 && text[0] == '-' && text[1] == '1' && (kind == Bulk || kind == Array) {
		return s.end(), nil
	}
	n, ok := number(text)
	if !ok || n > maxReply {
		return false, ErrProtocol
	}
	switch kind { //nolint:exhaustive // all others have as many elements as they say
	case Bulk, Verbatim, Blob:
		s.at += n + len("\r\n")
		return s.end(), nil
	case Map, attributes:
		n *= 2
	}
	if s.total += n; n > maxElements || s.total > maxElements || s.depth == maxNested {
		return false, ErrProtocol
	}
	if n == 0 {
		return kind != attributes && s.end(), nil
	}
	s.left[s.depth] = list{left: n, part: kind == attributes}
	s.depth++
	return false, nil
}

// end ends an element, and the lists that it completes, and reports whether that is the reply.
func (s *Scanner) end() bool {
	for s.depth > 0 {
		o := &s.left[s.depth-1]
		if o.left--; o.left > 0 {
			return false
		}
		s.depth--
		if o.part {
			return false
		}
	}
	return true
}

// number reads digits.
func number(text []byte) (int, bool) {
	if len(text) == 0 || len(text) > 9 {
		return 0, false
	}
	n := 0
	for _, b := range text {
		if b < '0' || b > '9' {
			return 0, false
		}
		n = 10*n + int(b-'0')
	}
	return n, true
}

// parser makes replies of a text that a scanner has found whole.
type parser struct {
	rest  string
	wrong bool // a string is longer than it says
}

func (p *parser) reply() Reply {
	for {
		r := p.element()
		if r.Kind != attributes {
			return r
		}
	}
}

// element reads the next element, which may be attributes of the one after it.
func (p *parser) element() Reply {
	end := 0
	for p.rest[end] != '\r' || p.rest[end+1] != '\n' {
		end++
	}
	r := Reply{Kind: Kind(p.rest[0]), Value: p.rest[1:end]}
	p.rest = p.rest[end+2:]
	switch r.Kind {
	case Bulk, Verbatim, Blob:
		n, ok := number([]byte(r.Value))
		if !ok {
			return Reply{Kind: Null}
		}
		p.wrong = p.wrong || p.rest[n] != '\r' || p.rest[n+1] != '\n'
		r.Value, p.rest = p.rest[:n], p.rest[n+2:]
		if r.Kind == Verbatim { // its first four bytes name a format
			r.Value = r.Value[min(4, n):]
		}
	case Array, Set, Push, Map, attributes:
		n, ok := number([]byte(r.Value))
		if !ok {
			return Reply{Kind: Null}
		}
		if r.Kind == Map || r.Kind == attributes {
			n *= 2
		}
		r.Value, r.Elems = "", make([]Reply, n)
		for i := range r.Elems {
			r.Elems[i] = p.reply()
		}
	case Simple, Failure, Int, Null, Bool, Double, Big:
	}
	return r
}

// leastRead is how many bytes a Reader asks for at least.
const leastRead = 4 << 10

// Reader reads replies from a connection. It is not safe for concurrent use.
type Reader struct {
	from io.Reader
	b    []byte // what was read and is not a whole reply
	scan Scanner
}

// NewReader reads replies from r.
func NewReader(r io.Reader) *Reader { return &Reader{from: r} }

// Read waits for the next reply. The error is [io.EOF] if the connection has ended between two replies, and [ErrProtocol] if what
// came is none.
func (r *Reader) Read() (Reply, error) {
	for {
		if reply, n, err := r.scan.Next(r.b); n > 0 || err != nil {
			r.b = r.b[n:]
			return reply, err
		}
		r.b = slices.Grow(r.b, leastRead)
		n, err := r.from.Read(r.b[len(r.b):cap(r.b)])
		r.b = r.b[:len(r.b)+n]
		if n == 0 && err != nil {
			if errors.Is(err, io.EOF) && len(r.b) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return Reply{}, err
		}
	}
}
