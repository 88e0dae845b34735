package live

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirhq/weir/internal/regularfile"
)

// File is a file that was read.
type File struct {
	Name string
	Data []byte
}

// Files are those that a configuration is made of.
type Files struct {
	// File is that of Options.Path, nil if there is none.
	File *File
	// More are those of Options.More, by name.
	More []File
}

const (
	// mostBytes is how long a file may be, and all of them together.
	mostBytes = 16 << 20
	// mostFiles is how many files and directories there may be below a directory.
	mostFiles = 10_000
)

// read reads all files.
func (l *Limits) read() (f Files, err error) {
	rest := int64(mostBytes)
	if l.o.Path != "" {
		f.File = &File{Name: l.o.Path}
		switch f.File.Data, err = readFile(l.o.Path, &rest); {
		case errors.Is(err, fs.ErrNotExist):
			return f, fmt.Errorf("%w; docs/configuration.md begins with an example", err)
		case err != nil:
			return f, err
		}
	}
	if l.o.More != "" {
		f.More, err = readMore(l.o.More, l.o.IgnoreDotFiles, &rest)
	}
	return f, err
}

// readFile reads one file, and counts it off the bytes that are left.
func readFile(path string, rest *int64) ([]byte, error) {
	data, err := regularfile.Read(path, *rest)
	switch {
	case errors.Is(err, regularfile.ErrTooLong):
		return nil, fmt.Errorf("weir: configuration: %s: it is, or all files are, longer than %d bytes", path, mostBytes)
	case err != nil:
		return nil, fmt.Errorf("weir: configuration: %w", err)
	}
	*rest -= int64(len(data))
	return data, nil
}

// ReadMore reads what Options.More may be: a file, or the files of a directory and of those below it.
func ReadMore(path string, ignoreDotFiles bool) ([]File, error) {
	rest := int64(mostBytes)
	return readMore(path, ignoreDotFiles, &rest)
}

// readMore reads a file, or all files of a directory in the order of their paths. See [findMore] for which those are.
func readMore(path string, ignoreDotFiles bool, rest *int64) ([]File, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("weir: configuration: %w; docs/envoy.md has an example", err)
	case err != nil:
		return nil, fmt.Errorf("weir: configuration: %w", err)
	}
	if !info.IsDir() {
		data, readErr := readFile(path, rest)
		return []File{{path, data}}, readErr
	}
	found, err := findMore(path, ignoreDotFiles)
	switch {
	case err != nil:
		return nil, fmt.Errorf("weir: configuration: %w", err)
	case len(found) == 0:
		return nil, fmt.Errorf("weir: configuration: %s has no file", path)
	}
	files := make([]File, 0, len(found))
	for _, name := range found {
		data, err := readFile(name, rest)
		if err != nil {
			return nil, err
		}
		files = append(files, File{name, data})
	}
	return files, nil
}

// mounted is the link by which the mount of a ConfigMap has its files. What lies beside it and begins with two dots is its own:
// the files that it has are linked.
const mounted = "..data"

// findMore finds the files of a directory and of those below it, whatever their names, as envoyproxy/ratelimit does. Links to
// directories are not followed, as it does not follow them either. What cannot be looked at is an error: it could have limits.
func findMore(path string, ignoreDotFiles bool) (files []string, err error) {
	root := path + string(filepath.Separator) // which may be a link
	seen := 0
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		isRoot := name == root
		switch {
		case errors.Is(err, fs.ErrNotExist) && !isRoot:
			return nil // it was removed meanwhile
		case err != nil:
			return err
		case !isRoot && strings.HasPrefix(d.Name(), ".") && (ignoreDotFiles || ofMount(name)):
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case seen == mostFiles:
			return fmt.Errorf("%s has more than %d files and directories", path, mostFiles)
		case d.Type()&fs.ModeSymlink != 0:
			if info, err := os.Stat(name); err == nil && info.IsDir() {
				return nil
			}
		}
		if seen++; !d.IsDir() {
			files = append(files, name)
		}
		return nil
	})
	return files, err
}

// ofMount reports whether a file or directory is one that the mount of a ConfigMap keeps for itself.
func ofMount(name string) bool {
	dir, base := filepath.Split(name)
	if !strings.HasPrefix(base, "..") {
		return false
	}
	info, err := os.Lstat(filepath.Join(dir, mounted))
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// digest tells files apart by their names and contents.
func (f *Files) digest() (sum [sha256.Size]byte) {
	h := sha256.New()
	add := func(text []byte) {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text)))) // it never fails
		_, _ = h.Write(text)
	}
	if f.File != nil {
		add(f.File.Data)
	}
	for i := range f.More {
		add([]byte(f.More[i].Name))
		add(f.More[i].Data)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
