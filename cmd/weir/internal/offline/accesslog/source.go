package accesslog

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// Source is an opened log: a file or the standard input, decompressed if it is
// gzip. It is read by one goroutine, while others may call Offset.
type Source struct {
	name  string
	file  io.Closer // nil for the standard input
	size  int64
	count counter

	in         *bufio.Reader // of count
	out        io.Reader     // in, or the decompressed stream; nil before the first Read
	compressed bool          // out is gzip
	unpacked   int64         // bytes returned by Read
	err        error         // sticky
}

// Open opens the log at path, or stdin if path is "-". Closing the Source closes
// the file and leaves stdin open.
//
// Gzip is recognised by its first bytes, whatever the name of the file, on stdin
// too; a file of several gzip members, such as concatenated rotated logs, reads
// as one stream. Nothing is read before the first Read, so Open does not wait
// for a pipe.
//
// The error names the path. A directory is refused here; a file that is neither
// text nor gzip but bzip2, xz or zstd is refused by the first Read.
func Open(path string, stdin io.Reader) (*Source, error) {
	if path == "-" {
		return newSource("standard input", stdin, nil, -1), nil
	}
	f, err := os.Open(path) //nolint:gosec // the user names the log to read
	if err != nil {
		return nil, fmt.Errorf("weir: access log: %w", err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		_ = f.Close()
		return nil, fmt.Errorf("weir: access log: %w", err)
	case info.IsDir():
		_ = f.Close()
		return nil, fmt.Errorf("weir: access log %s: is a directory, want a file, or - for standard input", path)
	}
	size := int64(-1)
	if info.Mode().IsRegular() {
		size = info.Size()
	}
	return newSource(path, f, f, size), nil
}

// blockSize is how much is read at a time.
const blockSize = 64 << 10

func newSource(name string, r io.Reader, file io.Closer, size int64) *Source {
	s := &Source{name: name, file: file, size: size}
	s.count.src = r
	s.in = bufio.NewReaderSize(&s.count, blockSize)
	return s
}

// Size returns the size of the file in bytes, as stored, when it was opened. It
// is -1 when the size is unknown: of the standard input, a pipe or a device.
func (s *Source) Size() int64 { return s.size }

// Offset returns how many bytes of the file have been read so far: compressed
// bytes for gzip, so that it can be compared with Size. It runs ahead of what
// Read has returned by one buffer at most. It may be called at any time, from
// any goroutine.
func (s *Source) Offset() int64 { return s.count.n.Load() }

// Read reads from the decompressed stream.
//
// When a gzip stream ends early, Read returns all that can be decompressed and
// then an error that says so and matches io.ErrUnexpectedEOF. Damage is reported
// alike, after what comes before it.
func (s *Source) Read(b []byte) (int, error) {
	if s.out == nil && s.err == nil {
		s.detect()
	}
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.out.Read(b)
	s.unpacked += int64(n)
	if err != nil {
		s.err = s.explain(err)
	}
	return n, s.err
}

// Close closes the file. It does not close the standard input.
func (s *Source) Close() error {
	if s.file == nil {
		return nil
	}
	if err := s.file.Close(); err != nil {
		return fmt.Errorf("weir: access log: %w", err)
	}
	return nil
}

var gzipMagic = []byte{0x1f, 0x8b}

// otherMagic has the first bytes of the compressed formats that are in use for
// logs but not read here.
var otherMagic = []struct {
	format string
	magic  []byte
}{
	{"bzip2", []byte("BZh91AY&SY")},
	{"xz", []byte("\xfd7zXZ\x00")},
	{"zstd", []byte("\x28\xb5\x2f\xfd")},
}

// detect sets out or err according to the first bytes.
func (s *Source) detect() {
	// An error of Peek comes again from Read: counter keeps it.
	start, _ := s.in.Peek(len(gzipMagic))
	if bytes.Equal(start, gzipMagic) {
		s.compressed = true
		unpacked, err := gzip.NewReader(s.in)
		if err != nil {
			s.err = s.explain(err)
			return
		}
		s.out = unpacked
		return
	}
	for _, other := range otherMagic {
		if s.startsWith(other.magic) {
			s.err = fmt.Errorf("weir: access log %s: compressed with %s, want text or gzip; "+
				"decompress it and read it from standard input with -", s.name, other.format)
			return
		}
	}
	s.out = s.in
}

// startsWith reports whether the stream begins with magic. It waits for no more
// bytes than it takes to tell.
func (s *Source) startsWith(magic []byte) bool {
	for n := 1; n <= len(magic); n++ {
		start, _ := s.in.Peek(n)
		if len(start) < n || start[n-1] != magic[n-1] {
			return false
		}
	}
	return true
}

// explain adds to an error of reading what happened and where.
func (s *Source) explain(err error) error {
	if err == io.EOF { //nolint:errorlint // io.Reader ends with io.EOF itself; one that is wrapped is a failure
		return err
	}
	var corrupt flate.CorruptInputError
	what := ""
	switch {
	case !s.compressed:
	case errors.Is(err, io.ErrUnexpectedEOF):
		what = fmt.Sprintf("the gzip stream is truncated: it ends after %d bytes, %d decompressed: ", s.Offset(), s.unpacked)
	case errors.Is(err, gzip.ErrHeader):
		what = fmt.Sprintf("what follows %d decompressed bytes is not gzip: ", s.unpacked)
	case errors.Is(err, gzip.ErrChecksum), errors.As(err, &corrupt):
		what = fmt.Sprintf("the gzip stream is damaged, after %d decompressed bytes at the latest: ", s.unpacked)
	}
	return fmt.Errorf("weir: access log %s: %s%w", s.name, what, err)
}

// counter counts the bytes read from src, and repeats its error.
type counter struct {
	src io.Reader
	n   atomic.Int64
	err error
}

func (c *counter) Read(b []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.src.Read(b)
	c.n.Add(int64(n))
	c.err = err
	return n, err
}
