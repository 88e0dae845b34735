package resp

import (
	"bytes"
	"fmt"
	"math"
)

// Limits bound what the other side may send.
type Limits struct {
	// MaxBulk is how many bytes an argument may have. Default: 64 KiB.
	MaxBulk int
	// MaxArgs is how many arguments a command may have, its name included. Default: 1024.
	MaxArgs int
	// MaxInline is how many bytes an inline command may have, the end of the line included. Default: 64 KiB.
	MaxInline int
	// MaxCommand is how many bytes a whole command may have. Default: 1 MiB.
	MaxCommand int
}

// WithDefaults is l with the default in place of what is not positive.
func (l Limits) WithDefaults() Limits {
	for _, f := range []struct {
		value *int
		usual int
	}{{&l.MaxBulk, 64 << 10}, {&l.MaxArgs, 1024}, {&l.MaxInline, 64 << 10}, {&l.MaxCommand, 1 << 20}} {
		if *f.value <= 0 {
			*f.value = f.usual
		}
	}
	return l
}

// Bounds for clients that have not authenticated, as Redis has them.
const (
	strangerArgs = 10
	strangerBulk = 16 << 10
)

// ProtocolError is what a server answers to bytes that are no command, before it closes the connection.
type ProtocolError string

// Error is the answer, without the "-" at its start.
func (e ProtocolError) Error() string { return "ERR Protocol error: " + string(e) }

// tlsHandshake is the first byte of a client that wants TLS. It begins no word.
const tlsHandshake = 0x16

// mostDigits is how long a length may be: more digits than any number that is accepted.
const mostDigits = 20

// Parser finds commands in a stream of bytes: arrays of bulk strings, and lines of words as a person would type them. It stores
// no bytes, and so long as arguments are not many it allocates nothing after its first commands. Its limits are set by Init.
type Parser struct {
	limits Limits
	// Stranger says that the client has not authenticated: it may only send few and short arguments.
	Stranger bool

	args   [][]byte
	starts []int // of args in the buffer
	pos    int   // where the part that is not understood yet begins
	state  parserState
	left   int // arguments that are still to come
	bulk   int // length of the argument that comes
}

type parserState uint8

const (
	atStart  parserState = iota
	atHeader             // of an argument
	atBulk
	inLine
)

// Init makes p a parser with these limits that has read nothing. It keeps its memory.
func (p *Parser) Init(l Limits) {
	*p = Parser{limits: l.WithDefaults(), args: p.args[:0], starts: p.starts[:0]}
}

// Next finds the command with which buf begins, and n, how many bytes it has. If it is not complete yet, n is 0: the next call
// must have a buffer with the same bytes and more behind them, but it may be another buffer. args are slices of buf, valid
// until the next call or a change of buf; there are none if the client has sent an empty line or an empty array, which have no
// answer. The words of a line are unquoted in place, so that the n bytes of buf may have changed. The error is a
// [ProtocolError]; nothing can be read after it.
func (p *Parser) Next(buf []byte) (args [][]byte, n int, err error) {
	switch p.state {
	case atStart:
		if len(buf) == 0 {
			return nil, 0, nil
		}
		p.args, p.starts = p.args[:0], p.starts[:0]
		if buf[0] == tlsHandshake {
			return nil, 0, ProtocolError("TLS is not spoken here")
		}
		if buf[0] != '*' {
			p.state, p.pos = inLine, 0
			return p.line(buf)
		}
		count, size := number(buf[1:])
		switch {
		case size == 0:
			return nil, 0, nil
		case size == tooLong:
			return nil, 0, ProtocolError("too big mbulk count string")
		case size < 0 || count > p.limits.MaxArgs:
			return nil, 0, ProtocolError("invalid multibulk length")
		case p.Stranger && count > strangerArgs:
			return nil, 0, ProtocolError("unauthenticated multibulk length")
		case count <= 0:
			return nil, 1 + size, nil
		}
		p.pos, p.left, p.state = 1+size, count, atHeader
	case inLine:
		return p.line(buf)
	case atHeader, atBulk:
		for i, start := range p.starts { // buf may be another one
			end := start + len(p.args[i])
			p.args[i] = buf[start:end:end]
		}
	}
	return p.array(buf)
}

// short is how many bytes an argument has whose length is a digit or two, with all that belongs to it, at most.
const short = len("$99\r\n") + 99 + len("\r\n")

// shortHeader reads the length of an argument that has a digit or two, and returns it with the length of the header: 0 if it is
// another one.
func shortHeader(b *[5]byte) (size, n int) {
	first, rest := b[1]-'0', b[2:]
	switch {
	case b[0] != '$' || first > 9:
	case rest[0] == '\r' && rest[1] == '\n':
		return int(first), 4
	case first > 0 && rest[0]-'0' <= 9 && string(rest[1:]) == "\r\n":
		return int(10*first + rest[0] - '0'), 5
	}
	return 0, 0
}

// shorts takes the short arguments that have arrived as a whole, which most have. It stops where it is not sure of something.
func (p *Parser) shorts(buf []byte) {
	pos, left := p.pos, p.left
	for ; left > 0 && pos+5 <= len(buf) && pos+short <= p.limits.MaxCommand; left-- {
		size, n := shortHeader((*[5]byte)(buf[pos:]))
		start := pos + n
		end := start + size
		if n == 0 || size > p.limits.MaxBulk || end+2 > len(buf) || buf[end] != '\r' || buf[end+1] != '\n' {
			break
		}
		p.args = append(p.args, buf[start:end:end])
		p.starts = append(p.starts, start)
		pos = end + 2
	}
	p.pos, p.left = pos, left
}

// Frame is a command without one of its arguments: the bytes before that, and those behind it. The zero Frame is that of none.
type Frame struct{ before, after []byte }

// Frame is the command that [Parser.Next] has found last, and which is all of buf, without an argument that is not its name. It
// is the zero Frame for a line of words. It is valid as long as buf does not change.
func (p *Parser) Frame(buf []byte, argument int) Frame {
	if argument >= len(p.starts) { // a line has none
		return Frame{}
	}
	before := p.starts[argument-1] + len(p.args[argument-1]) + len("\r\n")
	return Frame{buf[:before], buf[p.starts[argument]+len(p.args[argument]):]}
}

// In is f in the memory of b, which it is valid as long as; the zero Frame if there is too little of that.
func (f Frame) In(b []byte) Frame {
	n := len(f.before)
	end := n + len(f.after)
	if end > len(b) {
		return Frame{}
	}
	copy(b, f.before)
	copy(b[n:], f.after)
	return Frame{b[:n:n], b[n:end:end]}
}

// String shows both parts.
func (f Frame) String() string { return fmt.Sprintf("%q ... %q", f.before, f.after) }

// Again finds a command with which buf begins, and which is that of a frame with another argument in it. n is how many bytes it
// has; if it is 0, [Parser.Next] has to say what buf begins with. It returns what that would, in a part of the time.
func (p *Parser) Again(buf []byte, f Frame) (argument []byte, n int) {
	at := len(f.before)
	if at == 0 || at+5 > len(buf) || p.state != atStart || !bytes.Equal(buf[:at], f.before) {
		return nil, 0
	}
	size, head := shortHeader((*[5]byte)(buf[at:]))
	start := at + head
	end := start + size
	n = end + len(f.after)
	if head == 0 || size > p.limits.MaxBulk || n > min(p.limits.MaxCommand, len(buf)) ||
		!bytes.Equal(buf[end:n], f.after) {
		return nil, 0
	}
	return buf[start:end:end], n
}

// array continues an array of bulk strings.
func (p *Parser) array(buf []byte) (args [][]byte, n int, err error) {
	if p.state == atHeader {
		p.shorts(buf)
	}
	for p.left > 0 {
		if p.state == atHeader {
			if p.pos >= len(buf) {
				return nil, 0, nil
			}
			if buf[p.pos] != '$' {
				return nil, 0, ProtocolError("expected '$', got '" + string(printable(buf[p.pos])) + "'")
			}
			bulk, size := number(buf[p.pos+1:])
			switch {
			case size == 0:
				return nil, 0, nil
			case size == tooLong:
				return nil, 0, ProtocolError("too big bulk count string")
			case size < 0 || bulk < 0 || bulk > p.limits.MaxBulk:
				return nil, 0, ProtocolError("invalid bulk length")
			case p.Stranger && bulk > strangerBulk:
				return nil, 0, ProtocolError("unauthenticated bulk length")
			case p.pos+1+size+bulk+2 > p.limits.MaxCommand:
				return nil, 0, ProtocolError("too big command")
			}
			p.pos, p.bulk, p.state = p.pos+1+size, bulk, atBulk
		}
		end := p.pos + p.bulk
		if len(buf) < end+2 {
			return nil, 0, nil
		}
		if buf[end] != '\r' || buf[end+1] != '\n' {
			return nil, 0, ProtocolError("expected the end of a line after a bulk string")
		}
		p.args = append(p.args, buf[p.pos:end:end])
		p.starts = append(p.starts, p.pos)
		p.pos, p.state = end+2, atHeader
		p.left--
	}
	p.state = atStart
	return p.args, p.pos, nil
}

// line continues a line of words.
func (p *Parser) line(buf []byte) (args [][]byte, n int, err error) {
	within := buf[:min(len(buf), p.limits.MaxInline)]
	i := bytes.IndexByte(within[p.pos:], '\n')
	if i < 0 {
		if len(within) == p.limits.MaxInline {
			return nil, 0, ProtocolError("too big inline request")
		}
		p.pos = len(within)
		return nil, 0, nil
	}
	end := p.pos + i
	p.state = atStart
	if p.args, err = p.words(within[:end]); err != nil {
		return nil, 0, err
	}
	return p.args, end + 1, nil
}

// words splits a line at its spaces. A word may be quoted, with escapes: they are resolved in place, where they need less room.
func (p *Parser) words(line []byte) ([][]byte, error) {
	args := p.args[:0]
	for i := 0; ; {
		for i < len(line) && isSpace(line[i]) {
			i++
		}
		if i == len(line) {
			return args, nil
		}
		start := i
		end, next, ok := word(line, i)
		switch {
		case !ok:
			return nil, ProtocolError("unbalanced quotes in request")
		case len(args) == p.limits.MaxArgs, p.Stranger && len(args) == strangerArgs:
			return nil, ProtocolError("too many words in inline request")
		case end-start > p.limits.MaxBulk, p.Stranger && end-start > strangerBulk:
			return nil, ProtocolError("too long word in inline request")
		}
		args = append(args, line[start:end:end])
		i = next
	}
}

// word reads the word that begins at i, and writes it there without quotes and escapes, up to end. What follows it begins at
// next.
func word(line []byte, i int) (end, next int, ok bool) {
	end = i
	for i < len(line) && !isSpace(line[i]) {
		quote := line[i]
		if quote != '"' && quote != '\'' {
			line[end] = quote
			end++
			i++
			continue
		}
		for i++; ; {
			if i == len(line) {
				return 0, 0, false
			}
			if line[i] == quote {
				i++
				// Nothing but a space may follow.
				return end, i, i == len(line) || isSpace(line[i])
			}
			c, size := line[i], 1
			if c == '\\' {
				c, size = escaped(line[i:], quote)
			}
			line[end] = c
			end++
			i += size
		}
	}
	return end, i, true
}

// escaped is what a backslash and that which follows it stand for, and their length. Between single quotes only a single quote
// can be escaped.
func escaped(b []byte, quote byte) (c byte, size int) {
	switch {
	case len(b) < 2, quote == '\'' && b[1] != '\'':
		return '\\', 1
	case quote == '\'':
		return '\'', 2
	case b[1] == 'x' && len(b) >= 4 && isHex(b[2]) && isHex(b[3]):
		return fromHex(b[2])<<4 | fromHex(b[3]), 4
	}
	switch b[1] {
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'b':
		return '\b', 2
	case 'a':
		return '\a', 2
	}
	return b[1], 2
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

func fromHex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// printable is c, or a question mark if it would not show.
func printable(c byte) byte {
	if c < ' ' || c > '~' {
		return '?'
	}
	return c
}

// What number answers in place of a size.
const (
	malformed = -1
	tooLong   = -2
)

// number reads an integer and the end of its line, and returns how many bytes they have: 0 if they are not all there yet,
// malformed or tooLong. Like Redis it wants no sign but "-", and no zero in front.
func number(b []byte) (n, size int) {
	if len(b) >= 3 && b[1] == '\r' && b[2] == '\n' && b[0]-'0' <= 9 { // most have one digit
		return int(b[0] - '0'), 3
	}
	i, negative := 0, false
	if len(b) > 0 && b[0] == '-' {
		i, negative = 1, true
	}
	first := i
	for ; i < len(b) && b[i]-'0' <= 9; i++ {
		if i-first == mostDigits {
			return 0, tooLong
		}
		if i == first+1 && b[first] == '0' {
			return 0, malformed
		}
		n = int(min(int64(n)*10+int64(b[i]-'0'), math.MaxInt32)) // more than any limit, and no overflow
	}
	switch rest := b[i:]; {
	case len(rest) == 0:
		return 0, 0
	case i == first, rest[0] != '\r', negative && n == 0:
		return 0, malformed
	case len(rest) == 1:
		return 0, 0
	case rest[1] != '\n':
		return 0, malformed
	}
	if negative {
		n = -n
	}
	return n, i + 2
}
