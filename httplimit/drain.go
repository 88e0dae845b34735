package httplimit

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// What is read at most of the body of a refused request, and for how long: what net/http reads of a body that a handler has left
// where it keeps the connection, and how long it waits with one that it closes.
const (
	drainBytes   = 256 << 10
	drainTimeout = 500 * time.Millisecond
)

// Drain reads the rest of the body of a request that has got its response without it, and throws it away. A server that closes a
// connection with unread bytes resets it. A client that is still sending may then see a broken connection in place of the
// refusal, and come back at once. net/http prevents that where it keeps the connection, but not where the client has asked for
// its end, by "Connection: close" or by HTTP/1.0.
//
// Call it as the last thing of a handler, after the whole response has been written with a Content-Length. It does nothing unless
// there is a body, of HTTP/1, on a connection that the client wants to end, nor for a client that waits for "100 Continue". It
// reads at most 256 KiB, for at most 500 ms, for which it sets the read deadline of the connection. Behind a ResponseWriter that
// cannot set it, or has no Unwrap, it reads nothing.
func Drain(w http.ResponseWriter, r *http.Request) {
	if !leavesBody(r) {
		return
	}
	control := http.NewResponseController(w)
	// What cannot have a deadline is not read at all, as the client could hold the handler for ever.
	if control.SetReadDeadline(time.Now().Add(drainTimeout)) != nil || control.Flush() != nil {
		return
	}
	// If there is more, the reader tells the server: then that waits a moment before it closes the connection.
	_, _ = io.Copy(io.Discard, http.MaxBytesReader(serverWriter(w), r.Body, drainBytes)) // the answer has been given
}

// readRest reads what the client still sends of the body of a request that is refused, before the refusal is written. Where
// net/http keeps the connection it reads the body itself before it writes, for as long as a slow client likes. A body that is too
// long, or does not end in time, makes the refusal the last thing of its connection, which the server then closes without reading
// more.
func readRest(w http.ResponseWriter, r *http.Request) {
	if !hasBody(r) {
		return
	}
	control := http.NewResponseController(w)
	if control.SetReadDeadline(time.Now().Add(drainTimeout)) != nil {
		return
	}
	if len(r.Header["Expect"]) > 0 {
		return // reading would ask for the body: the server closes the connection, and reads until the deadline before that
	}
	_, err := io.CopyN(io.Discard, r.Body, drainBytes+1)
	if errors.Is(err, io.EOF) || errors.Is(err, http.ErrBodyReadAfterClose) {
		_ = control.SetReadDeadline(time.Time{}) // the next request has a deadline of its own
		return
	}
	w.Header().Set("Connection", "close")
	_ = control.SetReadDeadline(time.Now())
	// A body beyond its bound makes the server wait a moment before it closes the connection, so that the client gets the
	// refusal.
	_, _ = http.MaxBytesReader(serverWriter(w), io.NopCloser(strings.NewReader("x")), 0).Read(make([]byte, 1))
}

// serverWriter is the ResponseWriter of the server within w, which http.MaxBytesReader must know to tell it of a body that is too
// large.
func serverWriter(w http.ResponseWriter) http.ResponseWriter {
	for {
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = wrapper.Unwrap()
	}
}

// leavesBody reports whether the server will close the connection without reading what the client still sends of the body of
// r. Where the server itself wants the end of the connection, net/http reads it.
func leavesBody(r *http.Request) bool {
	return r.Close && hasBody(r) && len(r.Header["Expect"]) == 0
}

// hasBody reports whether r is of HTTP/1 and has a body. In HTTP/2 a body that is not read holds up nothing.
func hasBody(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
}
