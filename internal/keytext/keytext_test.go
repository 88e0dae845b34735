package keytext_test

import (
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"path"
	"regexp"
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
		"": "", "a": "a", "A.example.COM": "a.example.com", "a.": "a", "a..": "a", "a...:80": "a", "a:80": "a", "A.:80": "a", "[::1]": "::1", "[::1]:80": "::1", "::1": "::1",
		"2001:DB8::1": "2001:db8::1", "[": "[", ":80": "",
		"%61": "a", "a%2e": "a", "%41%2E:80": "a", "a%3a80": "a", "%2561": "%61", "%": "%", "%6": "%6", "a%2e.": "a", "fe80::1%61": "fe80::1%61",
		"[fe80::1%25a]": "fe80::1%25a",
		"a:80:80":       "a", "A.::": "a", "a:b:c": "a", "::1%eth0": "::1%eth0", "a.b:1:2:3:4:5:6:7": "a.b",
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

// TestCleanTextsByWords holds what reads eight bytes at a time to what reads one after the other.
func TestCleanTextsByWords(t *testing.T) {
	const special = "/.%\\;*:[Z@A`{a-\x7f\x80\xba\xaf\xff"
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		b := []byte(strings.Repeat("a", rng.IntN(40)))
		if len(b) > 0 {
			b[0] = "/aA*"[rng.IntN(4)]
		}
		for range rng.IntN(4) {
			if len(b) > 0 {
				b[rng.IntN(len(b))] = special[rng.IntN(len(special))]
			}
		}
		s := string(b)
		if got, want := keytext.IsCleanPath(s), isCleanPath(s); got != want || keytext.IsCleanPath(b) != want {
			t.Fatalf("IsCleanPath(%q) = %v, want %v", s, got, want)
		}
		if got, want := keytext.CleanHost(s), cleanHost(s); got != want {
			t.Fatalf("CleanHost(%q) = %q, want %q", s, got, want)
		}
		if got, want := keytext.HasSeveralReadings(s), strings.ContainsAny(s, `%\;`); got != want {
			t.Fatalf("HasSeveralReadings(%q) = %v, want %v", s, got, want)
		}
	}
}

func isCleanPath(p string) bool {
	if p == "" || p[0] != '/' {
		return p == "" || p == "*"
	}
	segments := strings.Split(p, "/")[1:]
	for i, s := range segments {
		if s == "." || s == ".." || s == "" && i < len(segments)-1 {
			return false
		}
	}
	return true
}

func cleanHost(h string) string {
	if strings.HasPrefix(h, "[") {
		if end := strings.IndexByte(h, ']'); end > 0 {
			h = h[1:end]
		}
	} else if _, err := netip.ParseAddr(h); err != nil {
		h, _, _ = strings.Cut(h, ":")
	}
	if h = strings.TrimRight(h, "."); !strings.Contains(h, ":") && escape.MatchString(h) {
		h = escape.ReplaceAllStringFunc(h, func(s string) string { b, _ := hex.DecodeString(s[1:]); return string(b) })
		if strings.Count(h, ":") == 1 {
			h, _, _ = strings.Cut(h, ":")
		}
		h = strings.TrimRight(h, ".")
	}
	return strings.ToLower(h)
}

var escape = regexp.MustCompile("%[0-9a-fA-F]{2}")
