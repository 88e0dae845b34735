package front

import (
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"
)

// Reread is what some files say. They are read again when one of them changes, so that a server need not end for it. All methods
// are safe for concurrent use.
type Reread[T any] struct {
	paths []string
	read  func() (T, error)
	told  func(now T, err error)

	mu     sync.Mutex
	looked time.Time
	seen   []fs.FileInfo // nil for a file that was not there
	now    T
}

// lookEvery is how often files are looked at, at most.
const lookEvery = time.Second

// NewReread reads files, which are not looked at where their path is "". The error is that of read. Told is called when they have
// changed, with what they say, or with why that cannot be used: then what was there before stays.
func NewReread[T any](read func() (T, error), told func(now T, err error), paths ...string) (*Reread[T], error) {
	f := &Reread[T]{paths: paths, read: read, told: told, looked: time.Now()}
	f.seen = f.look()
	var err error
	f.now, err = read()
	return f, err
}

// Now is what the files say, which are looked at once a second at most.
func (f *Reread[T]) Now() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.looked) < lookEvery {
		return f.now
	}
	f.looked = time.Now()
	seen := f.look()
	if slices.EqualFunc(seen, f.seen, isSame) {
		return f.now
	}
	f.seen = seen
	now, err := f.read()
	if err == nil {
		f.now = now
	}
	f.told(f.now, err)
	return f.now
}

// look is how the files look.
func (f *Reread[T]) look() []fs.FileInfo {
	seen := make([]fs.FileInfo, len(f.paths))
	for i, path := range f.paths {
		if info, err := os.Stat(path); path != "" && err == nil {
			seen[i] = info
		}
	}
	return seen
}

func isSame(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
