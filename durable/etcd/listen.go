package etcd

import (
	"errors"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
)

// listenPeers listens for other nodes at the URL.
func listenPeers(u *url.URL, secure *transport.TLSInfo, log *slog.Logger) (net.Listener, error) {
	listen := func() (net.Listener, error) {
		return transport.NewListenerWithOpts(u.Host, u.Scheme,
			transport.WithTLSInfo(secure), transport.WithTimeout(rafthttp.ConnReadTimeout, rafthttp.ConnWriteTimeout))
	}
	l, err := listen()
	if err != nil || u.Scheme != secureScheme {
		return l, err //nolint:wrapcheck // it names the address
	}
	return &peerListener{listen: listen, log: log, now: l, done: make(chan struct{})}, nil
}

// peerListener is a listener of etcd for TLS, which takes no connection any more after the first one that it cannot take, as when
// there are too many open files: then it listens anew.
type peerListener struct {
	listen func() (net.Listener, error)
	log    *slog.Logger
	done   chan struct{} // closed by Close

	mu     sync.Mutex
	now    net.Listener
	closed bool
}

const (
	// listenPause is how long it listens no more after an error, at first and at most.
	listenPause, longListenPause = 5 * time.Millisecond, time.Second
)

// Accept implements [net.Listener].
func (l *peerListener) Accept() (net.Conn, error) {
	for pause := listenPause; ; pause = min(2*pause, longListenPause) {
		now := l.current()
		c, err := now.Accept()
		if err == nil || !brief(err) {
			return c, err //nolint:wrapcheck // it is that of a listener
		}
		l.log.Warn("other nodes cannot connect to the etcd server of the durable limits", "address", now.Addr().String(),
			"error", err.Error(), "again_in", pause.String())
		_ = now.Close() // otherwise nothing can listen there
		for err = l.anew(pause); err != nil; err = l.anew(longListenPause) {
			if errors.Is(err, net.ErrClosed) {
				return nil, err
			}
			l.log.Error("the etcd server of the durable limits cannot listen for other nodes", "error", err.Error())
		}
	}
}

// brief reports whether an error of a listener may go away.
func brief(err error) bool {
	e, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err)
	return ok && e.Temporary()
}

// anew listens again after a pause, unless the listener is closed.
func (l *peerListener) anew(pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.done:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	next, err := l.listen()
	if err == nil {
		l.now = next
	}
	return err
}

func (l *peerListener) current() net.Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// Addr implements [net.Listener].
func (l *peerListener) Addr() net.Addr { return l.current().Addr() }

// Close implements [net.Listener].
func (l *peerListener) Close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.done)
	}
	now := l.now
	l.mu.Unlock()
	return now.Close() //nolint:wrapcheck // it is that of a listener
}
