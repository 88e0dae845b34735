package etcd_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/weirhq/weir/durable/etcd"
	"github.com/weirhq/weir/durable/etcd/internal/strangers"
)

// TestNodesGetPastStrangers: while there are as many connections that say nothing as may be, at both ports of a node, one that shows
// a certificate gets in. A certificate that is for another address does not.
func TestNodesGetPastStrangers(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	own := a.issue(t, "node")
	secure := &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: a.pool, ClientCAs: a.pool, MinVersion: tls.VersionTLS12}
	o := three(t)[0]
	peers := o.Peers[o.Name]
	o.Peers = map[string]string{o.Name: "https" + peers[len("http"):]}
	o.Address, o.PeerTLS, o.UnsafeNoFsync = "127.0.0.1:0", secure, true
	o.PeerCertFile, o.PeerKeyFile, o.PeerCAFile = a.file("node.pem"), a.file("node.key"), a.file("ca.pem")
	c, err := etcd.Join(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	elsewhere := secure.Clone()
	elsewhere.Certificates = []tls.Certificate{a.issueFor(t, "elsewhere", nil, net.IPv4(192, 0, 2, 1))}
	byName := secure.Clone()
	byName.Certificates = []tls.Certificate{a.issueFor(t, "name", []string{"localhost"})}
	for what, address := range map[string]string{"etcd": peers[len("http://"):], "forwarding": c.Address()} {
		for range strangers.Most + 1 {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
			if err != nil {
				t.Fatal(what, err)
			}
			t.Cleanup(func() { _ = conn.Close() })
		}
		conn, err := (&tls.Dialer{Config: secure}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Errorf("%s: a node: %v", what, err)
			continue
		}
		_ = conn.Close()
	}
	for _, test := range []struct {
		with *tls.Config
		want bool
	}{{secure, true}, {byName, true}, {elsewhere, false}} {
		if err := get(t.Context(), test.with, o.Peers[o.Name]+"/version"); (err == nil) != test.want {
			t.Errorf("a certificate that is for this address: %v, and %v", test.want, err)
		}
	}
}

func get(ctx context.Context, secure *tls.Config, url string) error {
	transport := &http.Transport{TLSClientConfig: secure}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err //nolint:wrapcheck // it is told
	}
	response, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return err //nolint:wrapcheck // it is told
	}
	_, err = io.Copy(io.Discard, response.Body)
	return errors.Join(err, response.Body.Close())
}
