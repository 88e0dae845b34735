package etcd

import (
	"bytes"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/weirhq/weir/durable/etcd/forward"
	"github.com/weirhq/weir/durable/etcd/internal/strangers"
)

// failing is a listener that cannot take its first connection, as there are too many open files.
type failing struct {
	net.Listener

	failed atomic.Bool
}

func (l *failing) Accept() (net.Conn, error) {
	if !l.failed.Swap(true) {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept() //nolint:wrapcheck // it is that of the listener
}

// TestPeersAreAcceptedAfterAnError: where a connection cannot be taken, as there are too many open files, the log says so, and later
// ones are.
func TestPeersAreAcceptedAfterAnError(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	m := &member{peers: peerListener{&failing{Listener: l}, slog.New(slog.NewTextHandler(&text, nil))}, failed: make(chan error, 1)}
	m.served = make(chan struct{})
	m.serve(http.NotFoundHandler())
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
	if !bytes.Contains(text.Bytes(), []byte("too many open files")) {
		t.Errorf("the log has %q", text.String())
	}
	if err := m.http.Close(); err != nil {
		t.Error(err)
	}
	<-m.served
}

// TestStrangersLeaveRoomForNodes: at both ports of a node, of connections that show no certificate the first make room for later ones
// before any time has passed.
func TestStrangersLeaveRoomForNodes(t *testing.T) {
	secure := &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return nil, errors.New("nothing is said")
	}}
	for what, serve := range map[string]func(l net.Listener) (end func()){
		"etcd": func(l net.Listener) func() {
			m := &member{peers: tls.NewListener(l, fromItsAddress(secure)), failed: make(chan error, 1), served: make(chan struct{})}
			m.serve(http.NotFoundHandler())
			return func() {
				_ = m.http.Close()
				<-m.served
			}
		},
		"forwarding": func(l net.Listener) func() {
			s := forward.NewServer(secure)
			var work sync.WaitGroup
			work.Go(func() { _ = s.Serve(l) })
			return func() {
				s.Stop()
				work.Wait()
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const more = 3
				l := make(pipes)
				end := serve(l)
				var left atomic.Int64
				for range strangers.Most + more {
					client, server := net.Pipe()
					t.Cleanup(func() { _ = client.Close() })
					l <- server
					left.Add(1)
					go func() {
						_, _ = client.Read(make([]byte, 1))
						left.Add(-1)
					}()
				}
				if synctest.Wait(); left.Load() != strangers.Most {
					t.Errorf("of %d connections %d are left", strangers.Most+more, left.Load())
				}
				end()
			})
		})
	}
}

// pipes is a listener.
type pipes chan net.Conn

func (l pipes) Accept() (net.Conn, error) {
	c, ok := <-l
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (l pipes) Close() error {
	close(l)
	return nil
}

func (l pipes) Addr() net.Addr { return new(net.TCPAddr) }
