package interop_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// programs is where those programs are that the tests build.
var programs string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(runIn(m))
}

func runIn(m *testing.M) int {
	dir, err := os.MkdirTemp("", "weir-interop-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs = dir
	return m.Run()
}

var (
	buildWeir  = sync.OnceValues(func() (string, error) { return build("../cmd/weir", "weir") })
	buildCaddy = sync.OnceValues(func() (string, error) { return build("caddy", "caddy", "-tags=caddy") })
)

// build builds the program in dir, and answers its path.
func build(dir, name string, flags ...string) (string, error) {
	path := filepath.Join(programs, name)
	args := append(append([]string{"build", "-o", path}, flags...), ".")
	cmd := exec.CommandContext(context.Background(), "go", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", name, err, out)
	}
	return path, nil
}

// process is a program that runs until the end of the test, or until it is stopped.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	log  logged
	once sync.Once
	done chan struct{}
}

// logged is what a program writes.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// start starts a program, and shows what it has written if the test fails.
func start(t *testing.T, path string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: filepath.Base(path), cmd: exec.CommandContext(context.Background(), path, args...), done: make(chan struct{})}
	home := t.TempDir()
	p.cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ends does not matter: it is killed
		close(p.done)
	}()
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("%s said:\n%s", p.name, &p.log)
		}
	})
	return p
}

// stop kills the program, and waits until it is gone.
func (p *process) stop() {
	p.once.Do(func() { _ = p.cmd.Process.Kill() })
	<-p.done
}

// listens waits until somebody listens on address.
func (p *process) listens(address string) {
	p.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		conn, err := new(net.Dialer).DialContext(p.t.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
			return
		}
		p.alive("listen on " + address)
		if time.Now().After(deadline) {
			p.t.Fatalf("%s does not listen on %s: %v", p.name, address, err)
		}
	}
}

func (p *process) alive(what string) {
	p.t.Helper()
	wait := time.NewTimer(5 * time.Millisecond)
	defer wait.Stop()
	select {
	case <-p.done:
		p.t.Fatalf("%s has ended, and did not %s", p.name, what)
	case <-wait.C:
	}
}

// freeAddress is an address on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// write writes a file of the test, and answers its path.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// weirServer starts weir serve with a configuration, and answers its address.
func weirServer(t *testing.T, config string, flags ...string) (*process, string) {
	t.Helper()
	path, err := buildWeir()
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	file := write(t, t.TempDir(), "weir.yaml", config)
	p := start(t, path, append([]string{"serve", "--http", address, "--config", file}, flags...)...)
	p.listens(address)
	return p, address
}

// nginxServer starts nginx with these lines in its http block, and waits until it listens on address.
func nginxServer(t *testing.T, address, config string) {
	t.Helper()
	path, err := exec.LookPath("nginx")
	if err != nil {
		t.Fatalf("nginx is not installed (make deps installs it on Debian): %v", err)
	}
	dir := t.TempDir()
	write(t, dir, "weir.conf", config)
	main := write(t, dir, "nginx.conf", `
daemon off;
master_process off;
pid `+dir+`/nginx.pid;
error_log stderr warn;
events {}
http {
    access_log off;
    client_body_temp_path `+dir+`/body;
    proxy_temp_path `+dir+`/proxy;
    fastcgi_temp_path `+dir+`/fastcgi;
    uwsgi_temp_path `+dir+`/uwsgi;
    scgi_temp_path `+dir+`/scgi;
    include `+dir+`/weir.conf;
}
`)
	start(t, path, "-p", dir, "-e", "stderr", "-c", main).listens(address)
}

// caddyServer starts Caddy, and waits until it listens on address.
func caddyServer(t *testing.T, address, config string) {
	t.Helper()
	path, err := buildCaddy()
	if err != nil {
		t.Fatal(err)
	}
	file := write(t, t.TempDir(), "Caddyfile", "{\n\tadmin off\n\tpersist_config off\n}\n"+config)
	start(t, path, "run", "--adapter", "caddyfile", "--config", file).listens(address)
}
