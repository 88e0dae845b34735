package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// patience is for how long the other side may still be waited for. It comes back with what it sends or takes, up to max.
type patience struct{ max, left time.Duration }

// pace is how fast a client must send or take at least, in bytes a second, once its patience is used up.
const pace = 500

// waited is called when n bytes have come or gone that were waited for since start.
func (p *patience) waited(start time.Time, n int) {
	p.left = min(p.max, p.left-time.Since(start)+time.Duration(n)*(time.Second/pace))
}

// requestBody is the body of a request on its way to the upstream. It remembers whether the client broke it, and gives up on a
// client that does not send it and on an upstream that does not take what was read.
type requestBody struct {
	source io.ReadCloser
	client *http.ResponseController

	mu       sync.Mutex
	slow     patience  // with the client
	watched  bool      // it is not waited for longer than that
	until    time.Time // when that ends, while it is waited for
	patience time.Duration
	timer    *time.Timer // nil: not watched
	err      error       // other than the end
	ended    bool
}

// watch cancels with errStalled once the upstream has left a piece of the body for longer than patience. Time in which
// the client sends nothing does not count.
func (b *requestBody) watch(patience time.Duration, cancel context.CancelCauseFunc) {
	b.patience = patience
	b.timer = time.AfterFunc(patience, func() { cancel(errStalled) })
	b.timer.Stop()
}

// unwatch stops watching: the upstream has answered, and how it reads is its own affair. A client may be silent then, as that of
// a stream which waits for what comes.
func (b *requestBody) unwatch() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	if b.watched {
		b.watched, b.until = false, time.Time{}
		_ = b.client.SetReadDeadline(time.Time{})
	}
}

// finish ends the request. Of a body that was not read to its end the server reads some more, and then closes the connection.
func (b *requestBody) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	b.watched = false
	if b.slow.max > 0 && !b.ended {
		_ = b.client.SetReadDeadline(time.Now().Add(b.slow.left))
	}
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	if b.timer != nil {
		b.timer.Stop()
	}
	var start time.Time
	if b.watched {
		start = time.Now()
		b.until = start.Add(b.slow.left)
		_ = b.client.SetReadDeadline(b.until)
	}
	b.mu.Unlock()
	n, err := b.source.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watched {
		if b.slow.waited(start, n); !errors.Is(err, os.ErrDeadlineExceeded) {
			b.until = time.Time{}
			_ = b.client.SetReadDeadline(b.until) // the server reads on behind the body
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		b.ended = true
	case err != nil:
		b.err = err
	}
	if b.timer != nil {
		b.timer.Reset(b.patience)
	}
	return n, err
}

// Close implements io.Closer.
func (b *requestBody) Close() error { return b.source.Close() }

// failure is why the body could not be read, nil if it could.
func (b *requestBody) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// late reports whether the client has not sent the body in time. The server takes it for one that is gone then.
func (b *requestBody) late() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.until.IsZero() && !time.Now().Before(b.until)
}

// read reports whether the whole body has been read.
func (b *requestBody) read() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

// responseBody is the body of a response. It remembers whether the upstream broke it.
type responseBody struct {
	io.ReadCloser

	exchange *exchange
}

// Read implements io.Reader.
func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.exchange.upstreamErr = err
	}
	return n, err
}

const bufferBytes = 32 << 10

// buffers lends the buffers through which bodies are copied.
type buffers struct{}

var bufferPool = sync.Pool{New: func() any { return new([bufferBytes]byte) }}

// Get implements httputil.BufferPool.
func (buffers) Get() []byte { return bufferPool.Get().(*[bufferBytes]byte)[:] }

// Put implements httputil.BufferPool.
func (buffers) Put(b []byte) { bufferPool.Put((*[bufferBytes]byte)(b)) }

var (
	_ io.ReadCloser       = (*requestBody)(nil)
	_ http.ResponseWriter = (*responseWriter)(nil)
)
