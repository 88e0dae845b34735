package remote

import (
	"bytes"
	"crypto/x509"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/etcd/forward"
)

// logged is a log that several goroutines write.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// TestForwardingReadsRenewedCertificates: the certificates of both ends have expired. Once there are new ones in the files they connect
// without a restart. A file that cannot be used changes nothing, and is told once.
func TestForwardingReadsRenewedCertificates(t *testing.T) {
	t.Parallel()
	old, next := fronttest.Until(t, "old", time.Now().Add(-time.Minute)), fronttest.SelfSigned(t, "next")
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var log logged
	options, err := ClusterOptions(&config.Cluster{
		PeerCAFile:   write("ca.pem", bytes.Join([][]byte{old.Text, next.Text}, nil)),
		PeerCertFile: write("cert.pem", old.Text), PeerKeyFile: write("key.pem", old.Key),
	}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if got := expires(options.PeerTLS); !got.Before(time.Now()) || log.count("the certificate is not valid now") != 1 {
		t.Errorf("%v\n%s", got, &log.text)
	}

	memory, err := durable.NewMemory(durable.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owner, err := durable.NewNode(durable.NodeOptions{Engine: memory.Engine(), Address: "owner"})
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := forward.NewServer(options.PeerTLS)
	forward.Register(server, owner)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	connect := forward.Dial(forward.DialOptions{Credentials: credentials.NewTLS(options.PeerTLS)})
	dial := func() error {
		p, err := connect(t.Context(), listener.Addr().String())
		if err == nil {
			_ = p.Close()
		}
		return err
	}
	eventually := func(what string, holds func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !holds(); {
			if time.Now().After(end) {
				t.Fatalf("not within a minute: %s\n%s", what, &log.text)
			}
		}
	}

	if err := dial(); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("with certificates that have expired: %v", err)
	}
	write("cert.pem", next.Text)
	write("key.pem", next.Key)
	eventually("the new certificates are shown", func() bool { return dial() == nil })
	if got := expires(options.PeerTLS); !got.After(time.Now()) {
		t.Errorf("it expires %v", got)
	}
	if err := os.Remove(filepath.Join(dir, "key.pem")); err != nil {
		t.Fatal(err)
	}
	const kept = "the certificates cannot be used, those before stay"
	eventually("it is told that the key is gone", func() bool {
		if err := dial(); err != nil {
			t.Fatal(err)
		}
		return log.count(kept) > 0
	})
	if err := dial(); err != nil || log.count(kept) != 1 {
		t.Errorf("%v\n%s", err, &log.text)
	}
}

// TestPeersRefuseCertificate: the log says why other nodes will not accept the certificate of this one, and nothing if they will.
func TestPeersRefuseCertificate(t *testing.T) {
	good, other := fronttest.SelfSigned(t, "node1"), fronttest.SelfSigned(t, "other")
	only := func(usage x509.ExtKeyUsage) fronttest.Certificate {
		return fronttest.Changed(t, "node1", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{usage} })
	}
	servers, clients := only(x509.ExtKeyUsageServerAuth), only(x509.ExtKeyUsageClientAuth)
	expired := fronttest.Until(t, "node1", time.Now().Add(-time.Minute))
	for name, c := range map[string]struct {
		own       fronttest.Certificate
		authority []byte
		address   string
		want      string // "" for nothing
	}{
		"good":                 {good, good.Text, "node1:7071", ""},
		"an address":           {good, good.Text, "127.0.0.1:7071", ""},
		"expired":              {expired, expired.Text, "node1:7071", ""}, // that is told of apart
		"of another authority": {good, other.Text, "node1:7071", "certificate signed by unknown authority: must be of an authority in peer_ca_file"},
		"for servers only":     {servers, servers.Text, "node1:7071", "must be for the authentication of clients"},
		"for clients only":     {clients, clients.Text, "node1:7071", "must be for the authentication of servers"},
		"for another host":     {good, good.Text, "node2:7071", "must be for node2, by which other nodes reach this one"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files := map[string][]byte{"ca.pem": c.authority, "cert.pem": c.own.Text, "key.pem": c.own.Key}
			for name, data := range files {
				if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var log logged
			_, err := ClusterOptions(&config.Cluster{
				Name: "a", Peers: map[string]string{"a": "https://localhost:2380"}, Address: c.address,
				PeerCAFile:   filepath.Join(dir, "ca.pem"),
				PeerCertFile: filepath.Join(dir, "cert.pem"), PeerKeyFile: filepath.Join(dir, "key.pem"),
			}, slog.New(slog.NewTextHandler(&log, nil)))
			told := log.count("others will not accept the certificate")
			if err != nil || c.want == "" && told != 0 || c.want != "" && (told != 1 || log.count(c.want) != 1) {
				t.Errorf("%v, told %d times\n%s", err, told, &log.text)
			}
		})
	}
}
