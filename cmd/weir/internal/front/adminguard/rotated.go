package adminguard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	fileMode = 0o600
	// asideForm is the time in the name of a file that was put aside. All have as many digits, so that names are in order.
	asideForm = "2006-01-02T15-04-05.000000000"
)

// rotated is a file that is put aside when it is large. It is not safe for concurrent use.
type rotated struct {
	path string
	max  int64       // bytes
	kept int         // how many of those put aside, 0 for all
	file *os.File    // nil if it is not open
	is   fs.FileInfo // of file
	size int64
	torn bool // it ends with a part of a line
}

// Write appends a line. It is whole in one file, which is larger than max only if the line is. If it fails, nothing of it stays
// there; a part of one that cannot be removed ends with a line of its own.
func (r *rotated) Write(line []byte) (int, error) {
	if r.file == nil {
		if err := r.open(); err != nil {
			return 0, err
		}
	}
	if r.size > 0 && r.size+int64(len(line)) > r.max {
		if err := errors.Join(r.Close(), r.putAside(), r.open()); err != nil {
			return 0, err // the next call tries again
		}
		r.removeOld()
	}
	if r.torn {
		line = append([]byte("\n"), line...)
	}
	n, err := r.file.Write(line)
	if err != nil && n > 0 && r.file.Truncate(r.size) == nil { // which needs no room
		n = 0
	}
	r.size += int64(n)
	if n > 0 {
		r.torn = err != nil
	}
	return n, err
}

// open opens the file, or makes it in a directory that is there. It takes nothing but a regular file.
func (r *rotated) open() error {
	info, err := os.Stat(r.path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", r.path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, fileMode)
	if err != nil {
		return err
	}
	if info, err = f.Stat(); err != nil {
		return errors.Join(err, f.Close())
	}
	r.file, r.is, r.size = f, info, info.Size()
	r.torn = r.endsInPart()
	return nil
}

// taken closes the file if it is not at its path any more, or not all of it, and reports whether that is so.
func (r *rotated) taken() bool {
	if r.file == nil {
		return false
	}
	if info, err := os.Stat(r.path); err == nil && os.SameFile(info, r.is) && info.Size() >= r.size {
		return false
	}
	_ = r.Close() // each line was synced
	return true
}

// endsInPart reports whether the last line of the file is not whole, as when a process was killed on a disk that was full. What
// cannot be read is taken to be whole.
func (r *rotated) endsInPart() bool {
	f, err := os.Open(r.path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	var last [1]byte
	_, err = f.ReadAt(last[:], r.size-1)
	return err == nil && last[0] != '\n'
}

// putAside gives the file a name behind those of all that were put aside before, also if the clock has gone back since: the first
// of them are the oldest.
func (r *rotated) putAside() error {
	before, after := r.around()
	at := time.Now().UTC()
	if _, last := r.aside(); at.Before(last) {
		at = last.Add(1)
	}
	for ; ; at = at.Add(1) {
		name := filepath.Join(filepath.Dir(r.path), before+at.Format(asideForm)+after)
		if _, err := os.Lstat(name); err != nil { // if it is another error, the next call has it too
			return os.Rename(r.path, name)
		}
	}
}

// removeOld removes those put aside that are too many, the oldest first. What cannot be removed is tried again after the next.
func (r *rotated) removeOld() {
	if r.kept == 0 {
		return
	}
	aside, _ := r.aside()
	for _, name := range aside[:max(len(aside)-r.kept, 0)] {
		_ = os.Remove(filepath.Join(filepath.Dir(r.path), name))
	}
}

// aside returns the names of those put aside, in order, and the time in the last of them.
func (r *rotated) aside() (names []string, last time.Time) {
	entries, _ := os.ReadDir(filepath.Dir(r.path)) // by their names
	before, after := r.around()
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), before) || !strings.HasSuffix(e.Name(), after) || len(e.Name()) < len(before)+len(after) {
			continue
		}
		if at, err := time.Parse(asideForm, e.Name()[len(before):len(e.Name())-len(after)]); err == nil {
			names, last = append(names, e.Name()), at
		}
	}
	return names, last
}

// around returns what is before and after the time in the names of files that were put aside.
func (r *rotated) around() (before, after string) {
	name := filepath.Base(r.path)
	after = filepath.Ext(name)
	return strings.TrimSuffix(name, after) + "-", after
}

// Sync has the system put on the disk what was written.
func (r *rotated) Sync() error { return r.file.Sync() }

// Close closes the file. Another Write opens it again.
func (r *rotated) Close() error {
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file = nil
	return err
}
