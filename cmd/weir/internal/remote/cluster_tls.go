package remote

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/internal/regularfile"
)

// etcdTLS is what secures the connections to the endpoints, nil if the file says nothing of it.
func etcdTLS(c *config.Cluster, log *slog.Logger) (*tls.Config, error) {
	roots, own, err := load(c.Source, "", c.CAFile, c.CertFile, c.KeyFile, log)
	if err != nil || roots == nil && own == nil {
		return nil, err
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	if own != nil {
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own.Now(), nil }
	}
	return t, nil
}

// peerTLS is what secures the connections between nodes, in both directions: each shows its certificate, and none talks to one
// whose certificate is not of the authority. It is nil if the file says nothing of it.
func peerTLS(c *config.Cluster, log *slog.Logger) (*tls.Config, error) {
	roots, own, err := load(c.Source, "peer_", c.PeerCAFile, c.PeerCertFile, c.PeerKeyFile, log)
	switch {
	case err != nil || roots == nil && own == nil:
		return nil, err
	case roots == nil:
		return nil, wrong(c.Source,
			"peer_ca_file is missing: nodes need the authority that has signed the certificates of the others")
	case own == nil:
		return nil, wrong(c.Source, "peer_cert_file is missing: each node shows a certificate to the others")
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own.Now(), nil },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own.Now(), nil },
	}, nil
}

// expires is until when the certificate is valid that a configuration shows to servers, the zero time if it shows none.
func expires(t *tls.Config) time.Time {
	if t == nil || t.GetClientCertificate == nil {
		return time.Time{}
	}
	shown, err := t.GetClientCertificate(&tls.CertificateRequestInfo{})
	if err != nil {
		return time.Time{}
	}
	return shown.Leaf.NotAfter
}

// mostBytes is how long a file may be.
const mostBytes = 4 << 20

// load reads an authority, and a certificate with its key, as far as they are given. The authority stays, as it does for etcd;
// the others are read again when their files change.
func load(
	source, prefix, ca, cert, key string, log *slog.Logger,
) (*x509.CertPool, *front.Reread[*tls.Certificate], error) {
	var roots *x509.CertPool
	if ca != "" {
		text, err := regularfile.Read(ca, mostBytes)
		if err != nil {
			return nil, nil, wrong(source, "%sca_file: %s", prefix, reason(err))
		}
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM(text) {
			return nil, nil, wrong(source, "%sca_file: %s has no certificate in the form of PEM", prefix, ca)
		}
	}
	switch {
	case cert == "" && key == "":
		return roots, nil, nil
	case cert == "":
		return nil, nil, wrong(source, "%scert_file is missing: %skey_file needs it", prefix, prefix)
	case key == "":
		return nil, nil, wrong(source, "%skey_file is missing: %scert_file needs it", prefix, prefix)
	}
	own, err := front.RereadCertificate(log, func() (*tls.Certificate, error) { return loadPair(source, prefix, cert, key) },
		func(c *tls.Certificate) *tls.Certificate { return c }, cert, key)
	return roots, own, err
}

// loadPair reads a certificate with its key.
func loadPair(source, prefix, cert, key string) (*tls.Certificate, error) {
	certificate, err := regularfile.Read(cert, mostBytes)
	if err != nil {
		return nil, wrong(source, "%scert_file: %s", prefix, reason(err))
	}
	private, err := regularfile.Read(key, mostBytes)
	if err != nil {
		return nil, wrong(source, "%skey_file: %s", prefix, reason(err))
	}
	own, err := tls.X509KeyPair(certificate, private)
	if err != nil {
		return nil, wrong(source, "%scert_file %s and %skey_file %s cannot be used together: %s",
			prefix, cert, prefix, key, reason(err))
	}
	return &own, nil
}

// reason is an error without the names of packages.
func reason(err error) string {
	text := err.Error()
	for _, prefix := range []string{"weir: ", "tls: ", "x509: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}

// wrong is a mistake of the section.
func wrong(source, format string, args ...any) error {
	return flags.Inputf("weir: %s: cluster: %s", source, fmt.Sprintf(format, args...))
}
