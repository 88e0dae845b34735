//go:build (!unix && !windows) || aix || solaris

package durable

import (
	"errors"
	"os"
)

// lockFile fails: two processes that used a file would grant its limits twice.
func lockFile(path string) (*os.File, error) {
	return nil, &os.PathError{Op: "lock", Path: path, Err: errors.ErrUnsupported}
}

func syncDirectory(string) error { return errors.ErrUnsupported }
