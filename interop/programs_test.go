package interop_test

import (
	"os"
	"testing"

	"github.com/weirhq/weir/internal/programtest"
)

func TestMain(m *testing.M) { os.Exit(programtest.Main(m)) }

var (
	weirProgram  = programtest.Program{Name: "weir", Dir: "../cmd/weir"}
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

// caddyServer starts Caddy, and waits until it listens on address.
func caddyServer(t *testing.T, address, config string) {
	t.Helper()
	file := programtest.Write(t, t.TempDir(), "Caddyfile", "{\n\tadmin off\n\tpersist_config off\n}\n"+config)
	args := []string{"run", "--adapter", "caddyfile", "--config", file}
	programtest.Command{Path: caddyProgram.Path(t), Args: args}.Start(t).Listens(address)
}
