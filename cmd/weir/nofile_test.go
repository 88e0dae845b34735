package main_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
)

// TestNamedPipeInPlaceOfFile: no file that the program reads may be a named pipe, which would hold it up until a writer comes.
func TestNamedPipeInPlaceOfFile(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	own := fronttest.SelfSigned(t, "weir")
	certificate, private := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writeConfig(t, certificate, string(own.Text))
	writeConfig(t, private, string(own.Key))
	clustered := func(name, files string) string {
		path := filepath.Join(dir, name)
		writeConfig(t, path, "version: 1\ncluster: {endpoints: ['https://127.0.0.1:1'], address: '127.0.0.1:1', "+files+"}\n"+
			"policies:\n  p: {limit: 1/h, durability: cluster}\nrules:\n  - {name: all, limits: p}\n")
		return path
	}
	serve := func(args ...string) []string {
		return append([]string{"serve", "--http", "127.0.0.1:0"}, args...)
	}
	proxy := func(args ...string) []string {
		return append([]string{"proxy", "--listen", "127.0.0.1:0", "--limit", "1/s", "--upstream"}, args...)
	}
	for name, args := range map[string][]string{
		"config":         serve("--config", pipe),
		"ratelimit":      serve("--grpc", "127.0.0.1:0", "--ratelimit-config", pipe),
		"token":          serve("--admin-token-file", pipe),
		"certificate":    serve("--tls-cert", pipe, "--tls-key", private),
		"key":            serve("--tls-cert", certificate, "--tls-key", pipe),
		"clients":        serve("--tls-cert", certificate, "--tls-key", private, "--tls-client-ca", pipe),
		"admins":         serve("--tls-cert", certificate, "--tls-key", private, "--admin-client-ca", pipe),
		"password":       serve("--resp", "127.0.0.1:0", "--resp-password-file", pipe),
		"secret":         serve("--refusal-log", "1/s", "--refusal-log-secret-file", pipe),
		"etcd authority": serve("--config", clustered("ca.yaml", "ca_file: "+pipe)),
		"etcd key":       serve("--config", clustered("key.yaml", "cert_file: "+certificate+", key_file: "+pipe)),
		"peer key": serve("--config", clustered("peer.yaml", "peer_ca_file: "+certificate+", peer_cert_file: "+
			certificate+", peer_key_file: "+pipe)),
		"check":           {"config", "check", pipe},
		"test":            {"test", pipe},
		"replay":          {"replay", "--config", pipe, "../../examples/access.log"},
		"proxy":           proxy("http://127.0.0.1:1", "--tls-cert", certificate, "--tls-key", pipe),
		"proxy authority": proxy("https://127.0.0.1:1", "--upstream-ca", pipe),
	} {
		got := weir(t, nil, args...)
		if got.status == 0 || !strings.Contains(got.stderr, "it is a named pipe: must be a regular file") ||
			!strings.Contains(got.stderr, pipe) {
			t.Errorf("%s: %d %s", name, got.status, got.stderr)
		}
	}
}
