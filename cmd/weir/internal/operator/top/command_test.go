package top

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/screentest"
)

// asCommand is the environment variable that makes the binary of the tests be the command.
const asCommand = "WEIR_TEST_TOP"

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(asCommand) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	cmd := Command()
	cmd.SetArgs(flag.Args())
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(ctx)
	stop()
	status := 0
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
		if _, ok := errors.AsType[*flags.Error](err); ok {
			status = 2
		}
	}
	os.Exit(status)
}

// command is the command as a program. It is patient: on a machine that stands still, servers have said nothing for long.
func command(t *testing.T, environment []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"--", "--timeout", "1h"}, args...)...)
	cmd.Env = append(os.Environ(), asCommand+"=1", "TERM=xterm-256color", "NO_COLOR=", "COLORTERM=", "LANG=C.UTF-8",
		"GORACE=atexit_sleep_ms=0 halt_on_error=1 exitcode=66")
	cmd.Env = append(cmd.Env, environment...)
	return cmd
}

// start runs the command in a terminal of so many columns and rows.
func start(t *testing.T, columns, rows int, environment []string, args ...string) *screentest.Screen {
	t.Helper()
	return screentest.Start(t, command(t, environment, args...), columns, rows)
}
