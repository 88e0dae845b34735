package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// requestBody is the body of a request on its way to the upstream. It remembers whether the client broke it, and gives up on an
// upstream that does not take what was read.
type requestBody struct {
	source io.ReadCloser

	mu       sync.Mutex
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

// unwatch stops watching: the upstream has answered, and how it reads is its own affair.
func (b *requestBody) unwatch() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	if b.timer != nil {
		b.timer.Stop()
	}
	b.mu.Unlock()
	n, err := b.source.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
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
