package keytext_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/keytext"
)

// TestWordInKeys: a word is a part of a key only between what separates parts.
func TestWordInKeys(t *testing.T) {
	long := strings.Repeat("y", 200)
	for _, c := range []struct {
		word  string
		in    []string
		notIn []string
	}{
		{
			"198.51.100.5",
			[]string{
				"198.51.100.5", "198.51.100.0/24", "198.51.100.5,bob", "a,198.51.100.5", "ip:198.51.100.5", "edge|remote=198.51.100.5|x=y",
				"198.51.100.5:80",
			},
			[]string{"198.51.100.52", "198.51.100.5.6", "1198.51.100.5", "198.51.100.52,bob", "198.51.101.0/24", ""},
		},
		{
			"2001:DB8::1",
			[]string{"2001:db8::1", "2001:db8::/64", "2001:db8::1,bob", "x=2001:db8::1"},
			[]string{"2001:db8::12", "f:2001:db8::1", "2001:db8::1:2", "2001:db8:0:1::/64"},
		},
		{"::1", []string{"::1", "::/64"}, []string{"2001:db8::1"}},
		{"[2001:db8::1]:443", []string{"2001:db8::1"}, nil},
		{"198.51.100.0/24", []string{"198.51.100.7", "198.51.100.0/24", "bob,198.51.100.7", "198.51.100.128/25"}, []string{"198.51.101.7", "198.51.0.0/16"}},
		{"bob", []string{"bob", "1.2.3.4,bob", "/users/bob", "user=bob"}, []string{"bobby", "bob-2", "xbob", "Bob"}},
		{"a,b", []string{"a,b", `1.2.3.4,a\,b`}, []string{"a"}},
		{"a|b", []string{`edge|k=a\|b`}, nil},
		{long, []string{string(keytext.AppendPart(nil, long)), "x," + string(keytext.AppendPart(nil, long))}, []string{long[:60]}},
	} {
		w := keytext.ParseWord(c.word)
		for _, key := range c.in {
			if !w.In(key) {
				t.Errorf("%.50s is not in %.80s", c.word, key)
			}
		}
		for _, key := range c.notIn {
			if w.In(key) {
				t.Errorf("%.50s is in %.80s", c.word, key)
			}
		}
	}
}

func TestWordIsAddress(t *testing.T) {
	for word, want := range map[string][2]string{
		"192.0.2.1": {"192.0.2.1", "192.0.2.2"}, "::ffff:192.0.2.1": {"192.0.2.1", "::1"}, "fe80::1%eth0": {"fe80::1", "fe80::2"},
		"192.0.2.0/30": {"192.0.2.3", "192.0.2.4"}, "192.0.2.1\n": {"::ffff:192.0.2.1", "192.0.2.9"},
	} {
		w := keytext.ParseWord(word)
		if !w.Is(netip.MustParseAddr(want[0])) || w.Is(netip.MustParseAddr(want[1])) || w.Is(netip.Addr{}) {
			t.Errorf("%s: %+v", word, w)
		}
	}
	if keytext.ParseWord("bob").Is(netip.Addr{}) {
		t.Error("a client that is not known is bob")
	}
}

// FuzzWord: any text is in itself, and beside other parts.
func FuzzWord(f *testing.F) {
	for _, word := range []string{"bob", "192.0.2.1", "::1", "10.0.0.0/8", "a,b", `\`, "x|y", "[::1]:80", "1.2.3.4:5"} {
		f.Add(word, "bob,alice")
	}
	f.Fuzz(func(t *testing.T, word, key string) {
		w := keytext.ParseWord(word)
		w.In(key)
		part := keytext.AppendPart(nil, word)
		if word != "" && (!w.In(string(part)) || !w.In("x,"+string(keytext.Escape(part, 0))+",y")) {
			t.Errorf("%q is not in itself", word)
		}
	})
}
