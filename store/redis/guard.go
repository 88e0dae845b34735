package redis

import (
	"bytes"
	"errors"
	"net"
	"sync/atomic"
)

var (
	errDials    = errors.New("connections to it end as often as they may be made")
	errProtocol = errors.New("it does not speak the protocol of Redis")
	errUnasked  = errors.New("it sends what it was not asked for")
)

// guarded is a connection that ends when the server says something that a server must not say, before the library gets it: an
// reply to no request would end the process, and a length is how much memory is asked for.
type guarded struct {
	net.Conn

	asked    atomic.Int64 // commands
	answered int64        // of the reader
	in       answers
	out      commands
	bad      error
}

// Read implements [net.Conn].
func (g *guarded) Read(p []byte) (int, error) {
	if g.bad != nil {
		return 0, g.bad
	}
	n, err := g.Conn.Read(p)
	if n > 0 {
		begun, wrong := g.in.read(p[:n])
		g.answered += begun
		// It has to be known before the answer is read how much was asked.
		if wrong == nil && g.answered > g.asked.Load() && !g.out.subscribed.Load() {
			wrong = errUnasked
		}
		if wrong != nil {
			g.bad = wrong
			_ = g.Close()
			return 0, wrong
		}
	}
	return n, err
}

// Write implements [net.Conn].
func (g *guarded) Write(p []byte) (int, error) {
	g.asked.Add(g.out.read(p))
	return g.Conn.Write(p)
}

const (
	mostBulk     = 64 << 20 // bytes
	mostElements = 1 << 20  // of all lists in an answer
	mostLine     = 64 << 10 // bytes
	mostNested   = 16       // lists
)

// answers follows what a server says.
type answers struct {
	line   []byte // what has come of it, without its end
	inLine bool
	skip   int                // bytes of a bulk that are to come
	left   [mostNested]nested // lists that are not complete
	depth  int
	total  int // elements of the answer
}

// nested is a list that is not complete.
type nested struct {
	left int
	part bool // it is not an element of the list around it: attributes, or what the server pushes
}

// read reads on, and tells how many answers begin in p; what is pushed is none.
func (a *answers) read(p []byte) (begun int64, err error) {
	for len(p) > 0 {
		if a.skip > 0 {
			n := min(a.skip, len(p))
			a.skip -= n
			p = p[n:]
			if a.skip == 0 {
				a.end()
			}
			continue
		}
		if !a.inLine {
			a.inLine, a.line = true, a.line[:0]
			if a.depth == 0 {
				a.total = 0
				if p[0] != '>' && p[0] != '|' {
					begun++
				}
			}
		}
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			a.line = append(a.line, p...)
			p = nil
		} else {
			a.line = append(a.line, p[:end]...)
			p = p[end+1:]
		}
		if len(a.line) > mostLine {
			return begun, errProtocol
		}
		if end >= 0 {
			a.inLine = false
			if err := a.complete(); err != nil {
				return begun, err
			}
		}
	}
	return begun, nil
}

// complete reads a line that is complete.
func (a *answers) complete() error {
	if len(a.line) < 2 || a.line[len(a.line)-1] != '\r' {
		return errProtocol
	}
	kind, text := a.line[0], a.line[1:len(a.line)-1]
	switch kind {
	case '+', '-', ':', '_', '#', ',', '(':
		a.end()
		return nil
	case '$', '=', '!', '*', '~', '>', '%', '|':
	default:
		return errProtocol
	}
	if string(text) == "-1" && (kind == '$' || kind == '*') {
		a.end()
		return nil
	}
	n, ok := number(text)
	if !ok {
		return errProtocol
	}
	switch kind {
	case '$', '=', '!':
		if n > mostBulk {
			return errProtocol
		}
		a.skip = n + len("\r\n")
		return nil
	case '%', '|':
		n *= 2
	}
	if a.total += n; n > mostElements || a.total > mostElements || a.depth == mostNested {
		return errProtocol
	}
	part := kind == '|' || kind == '>' && a.depth == 0
	if n == 0 {
		if !part {
			a.end()
		}
		return nil
	}
	a.left[a.depth] = nested{left: n, part: part}
	a.depth++
	return nil
}

// end ends an element, and the lists that it completes.
func (a *answers) end() {
	for a.depth > 0 {
		o := &a.left[a.depth-1]
		if o.left--; o.left > 0 {
			return
		}
		a.depth--
		if o.part {
			return
		}
	}
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

// commands follows what the library says, which is right.
type commands struct {
	subscribed atomic.Bool // then answers are not told from what is published
	skip, args int
	line       []byte
	first      bool // the argument is the first
	name       []byte
}

var subscribe = []byte("SUBSCRIBE")

// read tells how many commands begin in p.
func (c *commands) read(p []byte) (begun int64) {
	for len(p) > 0 {
		if c.skip > 0 {
			n := min(c.skip, len(p))
			if c.first {
				c.name = append(c.name, p[:n]...)
			}
			c.skip -= n
			p = p[n:]
			if c.skip == 0 && c.first {
				c.first = false
				if bytes.HasSuffix(bytes.TrimSpace(c.name), subscribe) {
					c.subscribed.Store(true)
				}
			}
			continue
		}
		if len(c.line) == 0 && c.args == 0 {
			begun++
			c.first, c.name = true, c.name[:0]
		}
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			c.line = append(c.line, p...)
			return begun
		}
		c.line = append(c.line, p[:end]...)
		p = p[end+1:]
		if n, _ := number(bytes.TrimRight(c.line[1:], "\r")); c.line[0] == '*' {
			c.args = n
		} else {
			c.args--
			c.skip = n + len("\r\n")
		}
		c.line = c.line[:0]
	}
	return begun
}
