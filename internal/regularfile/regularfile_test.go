package regularfile

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestRegularFileIsRead: also by a link, and up to its bound.
func TestRegularFileIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, link} {
		if b, err := Read(name, 5); err != nil || string(b) != "12345" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	b, err := Read(path, 4)
	if _, is := errors.AsType[*fs.PathError](err); b != nil || !is || !errors.Is(err, ErrTooLong) || !strings.Contains(err.Error(), "4 bytes") {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := Read(path+"x", 5); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestNoRegularFileIsRefused: what would block, never end, or is not a file is refused and named.
func TestNoRegularFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	socket, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for path, want := range map[string]string{dir: "a directory", filepath.Join(dir, "s"): "a socket", os.DevNull: "a device"} {
		_, err := Read(path, 100)
		if _, is := errors.AsType[*fs.PathError](err); !is || !strings.Contains(err.Error(), want+": must be a regular file") ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestFileSystemThatHangs: a read that does not come back is given up, and no further one is begun until it does.
func TestFileSystemThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r reads
		var began atomic.Int64
		back := make(chan struct{})
		slow := func() ([]byte, error) {
			began.Add(1)
			<-back
			return nil, nil
		}
		quick := func() ([]byte, error) { return []byte("x"), nil }
		begin := time.Now()
		if _, err := r.read("a", time.Second, slow); err == nil || !strings.Contains(err.Error(), "has not responded for 1s") {
			t.Error(err)
		}
		if time.Since(begin) != time.Second {
			t.Error(time.Since(begin))
		}
		if _, err := r.read("a", time.Second, slow); err == nil || !strings.Contains(err.Error(), "does not respond") || began.Load() != 1 {
			t.Errorf("%v after %d reads", err, began.Load())
		}
		if b, err := r.read("b", time.Second, quick); err != nil || string(b) != "x" {
			t.Error(err)
		}
		close(back)
		synctest.Wait()
		if b, err := r.read("a", time.Second, quick); err != nil || string(b) != "x" {
			t.Error(err)
		}
	})
}
