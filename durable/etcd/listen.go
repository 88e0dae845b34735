package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
)

// listenPeers listens for other nodes at the URL. The handshakes of TLS are left to the server, which bounds them: the listener
// of etcd makes them by itself, any number at a time, and takes no connection any more after the first one that it cannot take.
func listenPeers(u *url.URL, secure *transport.TLSInfo, log *slog.Logger) (net.Listener, error) {
	times := transport.WithTimeout(rafthttp.ConnReadTimeout, rafthttp.ConnWriteTimeout)
	l, err := transport.NewListenerWithOpts(u.Host, "http", times)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the address
	}
	l = peerListener{l, log}
	if u.Scheme != secureScheme {
		return l, nil
	}
	config, err := secure.ServerConfig()
	if err != nil {
		_ = l.Close()
		return nil, err //nolint:wrapcheck // it names the file
	}
	return tls.NewListener(l, fromItsAddress(config)), nil
}

// peerListener is a listener that tells of connections that it cannot take, as when there are too many open files. The server of
// its connections tries again.
type peerListener struct {
	net.Listener

	log *slog.Logger
}

// Accept implements [net.Listener].
func (l peerListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil && brief(err) {
		l.log.Warn("other nodes cannot connect to the etcd server of the durable limits", "address", l.Addr().String(),
			"error", err.Error())
	}
	return c, err //nolint:wrapcheck // it is that of a listener
}

// brief reports whether an error of a listener may go away.
func brief(err error) bool {
	e, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err)
	return ok && e.Temporary()
}

// fromItsAddress has a configuration refuse a certificate of a client that is of another address, as etcd does.
func fromItsAddress(config *tls.Config) *tls.Config {
	shared := config.Clone()
	shared.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		own := config.Clone()
		own.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return nil
			}
			return isAt(hello.Context(), state.PeerCertificates[0], hello.Conn.RemoteAddr().String())
		}
		return own, nil
	}
	return shared
}

var errElsewhere = errors.New("the certificate is for another address")

// isAt returns nil if a certificate is for an address, or for a host that has it, or for none in particular.
func isAt(ctx context.Context, c *x509.Certificate, address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err //nolint:wrapcheck // it names the address
	}
	ip := net.ParseIP(host)
	if len(c.IPAddresses)+len(c.DNSNames) == 0 || slices.ContainsFunc(c.IPAddresses, ip.Equal) {
		return nil
	}
	if len(c.DNSNames) > 0 {
		names, _ := net.DefaultResolver.LookupAddr(ctx, host) // a host may have no name
		for _, name := range names {
			name = strings.TrimSuffix(name, ".")
			if slices.ContainsFunc(c.DNSNames, func(of string) bool {
				below, every := strings.CutPrefix(of, "*")
				return of == name || every && strings.HasPrefix(below, ".") && strings.HasSuffix(name, below)
			}) {
				return nil
			}
		}
	}
	for _, name := range c.DNSNames {
		if strings.HasPrefix(name, "*.") {
			continue
		}
		if all, err := net.DefaultResolver.LookupHost(ctx, name); err == nil && slices.Contains(all, host) {
			return nil
		}
	}
	return fmt.Errorf("%w than %s", errElsewhere, host)
}
