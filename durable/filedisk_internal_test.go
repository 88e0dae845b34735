package durable

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
)

// testDisk is a disk in memory that fails, and whose machine loses its power.
type testDisk struct {
	mu    sync.Mutex
	rand  *rand.Rand
	names map[string]*testFile // as the system has them
	saved map[string]*testFile // as the disk has them
	fails int                  // how many calls of 100 fail
	room  int                  // for how many bytes there is room, if it is not negative
	dead  bool                 // everything fails
	locks map[string]bool
}

// testFile is what was written to a file, and how much of it is on disk.
type testFile struct {
	disk   *testDisk
	data   []byte
	synced int
	broken bool // a sync has failed: what was not on disk then never will be
}

var (
	errTestDisk = errors.New("the disk fails")
	errNoRoom   = errors.New("no space left on device")
)

func newTestDisk(r *rand.Rand) *testDisk {
	return &testDisk{
		rand: r, names: map[string]*testFile{}, saved: map[string]*testFile{}, locks: map[string]bool{}, room: -1,
	}
}

// fail reports whether a call fails. The disk must be locked.
func (d *testDisk) fail() bool { return d.dead || d.rand.IntN(100) < d.fails }

func (d *testDisk) used() (n int) {
	for _, f := range d.names {
		n += len(f.data)
	}
	return n
}

// crash is a machine that loses its power: of what was not synced some is there, or a file has its length and zeros.
func (d *testDisk) crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rand.IntN(2) == 0 {
		d.names = d.saved
	}
	files := map[string]*testFile{}
	for name, f := range d.names {
		whole := len(f.data)
		if f.broken {
			whole = f.synced
		}
		data := slices.Clone(f.data[:f.synced+d.rand.IntN(whole-f.synced+1)])
		if d.rand.IntN(3) == 0 {
			data = append(data, make([]byte, whole-len(data))...)
		}
		files[name] = &testFile{disk: d, data: data, synced: len(data)}
	}
	d.names, d.saved = files, maps.Clone(files)
	d.locks, d.fails, d.room, d.dead = map[string]bool{}, 0, -1, false
}

type testLock struct {
	disk *testDisk
	path string
}

func (l testLock) Close() error {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	delete(l.disk.locks, l.path)
	return nil
}

// held implements [diskLock].
func (testLock) held() bool { return true }

func (d *testDisk) lock(path string) (diskLock, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.locks[path] {
		return nil, ErrInUse
	}
	d.locks[path] = true
	return testLock{d, path}, nil
}

func (d *testDisk) open(path string) (io.ReadCloser, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.names[path]
	if f == nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return io.NopCloser(bytes.NewReader(f.data)), nil
}

func (d *testDisk) create(path string) (diskFile, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail() {
		return nil, errTestDisk
	}
	f := &testFile{disk: d}
	d.names[path] = f
	return f, nil
}

func (d *testDisk) extend(path string) (diskFile, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.names[path]
	if f == nil || d.fail() {
		return nil, errTestDisk
	}
	return f, nil
}

func (d *testDisk) remove(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.names, path)
}

func (d *testDisk) rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail() {
		return errTestDisk
	}
	if f := d.names[from]; f.synced != len(f.data) {
		panic("a file takes the place of another one before it is on disk")
	}
	d.names[to] = d.names[from]
	delete(d.names, from)
	if d.fail() {
		return errTestDisk
	}
	d.saved = maps.Clone(d.names)
	return nil
}

func (f *testFile) Write(b []byte) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	n, err := len(b), error(nil)
	if f.disk.fail() {
		n, err = f.disk.rand.IntN(len(b)+1), errTestDisk
	}
	if room := f.disk.room - f.disk.used(); f.disk.room >= 0 && n > room {
		n, err = max(0, room), errNoRoom
	}
	f.data = append(f.data, b[:n]...)
	return n, err
}

func (f *testFile) Sync() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.fail() {
		f.synced += f.disk.rand.IntN(len(f.data) - f.synced + 1)
		f.broken = true
		return errTestDisk
	}
	if !f.broken {
		f.synced = len(f.data)
	}
	return nil
}

func (f *testFile) Close() error { return nil }
