package etcd_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/weirhq/weir/durable/etcd"
)

// authority signs certificates for a test.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir(), pool: x509.NewCertPool()}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.key = key
	a.pool.AddCert(a.cert)
	a.save(t, "ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) save(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(a.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// issue makes a certificate for loopback, as files name.pem and name.key.
func (a *authority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	return a.issueFor(t, name, []string{"localhost"}, net.IPv4(127, 0, 0, 1), etcd.Loopback)
}

// issueFor is issue for other hosts and addresses.
func (a *authority) issueFor(t *testing.T, name string, hosts []string, addresses ...net.IP) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: addresses, DNSNames: hosts, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	a.save(t, name+".pem", "CERTIFICATE", der)
	a.save(t, name+".key", "PRIVATE KEY", private)
	cert, err := tls.LoadX509KeyPair(a.file(name+".pem"), a.file(name+".key"))
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// external is an etcd server in a process of its own, with TLS and credentials.
type external struct {
	endpoint string
	tls      *tls.Config
}

const (
	userName = "weir"
	password = "correct horse"
)

// startExternal starts the etcd server of the system, which must be installed. Its user may do what it likes below /weir/ only.
func startExternal(t *testing.T, arguments ...string) *external {
	t.Helper()
	program, err := exec.LookPath("etcd")
	if err != nil {
		t.Fatalf("the package etcd-server must be installed: %v", err)
	}
	a := newAuthority(t)
	a.issue(t, "server")
	client := a.issue(t, "client")
	addresses := etcd.FreeAddresses(t, 2)
	x := &external{
		endpoint: "https://" + addresses[0],
		tls:      &tls.Config{RootCAs: a.pool, Certificates: []tls.Certificate{client}, MinVersion: tls.VersionTLS12},
	}
	peer := "http://" + addresses[1]
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, append([]string{
		"--name", "external", "--data-dir", t.TempDir(), "--listen-client-urls", x.endpoint, "--advertise-client-urls", x.endpoint,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "external=" + peer,
		"--cert-file", a.file("server.pem"), "--key-file", a.file("server.key"), "--client-cert-auth", "--trusted-ca-file", a.file("ca.pem"),
		"--log-level", "error", "--bcrypt-cost", "4",
	}, arguments...)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	root := x.client(t, "", "")
	ctx, cancel := context.WithTimeout(t.Context(), inTheEnd)
	defer cancel()
	for {
		short, cancel := context.WithTimeout(ctx, time.Second)
		_, err := root.Get(short, "ready")
		cancel()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []func() error{
		func() error { _, err := root.RoleAdd(ctx, "weir"); return err },
		func() error {
			_, err := root.RoleGrantPermission(ctx, "weir", "/weir/", clientv3.GetPrefixRangeEnd("/weir/"), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := root.UserAdd(ctx, userName, password); return err },
		func() error { _, err := root.UserGrantRole(ctx, userName, "weir"); return err },
		func() error { _, err := root.UserAdd(ctx, "root", "root"); return err },
		func() error { _, err := root.RoleAdd(ctx, "root"); return err },
		func() error { _, err := root.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := root.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

// client connects to it; without a user only as long as there are none.
func (x *external) client(t *testing.T, user, password string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{x.endpoint}, TLS: x.tls, Username: user, Password: password, DialTimeout: inTheEnd, Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
