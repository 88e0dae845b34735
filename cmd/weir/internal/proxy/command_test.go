package proxy_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/serve"
)

// command runs weir proxy until ctx ends.
func command(ctx context.Context, stdout, log *logLines, args ...string) error {
	cmd := serve.ProxyCommand() //nolint:contextcheck // the context comes with ExecuteContext
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(log)
	return cmd.ExecuteContext(ctx)
}

func TestCommand(t *testing.T) {
	url, requests := recorder(t)
	ctx, stop := context.WithCancel(t.Context())
	var stdout, log logLines
	done := make(chan error, 1)
	go func() {
		done <- command(ctx, &stdout, &log, "--upstream", url+"/base", "--limit", "1/day", "--burst", "2", "--listen", "127.0.0.1:0",
			"--concurrency", "3", "--upstream-host", "inner.test", "--log-requests")
	}()
	until(t, "the address", func() bool { return strings.HasSuffix(stdout.String(), "\n") })
	p := &running{addr: strings.TrimSpace(stdout.String()), client: http.DefaultClient}
	p.url = "http://" + p.addr
	for _, want := range []int{200, 200, 429} {
		if res := p.get(t, "/a"); res.StatusCode != want {
			t.Errorf("%s, want %d", res.Status, want)
		}
	}
	if got := receive(t, requests, "the request"); got.RequestURI != "/base/a" || got.Host != "inner.test" {
		t.Errorf("the upstream got %s of %s", got.RequestURI, got.Host)
	}
	stop()
	if err := receive(t, done, "the command to end"); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		"msg=proxying listen=http://" + p.addr + " upstream=" + url + "/base concurrency=3 queue=0 limit=\"1/day burst 2\" by=client",
		"msg=stopping", "msg=stopped allowed=2 refused=1",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, log.String())
		}
	}
	if lines := log.with("msg=request"); len(lines) != 3 {
		t.Errorf("%d lines about 3 requests", len(lines))
	}
}

// TestNoRulesAreWarnedOf: policies without rules limit no request, which a proxy says.
func TestNoRulesAreWarnedOf(t *testing.T) {
	for rules, want := range map[string]int{"": 1, "rules: [{name: all, limits: p}]\n": 0} {
		file := filepath.Join(t.TempDir(), "weir.yaml")
		if err := os.WriteFile(file, []byte("version: 1\npolicies: {p: {limit: 1/s}}\n"+rules), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var stdout, log logLines
		done := make(chan error, 1)
		go func() {
			done <- command(ctx, &stdout, &log, "--upstream", upstream(t, ok), "--listen", "127.0.0.1:0", "--config", file)
		}()
		until(t, "the address", func() bool { return strings.HasSuffix(stdout.String(), "\n") })
		stop()
		if err := receive(t, done, "the command to end"); err != nil {
			t.Error(err)
		}
		if got := len(log.with("no request is limited")); got != want {
			t.Errorf("%q: %d warnings, want %d: %s", rules, got, want, log.String())
		}
	}
}

func TestCommandWithTLS(t *testing.T) {
	pair, pool := certificate(t)
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		keyFile:  {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var stdout, log logLines
	done := make(chan error, 1)
	go func() {
		done <- command(ctx, &stdout, &log, "--upstream", upstream(t, ok), "--listen", "127.0.0.1:0", "--tls-cert", certFile, "--tls-key", keyFile)
	}()
	until(t, "the address", func() bool { return strings.HasSuffix(stdout.String(), "\n") })
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	p := &running{url: "https://" + strings.TrimSpace(stdout.String()), client: &http.Client{Transport: transport}}
	if res := p.get(t, "/"); res.body != "ok" {
		t.Errorf("%s", res.Status)
	}
	transport.CloseIdleConnections()
	stop()
	if err := receive(t, done, "the command to end"); err != nil {
		t.Error(err)
	}
	if len(log.with("listen=https://")) != 1 {
		t.Errorf("the log says %s", log.String())
	}
}

func TestMisuseNamesFlagValueAndRange(t *testing.T) {
	for args, want := range map[string]string{
		"":                                        "--upstream is missing: must be the service, such as http://127.0.0.1:3000",
		"--upstream http://x extra":               `unexpected argument "extra"`,
		"--upstream http://localhost:8080":        `--upstream "http://localhost:8080": must not be the address that the proxy listens on`,
		"--upstream http://x --tls-key k":         "--tls-key needs --tls-cert",
		"--upstream http://x --tls-cert c":        "--tls-cert needs --tls-key",
		"--upstream http://x --queue 5":           "--queue needs --concurrency",
		"--upstream http://x --upstream-host a/b": `--upstream-host "a/b": must be a host`,
		"--upstream http://x --upstream-ca f":     "--upstream-ca needs an --upstream that begins with https://",
		"--upstream http://x --burst 1000000000000000 --limit 1/3660d": `--burst "1000000000000000": must be`,
	} {
		err := command(t.Context(), new(logLines), new(logLines), strings.Fields(args)...)
		if wrong, ok := errors.AsType[*flags.Error](err); !ok || wrong == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
	// These are found while flags are read; the program makes misuse of them, and names the flag and the value.
	for args, want := range map[string]string{
		"--upstream localhost:3000":        "must be http://host:port",
		"--trusted-proxies 10.0.0.0/33":    `"10.0.0.0/33" is neither`,
		"--concurrency -1":                 "from 0 to 1000000",
		"--queue 1000001":                  "from 0 to 1000000",
		"--max-body many":                  "must be a whole number of bytes",
		"--upstream-timeout 48h":           "from 0s to 24h",
		"--shutdown-timeout -1s":           "from 0s to 24h",
		"--listen 8080":                    "must be host:port",
		"--limit 10":                       "10/s",
		"--by nothing":                     "client.ip",
		"--log-format yaml":                "text or json",
		"--upstream http://user@localhost": "no user",
	} {
		err := command(t.Context(), new(logLines), new(logLines), strings.Fields(args)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

func TestFailureAtTheStartIsNotMisuse(t *testing.T) {
	ln := listen(t, "tcp", "127.0.0.1:0")
	defer ln.Close()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--upstream", "http://x", "--listen", ln.Addr().String()}, "address already in use"},
		{[]string{"--upstream", "http://x", "--tls-cert", "/no/c", "--tls-key", "/no/k"}, "/no/c"},
		{[]string{"--upstream", "https://x", "--upstream-ca", "/no/ca"}, "/no/ca"},
		{[]string{"--upstream", "https://x", "--upstream-ca", empty}, "has no certificate"},
	} {
		err := command(t.Context(), new(logLines), new(logLines), c.args...)
		if _, ok := errors.AsType[*flags.Error](err); err == nil || ok || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.args, err, c.want)
		}
	}
}

func TestHelp(t *testing.T) {
	var stdout bytes.Buffer
	cmd := serve.ProxyCommand()
	cmd.SetOut(&stdout)
	cmd.SetArgs([]string{"--help"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"weir proxy --upstream http://127.0.0.1:3000 --limit 10/s --burst 20", "--trusted-proxies", "127.0.0.1:8080", "/healthz",
	} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("help lacks %s", want)
		}
	}
}
