package respclient

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// read reads text in pieces of a size, and returns the replies as text, except those that were not asked for.
func read(text []byte, size int) (replies []string, err error) {
	var s Scanner
	begin := 0
	for at := 0; at < len(text); {
		at = min(at+size, len(text))
		for begin < at {
			r, n, err := s.Next(text[begin:at])
			if err != nil {
				return replies, err
			}
			if n == 0 {
				break
			}
			if begin += n; r.Kind != Push {
				replies = append(replies, show(r))
			}
		}
	}
	return replies, nil
}

func show(r Reply) string {
	if list, err := r.List(); err == nil {
		var parts []string
		for _, element := range list {
			parts = append(parts, show(element))
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	if text, err := r.Text(); err == nil {
		return text
	} else if r.Err() != nil {
		return "!" + err.Error()
	}
	return "null"
}

// TestReplies reads replies cut at every place.
func TestReplies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"+OK\r\n", "OK"},
		{"-ERR no\r\n:1\r\n_\r\n#t\r\n,1.5\r\n(123\r\n", "!ERR no, 1, null, t, 1.5, 123"},
		{"$4\r\na\r\nb\r\n$-1\r\n*-1\r\n$0\r\n\r\n", "a\r\nb, null, null, "},
		{"=7\r\ntxt:abc\r\n!3\r\nabc\r\n", "abc, !abc"},
		{"*2\r\n$1\r\na\r\n*1\r\n:1\r\n+x\r\n", "[a [1]], x"},
		{"*0\r\n%0\r\n~0\r\n+x\r\n", "[], [], [], x"},
		{"%2\r\n+a\r\n:1\r\n+b\r\n*2\r\n:1\r\n:2\r\n+x\r\n", "[a 1 b [1 2]], x"},
		{">2\r\n+a\r\n+b\r\n+x\r\n>0\r\n+y\r\n", "x, y"},
		{"|1\r\n+ttl\r\n:1\r\n*2\r\n|1\r\n+ttl\r\n:1\r\n+a\r\n+b\r\n+x\r\n", "[a b], x"},
	} {
		for size := 1; size <= len(c.text); size++ {
			got, err := read([]byte(c.text), size)
			if err != nil || strings.Join(got, ", ") != c.want {
				t.Fatalf("%q by %d: %q, %v", c.text, size, got, err)
			}
		}
	}
}

// TestRepliesOfNoServer reads what no server may send.
func TestRepliesOfNoServer(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"HTTP/1.1 400 Bad Request\r\n", "\n", "\r\n", "+\n", "$x\r\n", "$-2\r\n", "*-7\r\n", "$\r\n", "$99999999999999\r\n", "*999999999\r\n",
		"$70000000\r\n", "%900000\r\n", "$?\r\n", "J\x00\x00\n8.0\x00", strings.Repeat("*1\r\n", 100), "$1\r\nabc", "$1\r\na\nb",
		"*200000\r\n*200000\r\n", "+" + string(make([]byte, 100_000)),
	} {
		if _, err := read([]byte(text), len(text)); err == nil {
			t.Errorf("%.40q is let through", text)
		}
	}
}

// TestReader: a Reader returns what a Scanner finds, however it comes, and how the connection ends.
func TestReader(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3*leastRead)
	for text, want := range map[string]string{
		"":                                    "EOF",
		"+OK":                                 "unexpected EOF",
		"+OK\r\n$3\r\nab":                     "OK, unexpected EOF",
		"*2\r\n:1\r\n_\r\n:7\r\n":             "[1 null], 7, EOF",
		"+" + long + "\r\n-ERR x\r\n":         long + ", !ERR x, EOF",
		"=5\r\ntxt:a\r\n%1\r\n+k\r\n,inf\r\n": "a, [k inf], EOF",
		":1\r\nHTTP/1.1 400 Bad Request\r\n":  "1, " + ErrProtocol.Error(),
		"$1\r\nabc":                           ErrProtocol.Error(),
	} {
		for _, from := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
			var got []string
			for r := NewReader(from); ; {
				reply, err := r.Read()
				if err != nil {
					got = append(got, err.Error())
					break
				}
				got = append(got, show(reply))
			}
			if strings.Join(got, ", ") != want {
				t.Errorf("%.40q: %.80q, want %.80q", text, got, want)
			}
		}
	}
	r := NewReader(iotest.DataErrReader(bytes.NewReader([]byte("+OK\r\n"))))
	if _, err := r.Read(); err != nil {
		t.Errorf("a reply that comes with the end: %v", err)
	}
	if _, err := r.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("behind it: %v", err)
	}
}

func FuzzReplies(f *testing.F) {
	f.Add([]byte("*2\r\n$1\r\na\r\n%1\r\n+a\r\n>1\r\n:1\r\n"), 3)
	f.Add([]byte("|1\r\n+a\r\n+b\r\n+OK\r\n"), 1)
	f.Add([]byte("=1\r\na\r\n!0\r\n\r\n$-1\r\n"), 2)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		want, wrong := read(text, max(1, len(text)))
		got, err := read(text, max(1, size%64))
		if (err == nil) != (wrong == nil) {
			t.Fatalf("%v and %v", err, wrong)
		}
		if err == nil && strings.Join(got, "\x00") != strings.Join(want, "\x00") {
			t.Fatalf("%q and %q", got, want)
		}
	})
}
