package front

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weirhq/weir/internal/regularfile"
)

// TLSFiles are in PEM.
type TLSFiles struct {
	// Certificate is the file of the certificate of the server and those between it and its authority, Key that of its private
	// key, which may be the same file.
	Certificate, Key string
	// ClientCA is the file of the authorities of which every client must have a certificate, "" if clients need none.
	ClientCA string
	// AdminCA is the file of the authorities whose certificates let in at the admin pages, "" if none do.
	AdminCA string
}

// mostBytes is how long a file may be.
const mostBytes = 4 << 20

// Certificates are those of some files. All methods are safe for concurrent use.
type Certificates struct{ *Reread[*material] }

// material is what the files say. It is never changed.
type material struct {
	config *tls.Config
	// admin is for the servers that have admin pages: clients with a certificate for those can connect, too.
	admin *tls.Config
	// authorities are those of AdminCA, nil if there is none.
	authorities *x509.CertPool
}

// LoadCertificates reads the files. The error says which one is wrong.
func LoadCertificates(f TLSFiles, log *slog.Logger) (*Certificates, error) {
	shown := func(m *material) *tls.Certificate { return &m.config.Certificates[0] }
	c, err := RereadCertificate(log, f.read, shown, nil, f.Certificate, f.Key, f.ClientCA, f.AdminCA)
	return &Certificates{c}, err
}

// RereadCertificate is [NewReread] for files of which the first has the certificate that is shown. It logs when they were read
// again, why they cannot be used, and that the certificate is not valid when it is read. Refused is nil, or says why others will
// not accept it for another reason.
func RereadCertificate[T any](
	log *slog.Logger, read func() (T, error), shown func(T) *tls.Certificate, refused func(*tls.Certificate) error,
	paths ...string,
) (*Reread[T], error) {
	warn := func(now T) {
		leaf, at := shown(now).Leaf, time.Now()
		if refused != nil {
			if why := refused(shown(now)); why != nil {
				log.Warn("others will not accept the certificate", "certificate", paths[0], "why", why.Error())
			}
		}
		if at.Before(leaf.NotBefore) || at.After(leaf.NotAfter) {
			log.Warn("the certificate is not valid now, so that it is not accepted",
				"certificate", paths[0], "from", leaf.NotBefore, "expires", leaf.NotAfter)
		}
	}
	c, err := NewReread(read, func(now T, err error) {
		if err != nil {
			log.Error("the certificates cannot be used, those before stay", "error", err.Error())
			return
		}
		log.Info("certificates loaded", "certificate", paths[0], "expires", shown(now).Leaf.NotAfter)
		warn(now)
	}, paths...)
	if err == nil {
		warn(c.Now())
	}
	return c, err
}

// Config is for servers of the protocols, as ALPN knows them. Every handshake has the certificates that are in the files then:
// they are looked at once a second at most. If they cannot be used the ones before stay, and it is logged.
func (c *Certificates) Config(protocols ...string) *tls.Config {
	return c.configOf(func(m *material) *tls.Config { return m.config }, protocols)
}

// AdminConfig is Config for a server that has admin pages: a client can show a certificate of AdminCA as well, which
// [Certificates.Admin] tells.
func (c *Certificates) AdminConfig(protocols ...string) *tls.Config {
	return c.configOf(func(m *material) *tls.Config { return m.admin }, protocols)
}

// Admin is the name in the certificate of AdminCA that a client has shown, and whether it has. Without a name of its own it is
// that of the first host, or the number of the certificate.
func (c *Certificates) Admin(state *tls.ConnectionState) (name string, ok bool) {
	authorities := c.Now().authorities
	if authorities == nil || len(state.PeerCertificates) == 0 {
		return "", false
	}
	leaf, between := state.PeerCertificates[0], x509.NewCertPool()
	for _, other := range state.PeerCertificates[1:] {
		between.AddCert(other)
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: authorities, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return "", false
	}
	switch {
	case leaf.Subject.CommonName != "":
		return leaf.Subject.CommonName, true
	case len(leaf.DNSNames) > 0:
		return leaf.DNSNames[0], true
	default:
		return "certificate " + leaf.SerialNumber.Text(16), true
	}
}

func (c *Certificates) configOf(choose func(*material) *tls.Config, protocols []string) *tls.Config {
	var (
		mu       sync.Mutex
		of, made *tls.Config
	)
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		// One for all handshakes with the same certificates: it has the keys by which clients resume their sessions.
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := choose(c.Now())
			mu.Lock()
			defer mu.Unlock()
			if of != now {
				of, made = now, now.Clone()
				made.NextProtos = protocols
			}
			return made, nil
		},
		// It is never asked, but there has to be one.
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &c.Now().config.Certificates[0], nil },
	}
}

func (f *TLSFiles) read() (*material, error) {
	certificate, err := readPEM("--tls-cert", f.Certificate)
	if err != nil {
		return nil, err
	}
	key, err := readPEM("--tls-key", f.Key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("weir: --tls-cert %s and --tls-key %s cannot be used together: %w", f.Certificate, f.Key, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	m := &material{config: config, admin: config.Clone()}
	both := x509.NewCertPool()
	if f.ClientCA != "" {
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if err := addAuthorities("--tls-client-ca", f.ClientCA, config.ClientCAs, both); err != nil {
			return nil, err
		}
		m.admin.ClientCAs, m.admin.ClientAuth = both, tls.RequireAndVerifyClientCert
	}
	if f.AdminCA != "" {
		m.authorities = x509.NewCertPool()
		if err := addAuthorities("--admin-client-ca", f.AdminCA, m.authorities, both); err != nil {
			return nil, err
		}
		m.admin.ClientCAs = both
		if f.ClientCA == "" {
			m.admin.ClientAuth = tls.VerifyClientCertIfGiven
		}
	}
	return m, nil
}

// authorities adds those of a file to pools.
func addAuthorities(what, path string, pools ...*x509.CertPool) error {
	text, err := readPEM(what, path)
	if err != nil {
		return err
	}
	for _, pool := range pools {
		if !pool.AppendCertsFromPEM(text) {
			return fmt.Errorf("weir: %s: %s has no certificate in PEM", what, path)
		}
	}
	return nil
}

func readPEM(what, path string) ([]byte, error) {
	data, err := ReadPEM(path)
	if err != nil {
		return nil, fmt.Errorf("weir: %s: %w", what, err)
	}
	return data, nil
}

// ReadPEM reads a file of certificates or of a private key. It refuses one that is not written to its end yet.
func ReadPEM(path string) ([]byte, error) {
	data, err := regularfile.Read(path, mostBytes)
	if err != nil {
		return nil, fmt.Errorf("%w", err)
	}
	if !whole(data) {
		return nil, fmt.Errorf("%s has a block of PEM that is cut off or broken", path)
	}
	return data, nil
}

// whole reports whether all blocks of PEM can be read. Those that cannot are left out in silence by all that read them: of a file
// that is half written, an authority whose clients are refused then, or a certificate between that of the server and its
// authority.
func whole(text []byte) bool {
	begun, ended := bytes.Count(text, []byte("-----BEGIN ")), bytes.Count(text, []byte("-----END "))
	blocks := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		blocks++
	}
	return begun == blocks && ended == blocks
}
