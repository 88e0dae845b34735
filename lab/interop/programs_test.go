package interop_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/programtest"
)

func TestMain(m *testing.M) { os.Exit(programtest.Main(m)) }

var (
	weirProgram  = programtest.Program{Name: "weir", Dir: "../../cmd/weir"}
	caddyProgram = programtest.Program{Name: "caddy", Dir: "caddy", Flags: []string{"-tags=caddy"}}
)

// serve starts weir serve, and waits until it listens on address.
func serve(t *testing.T, address string, args ...string) *programtest.Process {
	t.Helper()
	p := programtest.Command{Path: weirProgram.Path(t), Args: append([]string{"serve"}, args...)}.Start(t)
	p.Listens(address)
	return p
}

// weirServer starts weir serve with a configuration, and returns its address.
func weirServer(t *testing.T, config string, flags ...string) (*programtest.Process, string) {
	t.Helper()
	address := programtest.FreeAddress(t)
	file := programtest.Write(t, t.TempDir(), "weir.yaml", config)
	return serve(t, address, append([]string{"--http", address, "--config", file}, flags...)...), address
}

// caddyServer starts Caddy with these options beside those of the test, and waits until it listens on address.
func caddyServer(t *testing.T, address, options, config string) {
	t.Helper()
	file := programtest.Write(t, t.TempDir(), "Caddyfile", "{\n\tadmin off\n\tpersist_config off\n"+options+"}\n"+config)
	args := []string{"run", "--adapter", "caddyfile", "--config", file}
	programtest.Command{Path: caddyProgram.Path(t), Args: args}.Start(t).Listens(address)
}

func haproxyScript(t *testing.T) string {
	t.Helper()
	return snippet(t, "lua", "weir.lua, for HAProxy")
}

func apacheScript(t *testing.T) string {
	t.Helper()
	return snippet(t, "lua", "weir.lua, for Apache")
}

// haproxyServer starts HAProxy with a configuration and a script, and waits until it listens.
func haproxyServer(t *testing.T, a addresses, config, script string) {
	t.Helper()
	files := a.inBoth(t, config, script)
	dir := t.TempDir()
	lua := programtest.Write(t, dir, "weir.lua", files[1])
	file := programtest.Write(t, dir, "haproxy.cfg", strings.ReplaceAll(files[0], "/etc/haproxy/weir.lua", lua))
	programtest.Command{Path: programtest.Installed(t, "haproxy"), Args: []string{"-db", "-f", file}}.Start(t).Listens(a.front)
}

// apacheServer starts Apache with a site and a script, and waits until it listens.
func apacheServer(t *testing.T, a addresses, site, script string) {
	t.Helper()
	files := a.inBoth(t, site, script)
	dir := t.TempDir()
	path := programtest.Write(t, dir, "weir.lua", files[1])
	// What it serves, it serves as another user than root.
	for name, mode := range map[string]os.FileMode{filepath.Dir(dir): 0o755, dir: 0o755, path: 0o644} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	config := []string{"ServerRoot " + dir, "PidFile " + dir + "/pid", "ErrorLog /dev/stderr", "ServerName localhost"}
	for _, name := range []string{"mpm_event", "authz_core", "proxy", "proxy_http", "remoteip", "lua"} {
		config = append(config, "LoadModule "+name+"_module /usr/lib/apache2/modules/mod_"+name+".so")
	}
	config = append(config, strings.ReplaceAll(files[0], "/etc/apache2/weir.lua", path))
	file := programtest.Write(t, dir, "apache2.conf", strings.Join(config, "\n"))
	programtest.Command{Path: programtest.Installed(t, "apache2"), Args: []string{"-X", "-f", file}}.Start(t).Listens(a.front)
}
