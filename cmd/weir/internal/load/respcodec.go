package load

import (
	"bytes"
	"errors"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/weirhq/weir/internal/respclient"
)

// respCodec speaks RESP 2 with weir, Redis, Valkey and whatever else does.
type respCodec struct {
	template template
	decision bool // a reply is an array that begins with 0 for allowed and 1 for refused
	password string
	scan     respclient.Scanner
	order    order
}

// newRESPCodec returns the codec for a command, in whose arguments every {key} stands for the key.
func newRESPCodec(args []string, decision bool, password string) *respCodec {
	return &respCodec{decision: decision, password: password, template: template{encode: func(key string) []byte {
		about := make([]string, len(args))
		for i, arg := range args {
			about[i] = strings.ReplaceAll(arg, keyMark, key)
		}
		return respclient.AppendCommand(nil, about...)
	}}}
}

func (c *respCodec) open(nc net.Conn) ([]byte, error) {
	c.order.reset()
	c.scan = respclient.Scanner{}
	if c.password == "" {
		return nil, nil
	}
	if _, err := nc.Write(respclient.AppendCommand(nil, "AUTH", c.password)); err != nil {
		return nil, err
	}
	// What the reader might have read of the next reply would be lost: there is none yet.
	r, err := respclient.NewReader(nc).Read()
	switch {
	case errors.Is(err, respclient.ErrProtocol):
		return nil, errNotRESP
	case err != nil:
		return nil, err
	case r.Err() != nil:
		return nil, &loginError{r.Value}
	}
	return nil, nil
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
	for read < len(b) {
		n, first, known := numbers(b[read:])
		is := reply{}
		if known && c.decision {
			is.outcome, is.fault = decision(first)
		}
		if !known {
			r, size, err := c.scan.Next(b[read:])
			if err != nil {
				return read, to, errNotRESP
			}
			if n = size; n > 0 && r.Kind == respclient.Push {
				read += n
				continue
			}
			is = c.meaning(&r)
		}
		switch {
		case n == 0:
			return read, to, nil
		case c.order.empty():
			return read, to, errUnasked
		}
		read += n
		is.slot = c.order.pop()
		to = append(to, is)
	}
	return read, to, nil
}

var errUnasked = &protocolError{"a reply without a request"}

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
	case b[1] < '1' || b[1] > '9' || string(b[2:4]) != "\r\n":
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
	if n > 6 && b[6] == '\r' {
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

// meaning is what a reply says that is not numbers alone.
func (c *respCodec) meaning(r *respclient.Reply) (is reply) {
	switch {
	case r.Err() != nil:
		word, _, _ := strings.Cut(r.Value, " ")
		is.outcome, is.fault = failed, &fault{word, r.Value}
	case c.decision:
		first := byte(0)
		if len(r.Elems) > 0 && r.Elems[0].Kind == respclient.Int && len(r.Elems[0].Value) == 1 {
			first = r.Elems[0].Value[0]
		}
		is.outcome, is.fault = decision(first)
	}
	return is
}

// commandWord is a word of a command, whose blanks are in quotes, and quotedPart what is in quotes in it.
var (
	commandWord = regexp.MustCompile(`(?:[^ \t"']|"[^"]*"|'[^']*')+`)
	quotedPart  = regexp.MustCompile(`"([^"]*)"|'([^']*)'`)
)

// commandWords splits a command at blanks, but for those in single or double quotes.
func commandWords(text string) ([]string, error) {
	words := commandWord.FindAllString(text, -1)
	switch {
	case strings.ContainsAny(commandWord.ReplaceAllString(text, ""), `"'`):
		return nil, errors.New("has a quote that does not end")
	case len(words) == 0:
		return nil, errors.New("is empty")
	}
	for i, word := range words {
		words[i] = quotedPart.ReplaceAllString(word, "$1$2")
	}
	return words, nil
}
