package load

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/resp"
)

// respCodec speaks RESP 2 with weir, Redis, Valkey and whatever else does.
type respCodec struct {
	template template
	decision bool // a reply is an array that begins with 0 for allowed and 1 for refused
	password string
	feed     feed
	reader   *resp.ReplyReader
	inside   bool // the reader has a part of a reply
	order    order
}

// newRESPCodec returns the codec for a command, in whose arguments every {key} stands for the key.
func newRESPCodec(args []string, decision bool, password string) *respCodec {
	return &respCodec{decision: decision, password: password, template: template{encode: func(key string) []byte {
		about := make([]string, len(args))
		for i, arg := range args {
			about[i] = strings.ReplaceAll(arg, keyMark, key)
		}
		return resp.AppendCommand(nil, about...)
	}}}
}

func (c *respCodec) open(nc net.Conn) ([]byte, error) {
	c.order.reset()
	c.inside = false
	c.reader = resp.NewReplyReader(&c.feed, resp.ReplyLimits{})
	if c.password == "" {
		return nil, nil
	}
	if _, err := nc.Write(resp.AppendCommand(nil, "AUTH", c.password)); err != nil {
		return nil, err
	}
	// A reader of its own would do, but for what it might have read of the next reply: there is none yet.
	r, err := resp.NewReplyReader(nc, resp.ReplyLimits{MaxReply: longestHead}).Read()
	switch {
	case errors.Is(err, resp.ErrReply):
		return nil, errNotRESP
	case err != nil:
		return nil, err
	case r.IsError():
		return nil, &loginError{string(r.Text)}
	}
	return nil, nil
}

// feed gives a reader the bytes that have come, and ends.
type feed struct{ b []byte }

// Read copies as much as there is.
func (f *feed) Read(b []byte) (int, error) {
	if len(f.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b, f.b)
	f.b = f.b[n:]
	return n, nil
}

// loginError is about a password that the server does not take.
type loginError struct{ text string }

func (e *loginError) Error() string { return "the password is refused: " + strconv.Quote(e.text) }

var errNotRESP = &protocolError{"the answer is not RESP"}

func (*respCodec) room() int       { return unlimited }
func (*respCodec) control() []byte { return nil }

func (c *respCodec) request(b, key []byte, slot uint32) []byte {
	c.order.push(slot)
	return c.template.append(b, key)
}

func (c *respCodec) replies(b []byte, to []reply) (int, []reply, error) {
	read := 0
	for !c.inside && read < len(b) {
		n, first, known := numbers(b[read:])
		if !known {
			c.inside = true
			break
		}
		if n == 0 {
			return read, to, nil
		}
		if c.order.empty() {
			return read, to, errUnasked
		}
		read += n
		is := reply{slot: c.order.pop()}
		if c.decision {
			is.outcome, is.fault = decision(first)
		}
		to = append(to, is)
	}
	if read == len(b) {
		return read, to, nil
	}
	to, err := c.readAll(b[read:], to)
	return len(b), to, err
}

var errUnasked = &protocolError{"a reply without a request"}

// readAll reads what is not numbers alone. It goes on with what follows, until nothing of a reply is left over.
func (c *respCodec) readAll(b []byte, to []reply) ([]reply, error) {
	c.feed.b = b
	for {
		r, err := c.reader.Read()
		switch {
		case errors.Is(err, io.EOF):
			c.inside = false
			return to, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return to, nil
		case err != nil:
			return to, errNotRESP
		case r.Kind == resp.Push:
			continue
		case c.order.empty():
			return to, errUnasked
		}
		to = append(to, c.meaning(&r, c.order.pop()))
	}
}

// numbers looks for the end of a reply that is a number, a status, or up to nine numbers, which is what limiters answer, and is
// much cheaper to pass over than to read. n is 0 if its end has not come; it is not known if it is anything else. first is the
// first number of several if that is one digit.
func numbers(b []byte) (n int, first byte, known bool) {
	switch {
	case b[0] == ':' || b[0] == '+':
		return bytes.IndexByte(b, '\n') + 1, 0, true
	case b[0] != '*':
		return 0, 0, false
	case len(b) < 4:
		return 0, 0, true
	case b[1] < '1' || b[1] > '9' || b[2] != '\r':
		return 0, 0, false
	}
	n = 4
	for range b[1] - '0' {
		if n == len(b) {
			return 0, 0, true
		}
		if b[n] != ':' {
			return 0, 0, false
		}
		for n++; n < len(b) && b[n] != '\n'; n++ {
			if c := b[n]; c > '9' || c < '0' && c != '-' && c != '\r' {
				return 0, 0, false
			}
		}
		if n == len(b) {
			return 0, 0, true
		}
		n++
	}
	if b[6] == '\r' {
		first = b[5]
	}
	return n, first, true
}

// decision is what the first number of a reply says.
func decision(first byte) (outcome, *fault) {
	switch first {
	case '0':
		return allowed, nil
	case '1':
		return refused, nil
	}
	return failed, notADecision
}

var notADecision = &fault{"not a decision", "the reply is not an array that begins with 0 or 1"}

func (c *respCodec) meaning(r *resp.Reply, slot uint32) reply {
	is := reply{slot: slot}
	switch {
	case r.IsError():
		word, _, _ := bytes.Cut(r.Text, []byte{' '})
		is.outcome, is.fault = failed, &fault{string(word), string(r.Text)}
	case c.decision:
		first := byte(0)
		if len(r.Elems) > 0 && r.Elems[0].Kind == resp.Int && (r.Elems[0].Int == 0 || r.Elems[0].Int == 1) {
			first = '0' + byte(r.Elems[0].Int)
		}
		is.outcome, is.fault = decision(first)
	}
	return is
}

// commandWords splits a command at blanks, but for those in single or double quotes.
func commandWords(text string) ([]string, error) {
	var (
		words []string
		word  strings.Builder
		quote rune
		begun bool
	)
	for _, c := range text {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, begun = c, true
		case c == ' ' || c == '\t':
			if begun {
				words = append(words, word.String())
				word.Reset()
				begun = false
			}
		default:
			word.WriteRune(c)
			begun = true
		}
	}
	if quote != 0 {
		return nil, errors.New("has a quote that does not end")
	}
	if begun {
		words = append(words, word.String())
	}
	if len(words) == 0 {
		return nil, errors.New("is empty")
	}
	return words, nil
}
