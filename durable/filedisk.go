package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// disk is where a [File] is: that of the system, or one of a test.
type disk interface {
	// lock makes this process the only one that uses a file until the lock is closed.
	lock(path string) (diskLock, error)
	// open opens a file for reading, create makes one that is empty, and extend opens one for writing at its end.
	open(path string) (io.ReadCloser, error)
	create(path string) (diskFile, error)
	extend(path string) (diskFile, error)
	// rename gives a file another name, for good.
	rename(from, to string) error
	// remove removes a file, if it can.
	remove(path string)
}

// diskFile is a file that is written.
type diskFile interface {
	io.WriteCloser

	Sync() error
}

// diskLock is a lock.
type diskLock interface {
	io.Closer

	// held reports whether it still keeps others out.
	held() bool
}

// systemDisk is that of the system.
type systemDisk struct{}

func (systemDisk) lock(path string) (diskLock, error) { //nolint:ireturn // there are several
	f, err := lockFile(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, err //nolint:wrapcheck // it names the file
	}
	return &systemLock{File: f, path: path, info: info}, nil
}

// systemLock is a lock of the file at a path.
type systemLock struct {
	*os.File

	path string
	info fs.FileInfo
}

// held reports whether the path still leads to the file: otherwise another process can lock the one that is there. Where that
// cannot be looked at, it is held, as no process could have removed it.
func (l *systemLock) held() bool {
	now, err := os.Stat(l.path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return os.SameFile(l.info, now)
}

func (systemDisk) open(path string) (io.ReadCloser, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0) //nolint:gosec // it is what the caller has named, and fails if it cannot be written
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a regular file", path)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func (systemDisk) create(path string) (diskFile, error) { //nolint:ireturn // there are several
	//nolint:gosec,wrapcheck // it is what the caller has named, and the error names it
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}

func (systemDisk) extend(path string) (diskFile, error) { //nolint:ireturn // there are several
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0) //nolint:gosec // as for create
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, err //nolint:wrapcheck // it names the file
	}
	return &systemFile{File: f, path: path, size: info.Size()}, nil
}

// systemFile is a file at a path that only this process changes.
type systemFile struct {
	*os.File

	path string
	size int64
}

// Write implements [io.Writer].
func (f *systemFile) Write(b []byte) (n int, err error) {
	n, err = f.File.Write(b)
	f.size += int64(n)
	return n, err //nolint:wrapcheck // it names the file
}

// Sync fails also if the next process would not find in the file at the path what was written.
func (f *systemFile) Sync() error {
	if err := f.File.Sync(); err != nil {
		return err //nolint:wrapcheck // it names the file
	}
	mine, err := f.Stat()
	if err != nil {
		return err //nolint:wrapcheck // it names the file
	}
	now, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return err //nolint:wrapcheck // it names the file
	case err != nil:
		return nil //nolint:nilerr // it may well be there: what was written is on disk
	case !os.SameFile(mine, now):
		return fmt.Errorf("%s: another file has taken its place", f.path)
	case now.Size() != f.size:
		return fmt.Errorf("%s: it has %d bytes, and %d were written: another process changes it", f.path, now.Size(), f.size)
	}
	return nil
}

func (systemDisk) remove(path string) { _ = os.Remove(path) }

func (systemDisk) rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err //nolint:wrapcheck // it names the files
	}
	return syncDirectory(filepath.Dir(to))
}
