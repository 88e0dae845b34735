package proxy

import (
	"context"
	"fmt"
	"log/slog"
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

// Serve serves requests from ln until ctx ends. Then it takes no more, lets those in flight finish within
// ShutdownTimeout, closes the upgraded connections, and returns nil. Requests that have not finished are cut, which is an
// error. It closes ln in any case.
func (p *Proxy) Serve(ctx context.Context, ln net.Listener) error {
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(errStopped)
	server := &http.Server{
		Handler:                      front.EndOfChunks(p),
		TLSConfig:                    p.o.TLS,
		ReadHeaderTimeout:            readHeaderTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		DisableGeneralOptionsHandler: true, // OPTIONS * is for the upstream
		ErrorLog:                     slog.NewLogLogger(p.faults.Handler(), slog.LevelWarn),
		BaseContext:                  func(net.Listener) context.Context { return base },
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
	}
	front.CloseOnShutdown(server)
	if p.o.Connections > 0 {
		bound := front.NewBounded(p.o.Connections, p.o.ConnectionsPerAddress, p.o.Logger)
		bound.Watch(server)
		ln = bound.On(ln)
	}
	failed := make(chan error, 1)
	go func() {
		if p.o.TLS != nil {
			failed <- server.ServeTLS(ln, "", "")
		} else {
			failed <- server.Serve(ln)
		}
	}()
	defer p.transport.CloseIdleConnections()
	select {
	case err := <-failed:
		p.stop(server, cancel)
		return err
	case <-ctx.Done():
	}
	logger := p.o.Logger
	logger.LogAttrs(base, slog.LevelInfo, "stopping", slog.Int64("in_flight", p.inFlight.Load()-int64(p.upgrades.count())),
		slog.Int("upgraded", p.upgrades.count()), slog.String("timeout", p.o.ShutdownTimeout.String()))
	timely, done := context.WithTimeout(base, p.o.ShutdownTimeout)
	defer done()
	var err error
	if server.Shutdown(timely) != nil {
		err = fmt.Errorf("weir: requests in flight were cut off, as they took longer than --shutdown-timeout %v",
			p.o.ShutdownTimeout)
	}
	p.stop(server, cancel)
	t := p.Totals()
	logger.LogAttrs(base, slog.LevelInfo, "stopped",
		slog.Int64("admitted", t.Admitted), slog.Int64("refused", t.Refused), slog.Int64("crowded", t.Crowded),
		slog.Int64("rejected", t.Rejected), slog.Int64("upstream_errors", t.UpstreamErrors), slog.Int64("aborted", t.Aborted))
	return err
}

// stop cuts everything that is still under way and waits until it has noticed.
func (p *Proxy) stop(server *http.Server, cancel context.CancelCauseFunc) {
	cancel(errStopped)
	_ = server.Close()
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
