package remote

import (
	"bytes"
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
