package front_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
)

// made is a certificate and its key, in PEM.
func made(t *testing.T, name string) (certificate, key []byte) {
	t.Helper()
	c := fronttest.SelfSigned(t, name)
	return c.Text, c.Key
}

type directory struct {
	t    *testing.T
	path string
}

func (d directory) write(name string, data []byte) string {
	d.t.Helper()
	path := filepath.Join(d.path, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		d.t.Fatal(err)
	}
	return path
}

// handshake returns the name that the server shows, and its protocol.
func handshake(t *testing.T, server, client *tls.Config) (name, protocol string, err error) {
	t.Helper()
	here, there := net.Pipe()
	failed := make(chan error, 1)
	go func() {
		s := tls.Server(there, server)
		wrong := s.HandshakeContext(t.Context())
		if wrong == nil {
			_, wrong = s.Write([]byte("x"))
		}
		failed <- errors.Join(wrong, there.Close())
	}()
	c := tls.Client(here, client)
	err = c.HandshakeContext(t.Context())
	if err == nil {
		_, err = io.ReadFull(c, make([]byte, 1)) // a server that refuses a certificate says so here
	}
	_ = here.Close()
	err = errors.Join(err, <-failed)
	if err == nil {
		state := c.ConnectionState()
		name, protocol = state.PeerCertificates[0].Subject.CommonName, state.NegotiatedProtocol
	}
	return name, protocol, err
}

// TestCertificatesAreReadAgain when they change, and stay if what is there cannot be used.
func TestCertificatesAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, log := directory{t, t.TempDir()}, new(bytes.Buffer)
		certificate, key := made(t, "one")
		files := front.TLSFiles{Certificate: d.write("cert", certificate), Key: d.write("key", key)}
		c, err := front.LoadCertificates(files, slog.New(slog.NewTextHandler(log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		server := c.Config("h2", "http/1.1")
		client := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
		shows := func(want string) {
			t.Helper()
			if name, protocol, err := handshake(t, server, client); err != nil || name != want || protocol != "h2" {
				t.Errorf("%q by %q, %v, want %s", name, protocol, err, want)
			}
		}
		shows("one")
		certificate, key = made(t, "number two")
		d.write("cert", certificate)
		time.Sleep(2 * time.Second)
		shows("one") // the key is another one's
		if !strings.Contains(log.String(), "those before stay") {
			t.Error(log)
		}
		d.write("key", append(key, '\n')) // the size tells, as time stands still for the file system
		time.Sleep(2 * time.Second)
		shows("number two")
		if err := os.Remove(files.Key); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		shows("number two")
		if strings.Contains(log.String(), "not valid now") {
			t.Error(log)
		}
		time.Sleep(48 * time.Hour)
		d.write("key", key)
		shows("number two") // it has expired, and there is none that has not
		if !strings.Contains(log.String(), "not valid now") {
			t.Error(log)
		}
		log.Reset()
		if _, err := front.LoadCertificates(files, slog.New(slog.NewTextHandler(log, nil))); err != nil || !strings.Contains(log.String(), "not valid now") {
			t.Errorf("%v\n%s", err, log)
		}
	})
}

// TestClientsNeedCertificates of the authorities in the file.
func TestClientsNeedCertificates(t *testing.T) {
	d := directory{t, t.TempDir()}
	certificate, key := made(t, "server")
	known, knownKey := made(t, "known")
	stranger, strangerKey := made(t, "stranger")
	c, err := front.LoadCertificates(front.TLSFiles{
		Certificate: d.write("cert", certificate), Key: d.write("key", key), ClientCA: d.write("ca", known),
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []struct {
		name             string
		certificate, key []byte
	}{{"known", known, knownKey}, {"stranger", stranger, strangerKey}, {"nobody", nil, nil}} {
		client := &tls.Config{InsecureSkipVerify: true}
		if p.key != nil {
			pair, err := tls.X509KeyPair(p.certificate, p.key)
			if err != nil {
				t.Fatal(err)
			}
			client.Certificates = []tls.Certificate{pair}
		}
		if _, _, err := handshake(t, c.Config(), client); (err == nil) != (p.name == "known") {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}

// TestAdminCertificates: only clients with a certificate of the authorities for admin pages are known by name. Where all clients
// need certificates, they are let in to those pages as well.
func TestAdminCertificates(t *testing.T) {
	d := directory{t, t.TempDir()}
	certificate, key := made(t, "server")
	pairs := map[string]*tls.Certificate{"nobody": nil}
	files := map[string]string{}
	for _, name := range []string{"operator", "client", "stranger"} {
		text, private := made(t, name)
		pair, err := tls.X509KeyPair(text, private)
		if err != nil {
			t.Fatal(err)
		}
		pairs[name], files[name] = &pair, d.write(name, text)
	}
	cert, private := d.write("cert", certificate), d.write("key", key)
	for what, c := range map[string]struct {
		clients              string
		admin, others, known string // who can connect, and who is known
	}{
		"some clients have certificates": {"", "nobody operator", "client nobody operator stranger", "operator"},
		"all clients have certificates":  {files["client"], "client operator", "client", "operator"},
	} {
		loaded, err := front.LoadCertificates(front.TLSFiles{
			Certificate: cert, Key: private, ClientCA: c.clients, AdminCA: files["operator"],
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		var admin, others, known []string
		for _, name := range slices.Sorted(maps.Keys(pairs)) {
			client, state := &tls.Config{InsecureSkipVerify: true}, new(tls.ConnectionState)
			if pair := pairs[name]; pair != nil {
				// One that is shown whatever the server asks for.
				client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
				state.PeerCertificates = []*x509.Certificate{pair.Leaf}
			}
			if _, _, err := handshake(t, loaded.AdminConfig(), client); err == nil {
				admin = append(admin, name)
			}
			if _, _, err := handshake(t, loaded.Config(), client); err == nil {
				others = append(others, name)
			}
			if got, ok := loaded.Admin(state); ok && got == name {
				known = append(known, name)
			} else if ok {
				t.Errorf("%s is known as %s", name, got)
			}
		}
		if got := strings.Join(admin, " "); got != c.admin {
			t.Errorf("%s: %s can connect to admin pages, want %s", what, got, c.admin)
		}
		if got := strings.Join(others, " "); got != c.others {
			t.Errorf("%s: %s can connect, want %s", what, got, c.others)
		}
		if got := strings.Join(known, " "); got != c.known {
			t.Errorf("%s: %s is known, want %s", what, got, c.known)
		}
	}
	none, err := front.LoadCertificates(front.TLSFiles{Certificate: cert, Key: private}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := none.Admin(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{pairs["operator"].Leaf}}); ok {
		t.Error("a client is known without authorities")
	}
}

// TestFilesThatCannotBeUsed: the error names the file and says why.
func TestFilesThatCannotBeUsed(t *testing.T) {
	d := directory{t, t.TempDir()}
	certificate, key := made(t, "server")
	_, other := made(t, "other")
	cert, private := d.write("cert", certificate), d.write("key", key)
	// As a program leaves it that has not written all of it yet. What is whole could be used without the rest.
	half := d.write("half", slices.Concat(certificate, certificate[:len(certificate)/2]))
	behind := d.write("behind", slices.Concat(certificate[len(certificate)/2:], certificate))
	for name, c := range map[string]struct {
		files front.TLSFiles
		want  string
	}{
		"no certificate": {front.TLSFiles{Certificate: d.path + "/none", Key: private}, "weir: --tls-cert: open "},
		"no key":         {front.TLSFiles{Certificate: cert, Key: d.path + "/none"}, "weir: --tls-key: open "},
		"other key":      {front.TLSFiles{Certificate: cert, Key: d.write("other", other)}, "does not match"},
		"not PEM":        {front.TLSFiles{Certificate: d.write("text", []byte("text")), Key: private}, "text and --tls-key "},
		"long":           {front.TLSFiles{Certificate: d.write("long", make([]byte, 5<<20)), Key: private}, "it is too long: at most 4194304 bytes are taken"},
		"no authority":   {front.TLSFiles{Certificate: cert, Key: private, ClientCA: private}, "weir: --tls-client-ca: "},
		"half authority": {front.TLSFiles{Certificate: cert, Key: private, ClientCA: half}, "half has a block of PEM that is cut off or broken"},
		"half chain":     {front.TLSFiles{Certificate: half, Key: private}, "half has a block of PEM that is cut off or broken"},
		"broken before":  {front.TLSFiles{Certificate: behind, Key: private}, "behind has a block of PEM that is cut off or broken"},
		"no admin":       {front.TLSFiles{Certificate: cert, Key: private, AdminCA: private}, "weir: --admin-client-ca: "},
	} {
		if _, err := front.LoadCertificates(c.files, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// TestFailedHandshakesDoNotFloodTheLog has clients connect that speak no TLS, as those do that look whether a port is open.
func TestFailedHandshakesDoNotFloodTheLog(t *testing.T) {
	pair := fronttest.SelfSigned(t, "one").Pair
	synctest.Test(t, func(t *testing.T) {
		log := new(bytes.Buffer)
		server := front.NewHTTPServer(http.NotFoundHandler(), &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
			front.NewBounded(10, 0, nil), slog.New(slog.NewTextHandler(log, nil)))
		p := newPipes()
		served := make(chan error, 1)
		go func() { served <- server.Serve(p) }()
		fail := func(times int) (lines int) {
			log.Reset()
			for range times {
				_ = p.dial().Close()
				synctest.Wait()
			}
			return strings.Count(log.String(), "TLS handshake error")
		}
		if got := fail(100); got != 10 {
			t.Errorf("%d lines of 100 handshakes, want 10", got)
		}
		time.Sleep(time.Second)
		if got := fail(100); got != 1 || !strings.Contains(log.String(), "suppressed=90") {
			t.Errorf("%d lines of 100 handshakes, a second later, want 1 that says suppressed=90:\n%s", got, log)
		}
		_ = server.Drain() // nothing is in flight
		if err := server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		<-served
	})
}
