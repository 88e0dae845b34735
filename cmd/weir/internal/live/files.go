package live

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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
	// mostFiles is how many there may be in a directory.
	mostFiles = 10_000
)

// read reads all files.
func (l *Limits) read() (f Files, err error) {
	rest := int64(mostBytes)
	if l.o.Path != "" {
		f.File = &File{Name: l.o.Path}
		if f.File.Data, err = readFile(l.o.Path, &rest); err != nil {
			return f, err
		}
	}
	if l.o.More != "" {
		f.More, err = readMore(l.o.More, &rest)
	}
	return f, err
}

// readFile reads one file, and counts it off the bytes that are left.
func readFile(path string, rest *int64) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // the file is the choice of the operator
	if err != nil {
		return nil, fmt.Errorf("weir: configuration: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	data, err := io.ReadAll(io.LimitReader(f, *rest+1))
	*rest -= int64(len(data))
	switch {
	case err != nil:
		return nil, fmt.Errorf("weir: configuration: %w", err)
	case *rest < 0:
		return nil, fmt.Errorf("weir: configuration: %s: it is, or all files are, longer than %d bytes", path, mostBytes)
	}
	return data, nil
}

// ReadMore reads what Options.More may be: a file, or the YAML files of a directory.
func ReadMore(path string) ([]File, error) {
	rest := int64(mostBytes)
	return readMore(path, &rest)
}

// readMore reads a file, or the YAML files of a directory in the order of their names. Those that begin with a dot are left out,
// such as those that mounts of ConfigMaps have beside the links, and so are directories.
func readMore(path string, rest *int64) ([]File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("weir: configuration: %w", err)
	}
	if !info.IsDir() {
		data, readErr := readFile(path, rest)
		return []File{{path, data}}, readErr
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("weir: configuration: %w", err)
	}
	var files []File
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		if !isYAML(e.Name()) {
			continue
		}
		info, err := os.Stat(name) // not that of the link
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && info.IsDir():
			continue
		case len(files) == mostFiles:
			return nil, fmt.Errorf("weir: configuration: %s has more than %d files", path, mostFiles)
		}
		data, err := readFile(name, rest)
		if err != nil {
			return nil, err
		}
		files = append(files, File{name, data})
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("weir: configuration: %s has no file whose name ends in .yaml or .yml", path)
	}
	return files, nil
}

func isYAML(name string) bool {
	return !strings.HasPrefix(name, ".") && (strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml"))
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
