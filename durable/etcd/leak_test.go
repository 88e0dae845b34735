package etcd_test

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable/etcd"
	"github.com/weirhq/weir/durable/spectest"
)

// TestNothingIsLeftBehind: two nodes, one of which only follows, with all that belongs to them and certificates in both directions, end
// without leaving a goroutine, and so does one that could not join.
func TestNothingIsLeftBehind(t *testing.T) {
	before := goleak.IgnoreCurrent()
	a := newAuthority(t)
	secure := &tls.Config{Certificates: []tls.Certificate{a.issue(t, "node")}, RootCAs: a.pool, ClientCAs: a.pool, MinVersion: tls.VersionTLS12}
	c, err := etcd.Join(t.Context(), etcd.ClusterOptions{
		Directory: t.TempDir(), Address: "127.0.0.1:0", PeerTLS: secure, UnsafeNoFsync: true, TTL: patient, OwnerWait: longest,
	})
	if err != nil {
		t.Fatal(err)
	}
	ready(t, c.Node())
	r := spectest.Request{Policy: "api", Limit: weir.TokenBucket(weir.Per(1, time.Hour), 2), N: 1}
	if a := spectest.Acquire(t.Context(), c.Node(), r); a.Reason != weir.ReasonNone {
		t.Errorf("%v %v", a.Reason, a.Err)
	}
	// A node without a certificate may not ask.
	stranger := secure.Clone()
	stranger.Certificates = nil
	conn, err := (&tls.Dialer{Config: stranger}).DialContext(t.Context(), "tcp", c.Address())
	if err == nil {
		_ = conn.SetReadDeadline(time.Now().Add(inTheEnd))
		_, err = conn.Read(make([]byte, 1))
		_ = conn.Close()
	}
	if err == nil {
		t.Error("a node without a certificate was let in")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := etcd.Join(ctx, three(t)[0]); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	for end := time.Now().Add(inTheEnd); ; { // a server that is given up while it starts may end a moment later
		if err := goleak.Find(before); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// TestPeersWithCertificates: three servers whose peers show certificates find each other, and forward requests with certificates.
func TestPeersWithCertificates(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	secure := &tls.Config{Certificates: []tls.Certificate{a.issue(t, "node")}, RootCAs: a.pool, ClientCAs: a.pool, MinVersion: tls.VersionTLS12}
	all := three(t)
	peers := maps.Clone(all[0].Peers)
	for name, url := range peers {
		peers[name] = "https" + url[len("http"):]
	}
	for i := range all {
		all[i] = lasting(all[i])
		all[i].Peers, all[i].PeerTLS = peers, secure
		all[i].PeerCertFile, all[i].PeerKeyFile, all[i].PeerCAFile = a.file("node.pem"), a.file("node.key"), a.file("ca.pem")
	}
	for _, c := range joinAll(t, all) {
		r := spectest.Request{Policy: "api", Limit: weir.TokenBucket(weir.Per(1, time.Hour), 10), N: 1, Wait: inTheEnd}
		if a := spectest.Acquire(t.Context(), c.Node(), r); a.Reason != weir.ReasonNone {
			t.Errorf("%v %v", a.Reason, a.Err)
		}
	}
}

// TestOptionsOfClusters: the error names what is wrong, before anything is started, and has no password in it.
func TestOptionsOfClusters(t *testing.T) {
	dir, there := t.TempDir(), []string{"http://127.0.0.1:1"}
	peers := map[string]string{"a": "http://127.0.0.1:1", "b": "http://127.0.0.1:2"}
	for name, test := range map[string]struct {
		option string
		o      etcd.ClusterOptions
	}{
		"neither":            {"ClusterOptions.Directory", etcd.ClusterOptions{}},
		"both":               {"ClusterOptions.Directory", etcd.ClusterOptions{Directory: dir, Endpoints: there}},
		"server and client":  {"ClusterOptions.Endpoints", etcd.ClusterOptions{Endpoints: there, Name: "a", Address: "a:1"}},
		"client and server":  {"ClusterOptions.Username", etcd.ClusterOptions{Directory: dir, Username: "a", Password: "b"}},
		"half a login":       {"ClusterOptions.Username", etcd.ClusterOptions{Endpoints: there, Username: "a", Address: "a:1"}},
		"login in the URL":   {"ClusterOptions.Endpoints", etcd.ClusterOptions{Endpoints: []string{"http://u:p@a:1"}, Address: "a:1"}},
		"no URL":             {"ClusterOptions.Endpoints", etcd.ClusterOptions{Endpoints: []string{"a:1"}, Address: "a:1"}},
		"plain with TLS":     {"ClusterOptions.Endpoints", etcd.ClusterOptions{Endpoints: there, TLS: &tls.Config{MinVersion: tls.VersionTLS13}, Address: "a:1"}},
		"no address":         {"ClusterOptions.Address", etcd.ClusterOptions{Endpoints: there}},
		"no address of many": {"ClusterOptions.Address", etcd.ClusterOptions{Directory: dir, Name: "a", Peers: peers}},
		"only listening":     {"ClusterOptions.Address", etcd.ClusterOptions{Directory: dir, ListenAddress: ":1"}},
		"no port":            {"ClusterOptions.Address", etcd.ClusterOptions{Directory: dir, Address: "a"}},
		"short":              {"ClusterOptions.StartTimeout", etcd.ClusterOptions{Directory: dir, StartTimeout: 1}},
		"not among them":     {"EmbeddedOptions.Peers", etcd.ClusterOptions{Directory: dir, Name: "c", Peers: peers, Address: "127.0.0.1:0"}},
		"half a certificate": {"EmbeddedOptions.PeerCertFile", etcd.ClusterOptions{Directory: dir, PeerCertFile: "a"}},
		"plain peers": {"EmbeddedOptions.Peers", etcd.ClusterOptions{
			Directory: dir, Name: "a", Peers: peers, PeerCertFile: "a", PeerKeyFile: "b", PeerCAFile: "c", Address: "127.0.0.1:0",
		}},
		"a host to listen on": {"EmbeddedOptions.Listen", etcd.ClusterOptions{
			Directory: dir, Name: "a", Peers: peers, Listen: "http://host:1", Address: "127.0.0.1:0",
		}},
		"small":   {"EmbeddedOptions.Quota", etcd.ClusterOptions{Directory: dir, Quota: 1}},
		"hasty":   {"EmbeddedOptions.HeartbeatInterval", etcd.ClusterOptions{Directory: dir, HeartbeatInterval: 1}},
		"no name": {"EmbeddedOptions.Name", etcd.ClusterOptions{Directory: dir, Name: "a=b"}},
	} {
		c, err := etcd.Join(t.Context(), test.o)
		if err == nil {
			_ = c.Close()
		}
		if wantOption(t, err, test.option); t.Failed() {
			t.Fatalf("in the case %q", name)
		}
	}
	// One without a scheme is no secret, and the error is about it.
	_, err := etcd.Join(t.Context(), etcd.ClusterOptions{Endpoints: []string{"10.0.0.1:2379"}, Address: "a:1"})
	want := `weir: ClusterOptions.Endpoints is "10.0.0.1:2379": must be URLs such as https://10.0.0.1:2379, without user and password`
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
