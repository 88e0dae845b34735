package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"os"
	"time"
)

// probeTime is how long an endpoint may take to say why it does not respond.
const probeTime = time.Second

// probe returns why the first of some endpoints that does not respond does not: the client of etcd goes on trying until its time
// is up, and says only that. It is nil if all can be connected to.
func probe(ctx context.Context, endpoints []string, secure *tls.Config) error {
	for _, endpoint := range endpoints {
		u, err := url.Parse(endpoint)
		if err != nil {
			return err
		}
		if err := probeOne(ctx, u, secure); err != nil {
			return err
		}
	}
	return nil
}

func probeOne(ctx context.Context, u *url.URL, secure *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if u.Scheme != secureScheme {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	config := new(tls.Config)
	if secure != nil {
		config = secure.Clone()
	}
	config.NextProtos = []string{"h2"}
	c, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // nothing was sent
	// A certificate of this process that is not accepted is told of after the handshake.
	return refused(c, time.Now().Add(probeTime/2))
}

// refused is why a server ends a connection, nil if it has not until then.
func refused(c net.Conn, until time.Time) error {
	if err := c.SetReadDeadline(until); err != nil {
		return err
	}
	if _, err := c.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}
