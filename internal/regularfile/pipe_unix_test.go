//go:build unix

package regularfile

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestNamedPipeIsRefused: nothing waits for a writer that never comes.
func TestNamedPipeIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path, 100); err == nil || !strings.Contains(err.Error(), "a named pipe: must be a regular file") {
		t.Error(err)
	}
}
