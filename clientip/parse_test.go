package clientip_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weirhq/weir/clientip"
)

func TestParse(t *testing.T) {
	for endpoint, want := range map[string]string{
		"192.0.2.1":                 "192.0.2.1",
		"192.0.2.1:443":             "192.0.2.1",
		"[192.0.2.1]":               "192.0.2.1",
		"0.0.0.0:0":                 "0.0.0.0",
		"255.255.255.255:65535":     "255.255.255.255",
		"2001:db8::1":               "2001:db8::1",
		"2001:DB8:0:0:0::1":         "2001:db8::1",
		"[2001:db8::1]":             "2001:db8::1",
		"[2001:db8::1]:443":         "2001:db8::1",
		"::":                        "::",
		"1::":                       "1::",
		"1:2:3:4:5:6:7::":           "1:2:3:4:5:6:7:0",
		"::2:3:4:5:6:7:8":           "0:2:3:4:5:6:7:8",
		"1:2:3:4:5:6:192.0.2.1":     "1:2:3:4:5:6:c000:201",
		"64:ff9b::192.0.2.1":        "64:ff9b::c000:201",
		"::ffff:192.0.2.1":          "192.0.2.1",
		"[::ffff:192.0.2.1]:443":    "192.0.2.1",
		"::ffff:c000:201":           "192.0.2.1",
		"192.0.2.1:000080":          "192.0.2.1",
		"[2001:db8::1]:00000000443": "2001:db8::1",
		"[fe80::1%eth0]:80":         "fe80::1",
		"fe80::1%eth0":              "fe80::1",
		"[fe80::1%0]":               "fe80::1",
		"[::ffff:192.0.2.1%eth0]:1": "192.0.2.1",
	} {
		if got, ok := clientip.Parse(endpoint); !ok || got.String() != want {
			t.Errorf("Parse(%q) = %v, %t, want %s", endpoint, got, ok, want)
		}
	}
}

var notEndpoints = []string{
	"", " ", "@", ":", "::1:", "localhost", "localhost:80", "unknown", "_hidden", "192.0.2", "192.0.2.1.", ".192.0.2.1",
	"192.0.2.1.5", "192.0..1", "192.0.02.1", "192.0.2.00", "192.0.2.256", "192.0.2.1:", "192.0.2.1:65536",
	"192.0.2.1:-1", "192.0.2.1:+80", "192.0.2.1:http", "192.0.2.1 ", " 192.0.2.1", "192.0.2.1/32", "0x7f.1", "2130706433",
	"192.0.2.1%eth0", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1:2:3:4::5:6:7:8", "1::2::3", ":::", "1:::2", ":1", "12345::",
	"g::", "fe80::1%", "[]", "[]:80", "[", "]", "[2001:db8::1", "2001:db8::1]", "[2001:db8::1]80", "[2001:db8::1]:", "[[::1]]",
	"[::1]:65536", "::192.0.2", "::192.0.2.1.5", "192.0.2.1::", "::192.0.2.1:80", "1:2:3:4:5:6:7:192.0.2.1", "192.0.2.1:80:80",
}

func TestParseRefusesAllElse(t *testing.T) {
	for _, endpoint := range notEndpoints {
		if got, ok := clientip.Parse(endpoint); ok {
			t.Errorf("Parse(%q) = %v, want none", endpoint, got)
		}
	}
}

func TestFold(t *testing.T) {
	for in, want := range map[string]string{
		"::ffff:192.0.2.1": "192.0.2.1", "192.0.2.1": "192.0.2.1", "fe80::1%eth0": "fe80::1", "2001:db8::1": "2001:db8::1",
	} {
		if got := clientip.Fold(netip.MustParseAddr(in)); got.String() != want {
			t.Errorf("Fold(%s) = %v, want %s", in, got, want)
		}
	}
	if got := clientip.Fold(netip.Addr{}); got.IsValid() {
		t.Errorf("Fold of the zero Addr = %v", got)
	}
}

func TestNothingAllocates(t *testing.T) {
	long := strings.Repeat("[2001:db8::1%", 10_000)
	endpoints := append([]string{"192.0.2.1:1", "[2001:db8::1%eth0]:443", "::ffff:192.0.2.1", long}, notEndpoints...)
	r := resolver(t, clientip.Options{TrustedProxies: networks("10.0.0.0/8")})
	lists := [][]string{
		{"198.51.100.7, 2001:db8::1, 10.0.0.2"},
		{long},
		{strings.Repeat("10.0.0.1,", 10_000)},
		{`for="[2001:db8::1]:_port";proto=http, for=10.0.0.2`},
		{`for="unknown\"`, `for=_hidden`},
	}
	var p clientip.Prefixes
	var space [64]byte
	if n := testing.AllocsPerRun(10, func() {
		for _, e := range endpoints {
			a, _ := clientip.Parse(e)
			p.AppendKey(space[:0], a)
		}
		for _, l := range lists {
			r.Client("10.0.0.1:80", l)
			r.ClientForwarded("10.0.0.1:80", l)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzParse compares with the parsers of the standard library: the same texts must be addresses, and the same ones, but for
// the forms of which only one of both wants to know.
func FuzzParse(f *testing.F) {
	for _, s := range notEndpoints {
		f.Add(s)
	}
	for _, s := range []string{
		"192.0.2.1", "192.0.2.1:443", "[2001:db8::1]:443", "::ffff:192.0.2.1", "fe80::1%eth0", "1:2:3:4:5:6:192.0.2.1", "1::8",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := clientip.Parse(s)
		if ok != got.IsValid() || got.Is4In6() || got.Zone() != "" {
			t.Fatalf("Parse(%q) = %v, %t", s, got, ok)
		}
		want, err := netip.ParseAddr(s)
		if err != nil {
			var port netip.AddrPort
			port, err = netip.ParseAddrPort(s)
			want = port.Addr()
		}
		if inner, bracketed := strings.CutPrefix(s, "["); err != nil && bracketed {
			if inner, bracketed = strings.CutSuffix(inner, "]"); bracketed {
				want, err = netip.ParseAddr(inner)
			}
		}
		switch {
		case ok && err == nil:
			if got != clientip.Fold(want) {
				t.Errorf("Parse(%q) = %v, netip says %v", s, got, want)
			}
		case ok: // brackets around IPv4 with a port
			if !strings.HasPrefix(s, "[") || !got.Is4() {
				t.Errorf("Parse(%q) = %v, netip says %v", s, got, err)
			}
		case err == nil: // a port of many zeros, or a ] in a zone
			if colon := strings.LastIndexByte(s, ':'); len(s)-colon <= 6 && strings.Count(s, "]") <= 1 {
				t.Errorf("Parse(%q) is none, netip says %v", s, want)
			}
		}
		if again, same := clientip.Parse(got.String()); ok && (!same || again != got) {
			t.Errorf("Parse(%q) = %v, which is read as %v, %t", s, got, again, same)
		}
	})
}
