package accesslog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

func packed(t *testing.T, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func fileWith(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, path string, stdin io.Reader) *Source {
	t.Helper()
	s, err := Open(path, stdin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestOpen(t *testing.T) {
	text := sampleText(t)
	two := append(packed(t, text[:1000]), packed(t, text[1000:])...)
	for name, content := range map[string][]byte{
		"plain":         text,
		"gzip":          packed(t, text),
		"two members":   two,
		"empty members": append(append(packed(t, nil), two...), packed(t, nil)...),
	} {
		t.Run(name, func(t *testing.T) {
			sources := map[string]*Source{
				"file":           open(t, fileWith(t, content), nil),
				"standard input": open(t, "-", bytes.NewReader(content)),
				"byte wise":      open(t, "-", iotest.OneByteReader(bytes.NewReader(content))),
			}
			for from, s := range sources {
				if s.Offset() != 0 {
					t.Errorf("%s: offset %d before the first read", from, s.Offset())
				}
				got, err := io.ReadAll(s)
				if err != nil || !bytes.Equal(got, text) {
					t.Errorf("%s: %d bytes, error %v, want %d bytes", from, len(got), err, len(text))
				}
				if s.Offset() != int64(len(content)) {
					t.Errorf("%s: offset %d, want %d", from, s.Offset(), len(content))
				}
				wantSize := int64(-1)
				if from == "file" {
					wantSize = int64(len(content))
				}
				if s.Size() != wantSize {
					t.Errorf("%s: size %d, want %d", from, s.Size(), wantSize)
				}
				if n, err := s.Read(make([]byte, 1)); n != 0 || err != io.EOF { //nolint:errorlint // io.Reader asks for io.EOF itself
					t.Errorf("%s: %d, %v after the end", from, n, err)
				}
			}
		})
	}
}

func TestOpenSmall(t *testing.T) {
	for _, content := range []string{"", "x", "\x1f", "B", "BZh", "\xfd7z", "\x28\xb5\x2f", "\n\n"} {
		got, err := io.ReadAll(open(t, fileWith(t, []byte(content)), nil))
		if err != nil || string(got) != content {
			t.Errorf("%q: got %q, error %v", content, got, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.log")
	if _, err := Open(missing, nil); !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "weir: ") || !strings.Contains(err.Error(), missing) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Open(t.TempDir(), nil); err == nil || !strings.HasSuffix(err.Error(), "is a directory, want a file, or - for standard input") {
		t.Errorf("directory: %v", err)
	}
	for format, content := range map[string]string{
		"bzip2": "BZh91AY&SY\x00\x01", "xz": "\xfd7zXZ\x00\x00\x04", "zstd": "\x28\xb5\x2f\xfd\x24",
	} {
		_, err := io.ReadAll(open(t, "-", strings.NewReader(content)))
		if err == nil || !strings.Contains(err.Error(), "standard input: compressed with "+format+", want text or gzip") {
			t.Errorf("%s: %v", format, err)
		}
	}
}

func TestTruncatedSecondMember(t *testing.T) {
	first := packed(t, []byte(goodLine+"\n"))
	second := packed(t, []byte(goodLine+"\n"))
	for n := 1; n < len(second); n++ {
		s := open(t, "-", bytes.NewReader(append(bytes.Clone(first), second[:n]...)))
		got, err := io.ReadAll(s)
		if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.HasPrefix(string(got), goodLine+"\n") {
			t.Errorf("%d bytes: got %q, error %v", n, got, err)
		}
	}
}

func TestDamagedGzip(t *testing.T) {
	content := packed(t, []byte(goodLine+"\n"))
	decompressed := fmt.Sprintf("%d decompressed bytes", len(goodLine)+1)
	wrongSum := bytes.Clone(content)
	wrongSum[len(wrongSum)-8]++
	wrongBlock := bytes.Clone(content)
	wrongBlock[10] = 0xff // reserved block type
	for name, test := range map[string]struct {
		content []byte
		text    string
		want    string
		is      error
	}{
		"checksum":       {wrongSum, goodLine + "\n", "the gzip stream is damaged, after " + decompressed + " at the latest: ", gzip.ErrChecksum},
		"block":          {wrongBlock, "", "the gzip stream is damaged, after 0 decompressed bytes at the latest: ", nil},
		"method":         {append([]byte{0x1f, 0x8b, 7}, content[3:]...), "", "what follows 0 decompressed bytes is not gzip: ", gzip.ErrHeader},
		"something else": {append(bytes.Clone(content), goodLine...), goodLine + "\n", "what follows " + decompressed + " is not gzip: ", gzip.ErrHeader},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, "-", bytes.NewReader(test.content))
			got, err := io.ReadAll(s)
			if string(got) != test.text || err == nil || !strings.Contains(err.Error(), "weir: access log standard input: "+test.want) {
				t.Errorf("got %q, error %v", got, err)
			}
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("error %v is not %v", err, test.is)
			}
			if _, again := s.Read(make([]byte, 1)); again != err { //nolint:errorlint // the same error, not described twice
				t.Errorf("then %v", again)
			}
		})
	}
}

func TestSourceErrors(t *testing.T) {
	failure := errors.New("disk on fire")
	for _, n := range []int{0, 1, 2, 100} {
		text := strings.Repeat("x", n)
		// once fails a single time, so an error that detection met must be kept.
		s := open(t, "-", io.MultiReader(strings.NewReader(text), &once{failure}))
		got, err := io.ReadAll(s)
		if string(got) != text || !errors.Is(err, failure) || err.Error() != "weir: access log standard input: disk on fire" {
			t.Errorf("%d bytes: got %q, error %v", n, got, err)
		}
	}
	s, err := Open(fileWith(t, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
	if err := s.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
}

type once struct{ err error }

func (o *once) Read([]byte) (int, error) {
	err := o.err
	if o.err = io.EOF; err == nil {
		err = io.EOF
	}
	return 0, err
}

// TestOffsetWhileReading reads a log in one goroutine and its progress in
// another.
func TestOffsetWhileReading(t *testing.T) {
	content := packed(t, bytes.Repeat(sampleText(t), 200))
	s := open(t, fileWith(t, content), nil)
	done := make(chan error)
	go func() {
		_, err := io.Copy(io.Discard, s)
		done <- err
	}()
	last := int64(0)
	for {
		select {
		case err := <-done:
			if err != nil || s.Offset() != s.Size() {
				t.Errorf("error %v, offset %d of %d", err, s.Offset(), s.Size())
			}
			return
		default:
			if now := s.Offset(); now < last || now > s.Size() {
				t.Fatalf("offset %d after %d, of %d", now, last, s.Size())
			} else {
				last = now
			}
		}
	}
}
