package resp

import (
	"bytes"
	"errors"
	"strconv"
)

// ErrProtocol is the error for bytes that are no reply, or one of a size that no reply to this client has.
var ErrProtocol = errors.New("it does not speak the protocol of Redis")

// ErrUnasked is the error for a reply to no command.
var ErrUnasked = errors.New("it sends what it was not asked for")

// Error is an error that the server replied: its text, which begins with a word in capitals.
type Error string

// Error implements error.
func (e Error) Error() string { return string(e) }

// Reply is what a server replies to a command, of both versions of the protocol.
type Reply struct {
	kind byte
	text string
	list []Reply
}

// Err is the error that was replied, or nil.
func (r Reply) Err() error {
	if r.kind == '-' || r.kind == '!' {
		return Error(r.text)
	}
	return nil
}

// Text is the text of a reply that is a string, a number or a simple text. Other replies are an error.
func (r Reply) Text() (string, error) {
	switch r.kind {
	case '$', '+', ':', ',', '(', '#':
		return r.text, nil
	case '=': // its first four bytes name a format
		return r.text[min(4, len(r.text)):], nil
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
	switch r.kind {
	case '*', '~', '%', '>':
		return r.list, nil
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

// scanner finds where a reply ends. It reads each byte once, however the reply comes in pieces.
type scanner struct {
	at     int             // bytes of the reply that were read
	seen   int             // bytes of a line that is not complete which have no end of line
	left   [maxNested]list // lists that are not complete
	depth  int
	total  int  // elements of the reply
	pushed bool // the reply is one that was not asked for
	ended  bool // at is where the reply ends
}

// list is a list that is not complete.
type list struct {
	left int
	part bool // it is not an element of the list around it: attributes
}

// scan reports whether buf, which begins with a reply, has it whole. It is then the first s.at bytes.
func (s *scanner) scan(buf []byte) (complete bool, err error) {
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
		s.ended, err = s.line(rest[0], rest[1:end-1])
		if err != nil || s.at > maxReply {
			return false, ErrProtocol
		}
	}
	return s.at <= len(buf), nil
}

// line reads a line, and reports whether the reply ends with it, or with the string that it announces.
func (s *scanner) line(kind byte, text []byte) (complete bool, err error) {
	switch kind {
	case '+', '-', ':', '_', '#', ',', '(':
		return s.end(), nil
	case '$', '=', '!', '*', '~', '>', '%', '|':
	default:
		return false, ErrProtocol
	}
	if len(text) == 2 && text[0] == '-' && text[1] == '1' && (kind == '$' || kind == '*') {
		return s.end(), nil
	}
	n, ok := number(text)
	if !ok || n > maxReply {
		return false, ErrProtocol
	}
	switch kind {
	case '$', '=', '!':
		s.at += n + len("\r\n")
		return s.end(), nil
	case '%', '|':
		n *= 2
	case '>':
		if s.depth == 0 {
			s.pushed = true
		}
	}
	if s.total += n; n > maxElements || s.total > maxElements || s.depth == maxNested {
		return false, ErrProtocol
	}
	if n == 0 {
		return kind != '|' && s.end(), nil
	}
	s.left[s.depth] = list{left: n, part: kind == '|'}
	s.depth++
	return false, nil
}

// end ends an element, and the lists that it completes, and reports whether that is the reply.
func (s *scanner) end() bool {
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
		r, attributes := p.element()
		if !attributes {
			return r
		}
	}
}

// element reads the next element, which may be attributes of the one after it.
func (p *parser) element() (r Reply, attributes bool) {
	end := 0
	for p.rest[end] != '\r' || p.rest[end+1] != '\n' {
		end++
	}
	r = Reply{kind: p.rest[0], text: p.rest[1:end]}
	p.rest = p.rest[end+2:]
	switch r.kind {
	case '$', '=', '!':
		n, ok := number([]byte(r.text))
		if !ok {
			return Reply{kind: '_'}, false
		}
		p.wrong = p.wrong || p.rest[n] != '\r' || p.rest[n+1] != '\n'
		r.text, p.rest = p.rest[:n], p.rest[n+2:]
		return r, false
	case '*', '~', '>', '%', '|':
		n, ok := number([]byte(r.text))
		if !ok {
			return Reply{kind: '_'}, false
		}
		if r.kind == '%' || r.kind == '|' {
			n *= 2
		}
		r.text, r.list = "", make([]Reply, n)
		for i := range r.list {
			r.list[i] = p.reply()
		}
	}
	return r, r.kind == '|'
}
