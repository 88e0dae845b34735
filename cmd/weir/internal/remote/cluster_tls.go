package remote

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/config"
)

// etcdTLS is what secures the connections to the endpoints, nil if the file says nothing of it.
func etcdTLS(c *config.Cluster, log *slog.Logger) (*tls.Config, error) {
	roots, own, err := load(c.Source, "", c.CAFile, c.CertFile, c.KeyFile, nil, log)
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
	roots, own, err := load(c.Source, "peer_", c.PeerCAFile, c.PeerCertFile, c.PeerKeyFile, peerHosts(c), log)
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

// peerHosts are the hosts by which other nodes reach this one.
func peerHosts(c *config.Cluster) (hosts []string) {
	if u, err := url.Parse(c.Peers[c.Name]); err == nil && u.Hostname() != "" {
		hosts = append(hosts, u.Hostname())
	}
	if host, _, err := net.SplitHostPort(c.Address); err == nil && !slices.Contains(hosts, host) {
		hosts = append(hosts, host)
	}
	return hosts
}

// refusedByPeers is why other nodes do not accept a certificate of this one, whatever its time is, nil if they do.
func refusedByPeers(own *tls.Certificate, roots *x509.CertPool, hosts []string) error {
	o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool(), CurrentTime: time.Now()}
	if leaf := own.Leaf; o.CurrentTime.Before(leaf.NotBefore) || o.CurrentTime.After(leaf.NotAfter) {
		o.CurrentTime = leaf.NotBefore
	}
	for _, der := range own.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			o.Intermediates.AddCert(c)
		}
	}
	for _, use := range []struct {
		of   x509.ExtKeyUsage
		must string
	}{
		{x509.ExtKeyUsageAny, "must be of an authority in peer_ca_file"},
		{x509.ExtKeyUsageServerAuth, "must be for the authentication of servers"},
		{x509.ExtKeyUsageClientAuth, "must be for the authentication of clients"},
	} {
		o.KeyUsages = []x509.ExtKeyUsage{use.of}
		if _, err := own.Leaf.Verify(o); err != nil {
			return fmt.Errorf("%s: %s", reason(err), use.must)
		}
	}
	for _, host := range hosts {
		if err := own.Leaf.VerifyHostname(host); err != nil {
			return fmt.Errorf("%s: must be for %s, by which other nodes reach this one", reason(err), host)
		}
	}
	return nil
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

// load reads an authority, and a certificate with its key, as far as they are given. The authority stays, as it does for etcd;
// the others are read again when their files change. Where other nodes reach this one by hosts, it is told why they will not
// accept the certificate.
func load(
	source, prefix, ca, cert, key string, hosts []string, log *slog.Logger,
) (*x509.CertPool, *front.Reread[*tls.Certificate], error) {
	var roots *x509.CertPool
	if ca != "" {
		text, err := front.ReadPEM(ca)
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
	refused := func(own *tls.Certificate) error {
		if roots == nil || len(hosts) == 0 {
			return nil
		}
		return refusedByPeers(own, roots, hosts)
	}
	own, err := front.RereadCertificate(log, func() (*tls.Certificate, error) { return loadPair(source, prefix, cert, key) },
		func(c *tls.Certificate) *tls.Certificate { return c }, refused, cert, key)
	return roots, own, err
}

// loadPair reads a certificate with its key.
func loadPair(source, prefix, cert, key string) (*tls.Certificate, error) {
	certificate, err := front.ReadPEM(cert)
	if err != nil {
		return nil, wrong(source, "%scert_file: %s", prefix, reason(err))
	}
	private, err := front.ReadPEM(key)
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
