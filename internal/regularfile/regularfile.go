// Package regularfile reads files that may be replaced by anything while a program runs, without being held up by what is there.
package regularfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// ErrTooLong says that a file is longer than the caller takes.
var ErrTooLong = errors.New("it is too long")

// patience is how long a file system may take for one file.
const patience = 10 * time.Second

// Read returns what is in a file of at most maxBytes bytes. It refuses what is not a regular file, such as a named pipe, a
// device, a socket or a directory, without opening it, and gives up after 10 s where a file system does not respond: until it
// does, a further Read of the path fails at once. The error is a *[fs.PathError]; it matches [ErrTooLong] if the file is longer.
func Read(path string, maxBytes int64) ([]byte, error) {
	return files.read(path, patience, func() ([]byte, error) { return read(path, maxBytes) })
}

// Look returns how files look without being read. It is nil for one that is not there, or whose path is "".
func Look(paths ...string) []fs.FileInfo {
	seen := make([]fs.FileInfo, len(paths))
	for i, path := range paths {
		if info, err := os.Stat(path); path != "" && err == nil {
			seen[i] = info
		}
	}
	return seen
}

// Same reports whether files look as they did. One that is written in place may do so nevertheless, if that is within what the
// file system takes for one moment.
func Same(now, before []fs.FileInfo) bool {
	return slices.EqualFunc(now, before, func(a, b fs.FileInfo) bool {
		if a == nil || b == nil {
			return a == nil && b == nil
		}
		return os.SameFile(a, b) && a.Size() == b.Size() && a.Mode() == b.Mode() && a.ModTime().Equal(b.ModTime())
	})
}

// opening is what fails where a file cannot be read.
const opening = "open"

// files are those of this process.
var files reads //nolint:gochecknoglobals // a path means the same everywhere

// reads knows which reads have been given up and still go on, by path.
type reads struct {
	mu    sync.Mutex
	stuck map[string]int
}

// add counts a read that was given up, or has ended.
func (r *reads) add(path string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stuck == nil {
		r.stuck = map[string]int{}
	}
	if r.stuck[path] += n; r.stuck[path] == 0 {
		delete(r.stuck, path)
	}
}

func (r *reads) isStuck(path string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stuck[path] > 0
}

func (r *reads) read(path string, patience time.Duration, read func() ([]byte, error)) ([]byte, error) {
	if r.isStuck(path) {
		return nil, &fs.PathError{Op: opening, Path: path, Err: errors.New("the file system does not respond")}
	}
	type result struct {
		data []byte
		err  error
	}
	done, givenUp := make(chan result), make(chan struct{})
	go func() {
		data, err := read()
		select {
		case done <- result{data, err}:
		case <-givenUp:
			r.add(path, -1)
		}
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case x := <-done:
		return x.data, x.err
	case <-timer.C:
		r.add(path, 1)
		close(givenUp)
		return nil, &fs.PathError{Op: opening, Path: path, Err: fmt.Errorf("the file system has not responded for %v", patience)}
	}
}

func read(path string, maxBytes int64) ([]byte, error) {
	info, err := os.Stat(path) // before it is opened, as that can have effects
	if err != nil {
		if e, is := errors.AsType[*fs.PathError](err); is {
			e.Op = opening
		}
		return nil, err //nolint:wrapcheck // it is a PathError
	}
	if refused := check(path, info); refused != nil {
		return nil, refused
	}
	// It may have been replaced by now.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) //nolint:gosec // the caller chooses the file
	if err != nil {
		return nil, err //nolint:wrapcheck // it is a PathError
	}
	defer f.Close() //nolint:errcheck // it was only read
	if info, err = f.Stat(); err != nil {
		return nil, err //nolint:wrapcheck // it is a PathError
	}
	if refused := check(path, info); refused != nil {
		return nil, refused
	}
	size := info.Size() // a file may tell less than there is
	if size <= maxBytes {
		data := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
		if size, err = data.ReadFrom(io.LimitReader(f, maxBytes+1)); err != nil {
			return nil, err //nolint:wrapcheck // it is a PathError
		}
		if size <= maxBytes {
			return data.Bytes(), nil
		}
	}
	return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%w: at most %d bytes are taken", ErrTooLong, maxBytes)}
}

// check refuses what is not a regular file.
func check(path string, info fs.FileInfo) error {
	what := "something else"
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		what = "a directory"
	case mode&fs.ModeNamedPipe != 0:
		what = "a named pipe"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	}
	return &fs.PathError{Op: opening, Path: path, Err: fmt.Errorf("it is %s: must be a regular file", what)}
}
