package migrating_test

import (
	"net"
	"os"
	"testing"

	"github.com/weirhq/weir/internal/programtest"
)

func TestMain(m *testing.M) { os.Exit(programtest.Main(m)) }

var (
	weirProgram = programtest.Program{Name: "weir", Dir: "../../cmd/weir"}
	// The service of envoyproxy/ratelimit is a module of its own, outside of the workspace.
	ratelimitProgram = programtest.Program{Name: "ratelimit", Dir: "testdata/ratelimit", Env: []string{"GOWORK=off"}}
)

// startRedis starts a server of Redis that keeps nothing on disk, and returns its address.
func startRedis(t *testing.T) string {
	t.Helper()
	address := programtest.FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	programtest.Command{
		Path: programtest.Installed(t, "redis-server"),
		Args: []string{"--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "", "--appendonly", "no"},
	}.Start(t).Listens(address)
	return address
}

// startWeir starts weir serve, and waits until it listens on address.
func startWeir(t *testing.T, address string, args ...string) {
	t.Helper()
	programtest.Command{Path: weirProgram.Path(t), Args: append([]string{"serve"}, args...)}.Start(t).Listens(address)
}
