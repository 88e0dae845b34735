package front

import (
	"io/fs"
	"sync"
	"time"

	"github.com/weirhq/weir/internal/regularfile"
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
	why    string // why what is there cannot be used, "" if it can
}

// lookEvery is how often files are looked at, at most.
const lookEvery = time.Second

// NewReread reads files, which are not looked at where their path is "". The error is that of read. Told is called when they have
// changed, with what they say, or with why that cannot be used: then what was there before stays, and they are read again until
// they can be used. A process with too many open files, or without the right to read one, sees no change once that is over.
func NewReread[T any](read func() (T, error), told func(now T, err error), paths ...string) (*Reread[T], error) {
	f := &Reread[T]{paths: paths, read: read, told: told, looked: time.Now()}
	f.seen = regularfile.Look(paths...)
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
	seen := regularfile.Look(f.paths...)
	same := regularfile.Same(seen, f.seen)
	if same && f.why == "" {
		return f.now
	}
	f.seen = seen
	now, err := f.read()
	if err != nil {
		if why := err.Error(); !same || why != f.why {
			f.why = why
			f.told(f.now, err)
		}
		return f.now
	}
	f.now, f.why = now, ""
	f.told(now, nil)
	return now
}
