package proxy

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"time"
)

// responseWriter writes a response to the client and remembers what it was. Flushing and other things are found by
// http.ResponseController, through Unwrap.
type responseWriter struct {
	http.ResponseWriter

	exchange *exchange
	status   int // 0: none yet
	written  int64
	err      error // of writing
	hijacked bool
	patience patience // with the client; none if its max is 0
}

// Unwrap is for http.ResponseController.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *responseWriter) WriteHeader(status int) {
	if w.hijacked {
		return
	}
	h := w.Header()
	if status < http.StatusOK {
		if !w.exchange.in.ProtoAtLeast(1, 1) {
			return // HTTP/1.0 knows only one answer to a request
		}
		delete(h, "Connection") // it is about the answer that is still to come
		w.ResponseWriter.WriteHeader(status)
		return
	}
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // the type is the upstream's to tell, not to be guessed here
	}
	if x := w.exchange; x.in.ProtoMajor == 1 && (len(x.in.TransferEncoding) > 0 || x.body != nil && !x.body.read()) {
		// In full duplex the server does not notice if what is left of the body is malformed, and would read the next
		// request out of it. After a request in chunks the connection ends in any case, as the front has said: the reverse
		// proxy forgets that when it passes on an informational answer.
		h["Connection"] = []string{"close"}
	}
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *responseWriter) Write(b []byte) (int, error) {
	switch {
	case w.hijacked:
		return 0, http.ErrHijacked
	case w.status == 0:
		w.WriteHeader(http.StatusOK)
	}
	start := w.hurry()
	n, err := w.ResponseWriter.Write(b)
	w.taken(start, n)
	w.written += int64(n)
	if err != nil {
		w.err = err
	}
	return n, err
}

// FlushError is for http.ResponseController.
func (w *responseWriter) FlushError() error {
	start := w.hurry()
	err := http.NewResponseController(w.ResponseWriter).Flush()
	w.taken(start, 0)
	if err != nil {
		w.err = err
	}
	return err
}

// hurry gives the client so much time to take what is sent next as its patience has left.
func (w *responseWriter) hurry() (start time.Time) {
	if w.patience.max > 0 && !w.hijacked {
		start = time.Now()
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(start.Add(w.patience.left))
	}
	return start
}

// taken ends hurry, with how many bytes the client has taken.
func (w *responseWriter) taken(start time.Time, n int) {
	if !start.IsZero() {
		w.patience.waited(start, n)
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Time{}) // a stream of HTTP/2 would end by it
	}
}

// Hijack implements http.Hijacker.
func (w *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.hijacked, w.status = true, http.StatusSwitchingProtocols
	w.exchange.proxy.upgrades.add(w.exchange, conn)
	if n := buffered.Reader.Buffered(); n > 0 {
		if early, err := buffered.Peek(n); err == nil {
			conn = &earlyConn{conn, bytes.Clone(early)}
		}
	}
	return conn, buffered, nil
}

// earlyConn is a connection over which the client has sent more than its request. The reverse proxy reads from the
// connection alone.
type earlyConn struct {
	net.Conn

	early []byte
}

// Read implements net.Conn.
func (c *earlyConn) Read(p []byte) (int, error) {
	if len(c.early) > 0 {
		n := copy(p, c.early)
		c.early = c.early[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// CloseWrite tells the client that there is nothing more to come, as *net.TCPConn and *tls.Conn do.
func (c *earlyConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
