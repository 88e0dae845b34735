package replay

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/offline/accesslog"
)

// TestPipeWithoutAWriterIsInterrupted: a named pipe that nothing writes to holds up no interrupt.
func TestPipeWithoutAWriterIsInterrupted(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "log")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- new(lineCounts).readAll(ctx, func(*accesslog.Record) {}, []string{pipe}, nil, new(bar))
	}()
	interrupt()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for a writer")
	}
	writer, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = writer.Close() // what waits is let go
}
