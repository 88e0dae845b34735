package redis

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/programtest"
	"github.com/weirhq/weir/store"
)

// authority is a certificate authority of a test.
type authority struct {
	tb   testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
	n    int64
}

func newAuthority(tb testing.TB) *authority {
	tb.Helper()
	a := &authority{tb: tb, pool: x509.NewCertPool()}
	a.cert, a.key = a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) issue(c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.tb.Fatal(err)
	}
	a.n++
	c.SerialNumber = big.NewInt(a.n)
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.tb.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		a.tb.Fatal(err)
	}
	return c, key
}

// write issues a certificate and writes the files that a server wants, and returns the pair for a client.
func (a *authority) write(dir string, c *x509.Certificate) (args []string, pair tls.Certificate) {
	a.tb.Helper()
	cert, key := a.issue(c)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.tb.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"ca.pem": {Type: "CERTIFICATE", Bytes: a.cert.Raw}, "cert.pem": {Type: "CERTIFICATE", Bytes: cert.Raw},
		"key.pem": {Type: "EC PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			a.tb.Fatal(err)
		}
	}
	return []string{
		"--tls-cert-file", filepath.Join(dir, "cert.pem"), "--tls-key-file", filepath.Join(dir, "key.pem"),
		"--tls-ca-cert-file", filepath.Join(dir, "ca.pem"),
	}, tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// TestTLS reaches a server over TLS whose certificate is of a private authority, with and without a certificate of the client.
func TestTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	ofServer, _ := a.write(t.TempDir(), &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	_, pair := a.write(t.TempDir(), &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	for _, mutual := range []bool{false, true} {
		port := programtest.FreePort(t)
		args := append([]string{"--tls-port", strconv.Itoa(port), "--tls-auth-clients", map[bool]string{false: "no", true: "yes"}[mutual]}, ofServer...)
		server := startServer(t, args...)
		at := fmt.Sprint("127.0.0.1:", port)
		trusting := &tls.Config{RootCAs: a.pool, MinVersion: tls.VersionTLS12}
		known := trusting.Clone()
		known.Certificates = []tls.Certificate{pair}
		stranger := newAuthority(t)
		for _, c := range []struct {
			name string
			o    Options
			want string // of the error
		}{
			{"trusted", Options{URL: "rediss://" + at, TLS: known}, ""},
			{"trusted, by Addresses", Options{Addresses: []string{at}, TLS: known}, ""},
			{"without a certificate", Options{URL: "rediss://" + at, TLS: trusting}, map[bool]string{true: ":"}[mutual]}, // or a reset
			{"system's authorities", Options{URL: "rediss://" + at}, "certificate signed by unknown authority"},
			{"another authority", Options{URL: "rediss://" + at, TLS: &tls.Config{RootCAs: stranger.pool, MinVersion: tls.VersionTLS12}}, "unknown authority"},
			{"another name", Options{URL: "rediss://" + at, TLS: &tls.Config{RootCAs: a.pool, ServerName: "other.example", MinVersion: tls.VersionTLS12}}, "other.example"},
			{"no TLS at a port of TLS", Options{URL: "redis://" + at}, ""},
			{"TLS at a port without", Options{URL: "rediss://" + server.address(), TLS: known, Timeout: time.Second}, ":"}, // a timeout, of one kind or another
		} {
			plain := strings.HasPrefix(c.name, "no TLS")
			if c.o.Timeout == 0 {
				c.o.Timeout = time.Minute
			}
			s, err := Open(c.o)
			if c.want != "" || plain {
				t.Logf("mutual %t, %s: %v", mutual, c.name, err)
				if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("mutual %t, %s: %v", mutual, c.name, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("mutual %t, %s: %v", mutual, c.name, err)
				continue
			}
			l := newLoad(t, faultCharges(10, 100), s).start(8)
			l.more(200)
			l.stop()
			if sum := l.drain(s); sum.above > 0 || sum.admitted < sum.allowed {
				t.Errorf("%s: above by %d, admitted %d of %d", c.name, sum.above, sum.admitted, sum.allowed)
			}
			_ = s.Close()
			server.ask("FLUSHALL")
		}
	}
}

// commandsNeeded are those that a user of the store must be allowed; in a cluster CLUSTER SLOTS too, and behind sentinels ROLE.
var commandsNeeded = strings.Fields("eval evalsha time get mget set setrange del pexpire pttl hget hgetall hlen hset hdel " +
	"zadd zcard zrange zrangebyscore zrem hello client|setname")

// TestUsersAndPasswords uses a server as a user who may do no more than the store needs, with names and passwords that have to be
// escaped in a URL, and with wrong ones.
func TestUsersAndPasswords(t *testing.T) {
	t.Parallel()
	const name, password = "we:ir", "p@ss/w:rd?&%"
	server := startServer(t)
	server.ask("ACL", "SETUSER", "nobody", "on", ">x", "~other:*", "+@all")
	server.ask(append([]string{"ACL", "SETUSER", name, "on", ">" + password, "~weir:*", "-@all", "+" + commandsNeeded[0]},
		prefixed("+", commandsNeeded)...)...)
	server.ask("ACL", "SETUSER", "default", "on", ">secret")
	with := func(user, pass string) string {
		u := url.URL{Scheme: "redis", Host: server.address(), User: url.UserPassword(user, pass)}
		return u.String()
	}
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"in the URL", Options{URL: with(name, password)}, ""},
		{"as options", Options{URL: server.url(), Username: name, Password: password}, ""},
		{"the password of the default user", Options{URL: with("", "secret")}, ""},
		{"options replace those in the URL", Options{URL: with("x", "y"), Username: name, Password: password}, ""},
		{"a wrong password", Options{URL: with(name, "wrong-one")}, "WRONGPASS"},
		{"an unknown user", Options{URL: with("stranger", password)}, "WRONGPASS"},
		{"none", Options{URL: server.url()}, "NOAUTH"},
	} {
		c.o.Timeout = time.Minute
		s, err := Open(c.o)
		if c.want != "" {
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "wrong-one") {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		everything(t, s)
		if text := s.String(); strings.Contains(text, "secret") || strings.Contains(text, "p%40ss") {
			t.Errorf("%s: the password is shown: %s", c.name, text)
		}
		_ = s.Close()
	}

	// A user without the right to the keys.
	s, err := Open(Options{URL: with("nobody", "x"), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	c := []store.Charge{{Policy: "p", Key: "k", Limit: yearly(10), N: 1}}
	d := make([]weir.Decision, 1)
	if err = store.Take(context.Background(), s, c, d); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "NOPERM") {
		t.Error(err)
	}
	_ = s.Close()

	// The password is changed while the store is used, and the connections end.
	s, err = Open(Options{URL: with(name, password), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err = store.Take(context.Background(), s, c, d); err != nil {
		t.Fatal(err)
	}
	server.client.Close()
	server.client = nil
	admin, err := Open(Options{URL: with("", "secret"), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	admin.do(t, "ACL", "SETUSER", name, "resetpass", ">other")
	admin.do(t, "CLIENT", "KILL", "USER", name)
	until(t, "the store says that the password is wrong", func() bool {
		err := store.Take(context.Background(), s, c, d)
		return errors.Is(err, store.ErrUnavailable) && strings.Contains(err.Error(), "WRONGPASS")
	})
	admin.do(t, "ACL", "SETUSER", name, "resetpass", ">"+password)
	until(t, "calls are answered again", func() bool { return store.Take(context.Background(), s, c, d) == nil })
}

func prefixed(prefix string, list []string) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = prefix + list[i]
	}
	return out
}

// everything calls every method.
func everything(t *testing.T, s *Store) {
	t.Helper()
	ctx := context.Background()
	d := make([]weir.Decision, 2)
	for i, l := range endless(100) {
		c := []store.Charge{{Policy: fmt.Sprint("p", i), Key: "k", Limit: l, N: 1}, {Policy: fmt.Sprint("q", i), Key: "k", Limit: l, N: 2}}
		kept, err := store.Reserve(ctx, s, c, d, time.Millisecond) // it expires
		if err != nil || kept.ID == "" {
			t.Fatal(kept, err)
		}
		r, err := store.Reserve(ctx, s, c, d, time.Minute)
		if err != nil || r.ID == "" {
			t.Fatal(r, err)
		}
		other, err := store.Reserve(ctx, s, c, d, time.Minute)
		if err != nil || other.ID == "" {
			t.Fatal(other, err)
		}
		lent, _, err := store.Lend(ctx, s, c[0], 1)
		if err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{
			"take": store.Take(ctx, s, c, d), "peek": store.Peek(ctx, s, c, d), "refund": store.Refund(ctx, s, c), "commit": store.Commit(ctx, s, r, []int64{1, 5}),
			"cancel": store.Cancel(ctx, s, other), "debit": store.Debit(ctx, s, c, d), "return": store.Return(ctx, s, lent, 1),
		} {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		until(t, "the reservation has expired", func() bool {
			state, err := store.Inspect(ctx, s, c[0])
			if err != nil {
				t.Fatal(err)
			}
			return state.Reservations == 0
		})
		if err := store.Take(ctx, s, c, d); err != nil {
			t.Error(err)
		}
		if err := store.Reset(ctx, s, c[0].Policy, c[0].Key); err != nil {
			t.Error(err)
		}
	}
}

// TestProtocol2 uses the older protocol, which a URL can ask for.
func TestProtocol2(t *testing.T) {
	t.Parallel()
	s, err := Open(Options{URL: startServer(t).url() + "?protocol=2", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	everything(t, s)
}
