//go:build unix && !aix && !solaris

package durable

import (
	"errors"
	"os"
	"syscall"
)

// lockFile makes a file at path, and locks it until it is closed, or the process has ended in any way.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // it is what the caller has named
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, ErrInUse
	}
	return nil, &os.PathError{Op: "flock", Path: path, Err: err}
}

// syncDirectory makes the names in a directory durable.
func syncDirectory(path string) error {
	d, err := os.Open(path) //nolint:gosec // the same
	if err != nil {
		return err //nolint:wrapcheck // it names the directory
	}
	return errors.Join(d.Sync(), d.Close())
}
