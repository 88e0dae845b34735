// Package tlsfiles has the certificates that the fronts of the server show and ask for, which are read again when their files
// change.
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Files are in PEM.
type Files struct {
	// Certificate is the file of the certificate of the server and those between it and its authority, Key that of its private
	// key, which may be the same file.
	Certificate, Key string
	// ClientCA is the file of the authorities of which every client must have a certificate, "" if clients need none.
	ClientCA string
}

const (
	// every is how often files are looked at, at most.
	every = time.Second
	// mostBytes is how long a file may be.
	mostBytes = 4 << 20
)

// Certificates are those of some files. All methods are safe for concurrent use.
type Certificates struct {
	files Files
	log   *slog.Logger

	mu     sync.Mutex
	looked time.Time
	seen   [3]version
	config *tls.Config // never changed
}

// version tells whether a file is as it was.
type version struct {
	modified time.Time
	size     int64
	failed   bool
}

// Load reads the files. The error says which one is wrong.
func Load(f Files, log *slog.Logger) (*Certificates, error) {
	c := &Certificates{files: f, log: log, looked: time.Now()}
	c.seen = f.versions()
	var err error
	c.config, err = f.read()
	return c, err
}

// Config is for servers of the protocols, as ALPN knows them. Every handshake has the certificates that are in the files then:
// they are looked at once a second at most. If they cannot be used the ones before stay, and it is logged.
func (c *Certificates) Config(protocols ...string) *tls.Config {
	var (
		mu       sync.Mutex
		of, made *tls.Config
	)
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		// One for all handshakes with the same certificates: it has the keys by which clients resume their sessions.
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := c.current()
			mu.Lock()
			defer mu.Unlock()
			if of != now {
				of, made = now, now.Clone()
				made.NextProtos = protocols
			}
			return made, nil
		},
		// It is never asked, but there has to be one.
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &c.current().Certificates[0], nil },
	}
}

// current is what the files say.
func (c *Certificates) current() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.looked) < every {
		return c.config
	}
	c.looked = now
	seen := c.files.versions()
	if seen == c.seen {
		return c.config
	}
	c.seen = seen
	config, err := c.files.read()
	if err != nil {
		c.log.Error("the certificates cannot be used, those before stay", "error", err.Error())
		return c.config
	}
	c.config = config
	c.log.Info("certificates loaded", "certificate", c.files.Certificate, "expires", config.Certificates[0].Leaf.NotAfter)
	return config
}

func (f *Files) versions() (seen [3]version) {
	for i, path := range []string{f.Certificate, f.Key, f.ClientCA} {
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			seen[i].failed = true
			continue
		}
		seen[i] = version{modified: info.ModTime(), size: info.Size()}
	}
	return seen
}

func (f *Files) read() (*tls.Config, error) {
	certificate, err := read("certificate", f.Certificate)
	if err != nil {
		return nil, err
	}
	key, err := read("key", f.Key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("weir: the certificate %s and the key %s cannot be used: %w", f.Certificate, f.Key, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if f.ClientCA == "" {
		return config, nil
	}
	authorities, err := read("client CA", f.ClientCA)
	if err != nil {
		return nil, err
	}
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !config.ClientCAs.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("weir: client CA: %s has no certificate in PEM", f.ClientCA)
	}
	return config, nil
}

func read(what, path string) ([]byte, error) {
	file, err := os.Open(path) //nolint:gosec // the file is the choice of the operator
	if err != nil {
		return nil, fmt.Errorf("weir: %s: %w", what, err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	data, err := io.ReadAll(io.LimitReader(file, mostBytes+1))
	if err == nil && len(data) > mostBytes {
		err = errors.New("it is longer than 4 MiB")
	}
	if err != nil {
		return nil, fmt.Errorf("weir: %s: %s: %w", what, path, err)
	}
	return data, nil
}
