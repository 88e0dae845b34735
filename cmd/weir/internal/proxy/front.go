package proxy

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front"
)

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	// maxStreams is how many requests one HTTP/2 connection may have under way.
	maxStreams = 250
	// endTimeout is how long requests that have been cut may take to notice.
	endTimeout = 2 * time.Second
	endPoll    = 5 * time.Millisecond
)

// newServer returns the server of the proxy. Bodies take as long as they take.
func (p *Proxy) newServer() *front.HTTP {
	base, cancel := context.WithCancelCause(context.Background())
	p.cut = func() { cancel(errStopped) }
	var handler http.Handler = p
	if p.o.Traced != nil {
		handler = p.o.Traced(p)
	}
	return front.NewHTTP(&http.Server{
		Handler:                      handler,
		ReadHeaderTimeout:            readHeaderTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		DisableGeneralOptionsHandler: true, // OPTIONS * is for the upstream
		BaseContext:                  func(net.Listener) context.Context { return base },
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
	}, p.o.TLS, p.o.Bound, p.faults)
}

// Serve implements [front.Front].
func (p *Proxy) Serve(l net.Listener) error { return p.server.Serve(l) }

// Drain implements [front.Front]. Upgraded connections are not in flight: they may last for ever.
func (p *Proxy) Drain() (inFlight int64) {
	p.server.SetKeepAlivesEnabled(false)
	return p.inFlight.Load() - int64(p.upgrades.count())
}

// Shutdown implements [front.Front]. It takes no more requests, lets those in flight finish until ctx ends, and closes the
// upgraded connections.
func (p *Proxy) Shutdown(ctx context.Context) error {
	err := p.server.Shutdown(ctx)
	p.stop()
	p.transport.CloseIdleConnections()
	return err
}

// stop cuts everything that is still under way and waits until it has noticed.
func (p *Proxy) stop() {
	p.cut()
	_ = p.server.Close()
	p.upgrades.close()
	deadline := time.NewTimer(endTimeout)
	defer deadline.Stop()
	poll := time.NewTicker(endPoll)
	defer poll.Stop()
	for p.inFlight.Load() > 0 {
		select {
		case <-poll.C:
		case <-deadline.C:
			return
		}
	}
}
