package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"time"
)

// The kinds of servers that a process can be.
const (
	wireRESP      = "resp"
	wireGRPC      = "grpc"
	wireLoop      = "loop"
	wireRateLimit = "ratelimit"
	wireHTTP      = "http"
)

// serve listens, says where, and returns until the process ends.
func (m *wireMember) serve(ctx context.Context, stdout io.Writer) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if _, err := fmt.Fprintf(stdout, "%s%s\n", wireListens, l.Addr()); err != nil {
		return fmt.Errorf("say where it listens: %w", err)
	}
	switch m.Kind {
	case wireRESP:
		return m.serveRESP(l)
	case wireGRPC:
		return m.serveGRPC(l)
	case wireLoop:
		return m.serveLoop(l)
	case wireRateLimit:
		return m.serveRateLimit(l)
	case wireHTTP:
		return m.serveHTTP(l)
	}
	return fmt.Errorf("there is no server of the kind %q", m.Kind)
}

// serveHTTP serves every request with the same, after its body was read.
func (m *wireMember) serveHTTP(l net.Listener) error {
	s := http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		h := w.Header()
		maps.Copy(h, m.Header)
		_, _ = w.Write(m.Reply)
	})}
	return s.Serve(l) //nolint:wrapcheck // it ends the process
}

// serveRESP is the bare server: one goroutine for each connection, which finds out where each command ends and answers it with
// the same, and writes when it has answered all that has arrived.
func (m *wireMember) serveRESP(l net.Listener) error {
	return serveEach(l, func(c net.Conn) { _ = echoRESP(c, m.Reply) })
}

// serveEach serves every connection in a goroutine of its own.
func serveEach(l net.Listener, serve func(c net.Conn)) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		go func() {
			defer c.Close() //nolint:errcheck // nothing is left to be written
			serve(c)
		}()
	}
}

const echoBuffer = 16 << 10

// echoRESP serves commands until there are no more, or what comes is none.
func echoRESP(c io.ReadWriter, reply []byte) error {
	in, out := make([]byte, echoBuffer), make([]byte, 0, echoBuffer)
	have := 0
	for {
		n, err := c.Read(in[have:])
		if err != nil {
			return err //nolint:wrapcheck // nobody is told
		}
		have += n
		read := 0
		for {
			n, err := commandEnd(in[read:have])
			if err != nil {
				return err
			}
			if n == 0 {
				break
			}
			read += n
			out = append(out, reply...)
		}
		if len(out) > 0 {
			if _, err := c.Write(out); err != nil {
				return err //nolint:wrapcheck // nobody is told
			}
			out = out[:0]
		}
		if read == 0 && have == len(in) {
			return errNoCommand
		}
		have = copy(in, in[read:have])
	}
}

var errNoCommand = errors.New("bench: this is no command, or a very long one")

// commandEnd is how long the command at the start of b is, 0 if its end is not there.
func commandEnd(b []byte) (int, error) {
	parts, at, err := lengthLine(b, '*')
	if at == 0 || err != nil {
		return 0, err
	}
	for range parts {
		size, n, err := lengthLine(b[at:], '$')
		if n == 0 || err != nil {
			return 0, err
		}
		if at += n + size + len("\r\n"); at > len(b) {
			return 0, nil
		}
	}
	return at, nil
}

// lengthLine reads a line of a sign and a number. n is 0 if its end is not there.
func lengthLine(b []byte, sign byte) (value, n int, err error) {
	if len(b) == 0 {
		return 0, 0, nil
	}
	if b[0] != sign {
		return 0, 0, errNoCommand
	}
	for i := 1; i < len(b); i++ {
		switch c := b[i]; {
		case '0' <= c && c <= '9' && value < echoBuffer:
			value = value*10 + int(c-'0')
		case c == '\r' && i > 1:
			switch rest := b[i+1:]; {
			case len(rest) == 0:
				return 0, 0, nil
			case rest[0] != '\n':
				return 0, 0, errNoCommand
			}
			return value, i + len("\r\n"), nil
		default:
			return 0, 0, errNoCommand
		}
	}
	return 0, 0, nil
}

// appendCommand appends a command as clients send it.
func appendCommand(b []byte, args ...string) []byte {
	b = append(strconv.AppendInt(append(b, '*'), int64(len(args)), 10), "\r\n"...)
	for _, a := range args {
		b = append(strconv.AppendInt(append(b, '$'), int64(len(a)), 10), "\r\n"...)
		b = append(append(b, a...), "\r\n"...)
	}
	return b
}

// replyEnd is how long the reply at the start of b is, 0 if its end is not there.
func replyEnd(b []byte) (int, error) {
	line := bytes.Index(b, []byte("\r\n"))
	if line < 0 {
		return 0, nil
	}
	at := line + len("\r\n")
	if line == 0 {
		return 0, errNoReply
	}
	number := func() (int, error) {
		n, err := strconv.Atoi(string(b[1:line]))
		if err != nil {
			return 0, errNoReply
		}
		return n, nil
	}
	switch b[0] {
	case '+', ':':
		return at, nil
	case '-':
		return 0, fmt.Errorf("%w: %s", errReply, b[1:line])
	case '$':
		n, err := number()
		if err != nil || n < 0 {
			return at, err
		}
		if at += n + len("\r\n"); at > len(b) {
			return 0, nil
		}
		return at, nil
	case '*':
		n, err := number()
		if err != nil {
			return 0, err
		}
		for range n {
			size, err := replyEnd(b[at:])
			if size == 0 || err != nil {
				return 0, err
			}
			at += size
		}
		return at, nil
	}
	return 0, errNoReply
}

var (
	errNoReply = errors.New("bench: the server's answer is no reply of RESP")
	errReply   = errors.New("bench: the server answers with an error")
)
