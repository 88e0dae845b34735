package resp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// AppendCommand appends a command as an array of bulk strings. The first argument is its name.
func AppendCommand[T string | []byte](b []byte, args ...T) []byte {
	b = appendHeader(b, '*', int64(len(args)))
	for _, a := range args {
		b = appendHeader(b, '$', int64(len(a)))
		b = append(b, a...)
		b = append(b, '\r', '\n')
	}
	return b
}

// Kind is the type of a reply: the byte with which it begins.
type Kind byte

// Kinds of replies. Those of a null of version 2 become [Null].
const (
	Simple   Kind = '+'
	Error    Kind = '-'
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

	attribute Kind = '|'
)

// Reply is what a server has answered.
type Reply struct {
	Kind Kind
	// Int is that of [Int], 0 or 1 of [Bool].
	Int int64
	// Float is that of [Double].
	Float float64
	// Text is that of [Simple], [Error], [Bulk], [Big], [Blob] and [Verbatim], which has no prefix here.
	Text []byte
	// Elems are those of [Array], [Set] and [Push], and the keys and values in turn of [Map].
	Elems []Reply
}

// IsError reports whether the server has answered with an error.
func (r *Reply) IsError() bool { return r.Kind == Error || r.Kind == Blob }

// ReplyLimits bound what a server may answer.
type ReplyLimits struct {
	// MaxReply is how many bytes a reply may have. Default: 64 MiB.
	MaxReply int
	// MaxDepth is how deep replies may stand in each other, 64 at most. Default: 16.
	MaxDepth int
}

// Bounds that are not options: of depth, of the values in a reply, and of a line.
const (
	mostDepth   = 64
	mostNodes   = 1 << 20
	longestLine = 64 << 10
)

// ErrReply is the error of bytes that are no reply, or more than the limits allow.
var ErrReply = errors.New("weir: not a reply of RESP")

// ReplyReader reads replies of both versions. It is not safe for concurrent use.
type ReplyReader struct {
	from   io.Reader
	limits ReplyLimits
	b      []byte
	start  int // where the next reply begins
	scan   scanner
	nodes  []Reply
}

// NewReplyReader reads replies from r.
func NewReplyReader(r io.Reader, l ReplyLimits) *ReplyReader {
	if l.MaxReply <= 0 {
		l.MaxReply = 64 << 20
	}
	if l.MaxDepth <= 0 {
		l.MaxDepth = 16
	}
	l.MaxDepth = min(l.MaxDepth, mostDepth)
	return &ReplyReader{from: r, limits: l}
}

const replyBuffer = 16 << 10

// Read waits for the next reply. It and all in it are valid until the next call. An error that the server has answered is no
// error of Read. The error is [io.EOF] if the connection has ended between two replies, and wraps [ErrReply] if what came is
// none.
func (r *ReplyReader) Read() (Reply, error) {
	for {
		reply, ok, err := r.Buffered()
		if ok || err != nil {
			return reply, err
		}
		if r.start > 0 {
			r.b = r.b[:copy(r.b, r.b[r.start:])]
			r.start = 0
		}
		if len(r.b) == cap(r.b) {
			grown := make([]byte, len(r.b), max(2*cap(r.b), replyBuffer))
			copy(grown, r.b)
			r.b = grown
		}
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

// Buffered is Read if the next reply has come already, and ok false if it has not.
func (r *ReplyReader) Buffered() (reply Reply, ok bool, err error) {
	if r.start == len(r.b) {
		return Reply{}, false, nil
	}
	size, err := r.scan.next(r.b[r.start:], r.limits)
	if size == 0 || err != nil {
		return Reply{}, false, err
	}
	if cap(r.nodes) < r.scan.nodes {
		r.nodes = make([]Reply, 0, r.scan.nodes)
	}
	r.nodes = r.nodes[:0]
	b := builder{b: r.b[r.start : r.start+size], nodes: r.nodes}
	reply = b.reply()
	r.start += size
	r.scan.pos, r.scan.nodes, r.scan.depth = 0, 0, 0
	return reply, true, nil
}

// scanner finds where a reply ends, however it arrives.
type scanner struct {
	pos   int // of the next part in the buffer
	nodes int // replies in the reply
	depth int
	left  [mostDepth]struct {
		n         int
		attribute bool // is followed by the reply that it describes
	}
}

// next is the size of the reply with which b begins, 0 if it is not complete. The next call must have the same bytes and more.
func (s *scanner) next(b []byte, l ReplyLimits) (int, error) {
	for {
		if s.pos >= l.MaxReply {
			return 0, fmt.Errorf("%w: longer than %d bytes", ErrReply, l.MaxReply)
		}
		rest := b[s.pos:]
		end, err := endOfLine(rest)
		if end == 0 || err != nil {
			return 0, err
		}
		kind, text := Kind(rest[0]), rest[1:end-1]
		size, count, err := measure(kind, text)
		if err != nil {
			return 0, err
		}
		if size > l.MaxReply || count > l.MaxReply/3 {
			return 0, fmt.Errorf("%w: longer than %d bytes", ErrReply, l.MaxReply)
		}
		size += end + 1
		if len(rest) < size {
			if s.pos+size > l.MaxReply {
				return 0, fmt.Errorf("%w: longer than %d bytes", ErrReply, l.MaxReply)
			}
			return 0, nil
		}
		if size > end+1 && (rest[size-2] != '\r' || rest[size-1] != '\n') {
			return 0, fmt.Errorf("%w: text that does not end as it should", ErrReply)
		}
		s.pos += size
		if s.nodes++; s.nodes > mostNodes {
			return 0, fmt.Errorf("%w: more than %d values", ErrReply, mostNodes)
		}
		if count > 0 {
			if s.depth == l.MaxDepth {
				return 0, fmt.Errorf("%w: deeper than %d", ErrReply, l.MaxDepth)
			}
			s.left[s.depth].n, s.left[s.depth].attribute = count, kind == attribute
			s.depth++
			continue
		}
		if kind != attribute && s.complete() {
			return s.pos, nil
		}
	}
}

// endOfLine is where the first line of a reply ends, 0 if it has not arrived.
func endOfLine(b []byte) (int, error) {
	end := bytes.IndexByte(b, '\n')
	switch {
	case end > longestLine, end < 0 && len(b) > longestLine:
		return 0, fmt.Errorf("%w: a line longer than %d bytes", ErrReply, longestLine)
	case end < 0:
		return 0, nil
	case end < 2 || b[end-1] != '\r':
		return 0, fmt.Errorf("%w: a line that does not end as it should", ErrReply)
	}
	return end, nil
}

// complete notes that a reply is complete, and reports whether all is.
func (s *scanner) complete() bool {
	for s.depth > 0 {
		top := &s.left[s.depth-1]
		if top.n--; top.n > 0 {
			return false
		}
		s.depth--
		if top.attribute {
			return false
		}
	}
	return true
}

// measure is how many bytes follow the first line of a reply, and how many replies.
func measure(kind Kind, text []byte) (size, count int, err error) {
	switch kind {
	case Simple, Error, Big:
		return 0, 0, nil
	case Int, Double, Bool, Null:
		if _, ok := scalar(kind, text); !ok {
			return 0, 0, fmt.Errorf("%w: %q", ErrReply, clipped(kind, text))
		}
		return 0, 0, nil
	case Bulk, Blob, Verbatim, Array, Map, Set, Push, attribute:
	default:
		return 0, 0, fmt.Errorf("%w: it begins with %q", ErrReply, byte(kind))
	}
	if (kind == Bulk || kind == Array) && string(text) == "-1" {
		return 0, 0, nil
	}
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 0 || kind == Verbatim && n < 4 {
		return 0, 0, fmt.Errorf("%w: %q", ErrReply, clipped(kind, text))
	}
	switch kind {
	case Bulk, Blob, Verbatim:
		return min(n, math.MaxInt-1<<20) + 2, 0, nil
	case Map, attribute:
		return 0, min(n, math.MaxInt/2) * 2, nil
	default:
		return 0, n, nil
	}
}

func clipped(kind Kind, text []byte) string {
	return string(byte(kind)) + string(text[:min(len(text), 32)])
}

// scalar is a reply of one line.
func scalar(kind Kind, text []byte) (r Reply, ok bool) {
	r.Kind = kind
	var err error
	switch kind {
	case Int:
		r.Int, ok = integer(text)
		return r, ok
	case Double:
		r.Float, err = strconv.ParseFloat(string(text), 64)
		return r, err == nil
	case Bool:
		if string(text) == "t" {
			r.Int = 1
		}
		return r, string(text) == "t" || string(text) == "f"
	case Null:
		return r, len(text) == 0
	default:
		r.Text = text
		return r, true
	}
}

// integer reads what fits in 64 bits.
func integer(text []byte) (int64, bool) {
	if len(text) == 0 || len(text) > 18 { // rare: it may not fit
		i, err := strconv.ParseInt(string(text), 10, 64)
		return i, err == nil
	}
	digits, negative := text, text[0] == '-'
	if negative || text[0] == '+' {
		digits = text[1:]
	}
	var i int64
	for _, c := range digits {
		if c-'0' > 9 {
			return 0, false
		}
		i = i*10 + int64(c-'0')
	}
	if negative {
		i = -i
	}
	return i, len(digits) > 0
}

// builder makes a reply of bytes that a scanner has found to be one.
type builder struct {
	b     []byte
	nodes []Reply // with room for all
}

func (b *builder) reply() Reply {
	for b.b[0] == byte(attribute) { // no caller asks for it
		nodes := b.nodes
		for range b.header() {
			b.reply()
		}
		b.nodes = nodes
	}
	end := bytes.IndexByte(b.b, '\n')
	kind, text := Kind(b.b[0]), b.b[1:end-1]
	b.b = b.b[end+1:]
	switch kind {
	case Bulk, Blob, Verbatim, Array, Map, Set, Push:
	default:
		r, _ := scalar(kind, text)
		return r
	}
	size, count, _ := measure(kind, text)
	switch {
	case size > 0:
		r := Reply{Kind: kind, Text: b.b[: size-2 : size-2]}
		b.b = b.b[size:]
		if kind == Verbatim {
			r.Text = r.Text[4:]
		}
		return r
	case text[0] == '-': // the nulls of version 2
		return Reply{Kind: Null}
	}
	start := len(b.nodes)
	b.nodes = b.nodes[:start+count]
	for i := range count {
		b.nodes[start+i] = b.reply()
	}
	return Reply{Kind: kind, Elems: b.nodes[start : start+count : start+count]}
}

// header passes over the first line of a reply, and returns how many replies follow.
func (b *builder) header() int {
	end := bytes.IndexByte(b.b, '\n')
	_, count, _ := measure(Kind(b.b[0]), b.b[1:end-1])
	b.b = b.b[end+1:]
	return count
}
