package keytext_test

import (
	"path"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/keytext"
)

func TestPartsAreBounded(t *testing.T) {
	// SHA-256 of 129 times "x"
	const hash = "0ec9eb33e74510bcdd1f2ea55206e82f21649c5c2becbf2b433eb475b34c01bd"
	for n, want := range map[int]string{
		0: "", 1: "x", 128: strings.Repeat("x", 128), 129: strings.Repeat("x", 60) + "...sha256:" + hash,
	} {
		part := strings.Repeat("x", n)
		for how, got := range map[string][]byte{
			"AppendPart": keytext.AppendPart([]byte("k"), part), "AppendPart of bytes": keytext.AppendPart([]byte("k"), []byte(part)),
			"Bound": keytext.Bound([]byte("k"+part), 1),
		} {
			if string(got) != "k"+want {
				t.Errorf("%s of %d bytes: %q", how, n, got)
			}
		}
	}
}

func TestBoundDoesNotAllocate(t *testing.T) {
	b := make([]byte, 1000)
	if n := testing.AllocsPerRun(10, func() { keytext.Bound(b, 10) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestEscape(t *testing.T) {
	for part, want := range map[string]string{"": "", "ab": "ab", ",": `\,`, `\`: `\\`, `,a\,`: `\,a\\\,`} {
		if got := string(keytext.Escape([]byte("1,2"+part), 3)); got != "1,2"+want {
			t.Errorf("%s: %s, want %s", part, got, want)
		}
	}
}

func TestCleanHost(t *testing.T) {
	for host, want := range map[string]string{
		"": "", "a": "a", "A.example.COM": "a.example.com", "a.": "a", "a:80": "a", "A.:80": "a", "[::1]": "::1", "[::1]:80": "::1", "::1": "::1",
		"2001:DB8::1": "2001:db8::1", "[": "[", ":80": "",
	} {
		if got := keytext.CleanHost(host); got != want {
			t.Errorf("%q: %q, want %q", host, got, want)
		}
	}
}

// FuzzCleanPath holds it to the package path, which knows no slash at the end.
func FuzzCleanPath(f *testing.F) {
	for _, p := range []string{"", "/", "*", "/a/b", "//a/./b/../", "/.well-known", "/...", "/a/..", "..", "a", "/..a/.b./c.."} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		want := p
		if p != "" && p != "*" {
			want = path.Clean("/" + p)
			if last := p[strings.LastIndexByte(p, '/')+1:]; want != "/" && (last == "" || last == "." || last == "..") {
				want += "/"
			}
		}
		got := keytext.CleanPath(p)
		if got != want || keytext.IsCleanPath(p) != (p == want) || keytext.IsCleanPath([]byte(p)) != (p == want) {
			t.Errorf("%q: %q, want %q", p, got, want)
		}
	})
}
