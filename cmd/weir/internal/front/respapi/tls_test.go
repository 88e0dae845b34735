package respapi_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front/respapi"
)

// certificate makes one for the loopback address, and the pool that trusts it.
func certificate(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "weir"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestTLS(t *testing.T) {
	cert, pool := certificate(t)
	s := start(t, func(o *respapi.Options) {
		o.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
		o.ReadTimeout = 5 * time.Second
	})
	c := s.dialTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	for range 3 {
		c.expect("+PONG", "PING")
	}
	long := strings.Repeat("x", 60_000)
	c.expect("$"+long, "ECHO", long)
	c.send(strings.Repeat("PING 12345678901234567890\r\n", 10_000))
	for range 10_000 {
		if got := c.receive(); got != "$12345678901234567890" {
			t.Fatal(got)
		}
	}
	c.send("*1\r")
	c.send("\n$4\r\nPI")
	c.send("NG\r\n")
	if got := c.receive(); got != "+PONG" {
		t.Error(got)
	}

	plain := s.dial()
	plain.send("PING\r\n")
	if got := plain.receive(); got != "-ERR Protocol error: this port wants TLS" {
		t.Error(got)
	}
	plain.expectEnd()

	last := s.dialTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	last.expect("+OK", "QUIT")
	last.expectEnd()
	s.stop()
	c.expectEnd()
}

// TestTLSWhereThereIsNone: a client that wants TLS is told at once that there is none.
func TestTLSWhereThereIsNone(t *testing.T) {
	s := start(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	if _, err := d.DialContext(ctx, "tcp", s.address); err == nil || ctx.Err() != nil {
		t.Error(err, ctx.Err())
	}
}
