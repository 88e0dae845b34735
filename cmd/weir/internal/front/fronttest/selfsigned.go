// Package fronttest has what tests of fronts need: connections in memory, and certificates.
package fronttest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// Certificate is a certificate that is its own authority.
type Certificate struct {
	// Text is the certificate, and Key its private key, in PEM.
	Text, Key []byte
	// Pair is both, for servers and clients.
	Pair tls.Certificate
	// Pool trusts it.
	Pool *x509.CertPool
}

// SelfSigned makes the certificate of a name, of localhost and of 127.0.0.1.
func SelfSigned(tb testing.TB, name string) Certificate {
	tb.Helper()
	return Changed(tb, name, func(*x509.Certificate) {})
}

// Until is [SelfSigned] for a certificate that expires then.
func Until(tb testing.TB, name string, expires time.Time) Certificate {
	tb.Helper()
	return Changed(tb, name, func(c *x509.Certificate) { c.NotAfter = expires })
}

// Changed is [SelfSigned] for a certificate that is changed before it is signed.
func Changed(tb testing.TB, name string, change func(c *x509.Certificate)) (c Certificate) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name, "localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	c.Text = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	c.Key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	if c.Pair, err = tls.X509KeyPair(c.Text, c.Key); err != nil {
		tb.Fatal(err)
	}
	c.Pool = x509.NewCertPool()
	c.Pool.AppendCertsFromPEM(c.Text)
	return c
}
