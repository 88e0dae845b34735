package proxy

import (
	"net/netip"
	"strings"
	"testing"
)

func TestClient(t *testing.T) {
	trusted, wrong := parseProxies("127.0.0.1, 10.0.0.0/8,2001:db8:1::/48,::ffff:172.16.0.0/112")
	if wrong != nil {
		t.Fatal(wrong)
	}
	for _, c := range []struct{ peer, forwardedFor, want string }{
		// Nobody is believed but those who are trusted.
		{"192.0.2.1", "192.0.2.2", "192.0.2.1"},
		{"192.0.2.1", "", "192.0.2.1"},
		{"127.0.0.1", "", "127.0.0.1"},
		{"127.0.0.1", "192.0.2.2", "192.0.2.2"},
		// From the right, over those who are trusted.
		{"127.0.0.1", "192.0.2.1, 192.0.2.2", "192.0.2.2"},
		{"127.0.0.1", "192.0.2.1, 10.0.0.1", "192.0.2.1"},
		{"127.0.0.1", "192.0.2.1, 192.0.2.2, 10.0.0.1,10.9.9.9", "192.0.2.2"},
		{"127.0.0.1", "10.0.0.1, 192.0.2.2, 10.0.0.3", "192.0.2.2"},
		// All are trusted: the farthest.
		{"127.0.0.1", "10.0.0.1, 10.0.0.2", "10.0.0.1"},
		// Several lines are one list.
		{"127.0.0.1", "192.0.2.1|192.0.2.2", "192.0.2.2"},
		{"127.0.0.1", "192.0.2.1|10.0.0.1|10.0.0.2", "192.0.2.1"},
		{"127.0.0.1", "192.0.2.1, 192.0.2.2|10.0.0.1", "192.0.2.2"},
		// Elements that are empty do not count, others that are no address end what is known.
		{"127.0.0.1", "192.0.2.1,, ,", "192.0.2.1"},
		{"127.0.0.1", "|192.0.2.1|", "192.0.2.1"},
		{"127.0.0.1", "192.0.2.1, unknown", "127.0.0.1"},
		{"127.0.0.1", "192.0.2.1, unknown, 10.0.0.1", "10.0.0.1"},
		{"127.0.0.1", "192.0.2.1, _hidden, 192.0.2.2", "192.0.2.2"},
		{"127.0.0.1", "192.0.2.999", "127.0.0.1"},
		{"127.0.0.1", strings.Repeat(",", 10_000), "127.0.0.1"},
		// The forms of an address.
		{"127.0.0.1", "192.0.2.2:1234", "192.0.2.2"},
		{"127.0.0.1", "[2001:db8::2]:1234", "2001:db8::2"},
		{"127.0.0.1", "[2001:db8::2]", "2001:db8::2"},
		{"127.0.0.1", "2001:db8::2", "2001:db8::2"},
		{"127.0.0.1", "[2001:db8::2", "127.0.0.1"},
		{"127.0.0.1", "::ffff:192.0.2.2", "192.0.2.2"},
		{"127.0.0.1", "192.0.2.1, ::ffff:10.0.0.1", "192.0.2.1"},
		{"127.0.0.1", "192.0.2.1, 172.16.9.9", "192.0.2.1"},
		{"127.0.0.1", "192.0.2.1, fe80::1%eth0", "fe80::1"},
		{"2001:db8:1::9", "192.0.2.2", "192.0.2.2"},
		{"2001:db8:2::9", "192.0.2.2", "2001:db8:2::9"},
	} {
		var lines []string
		if c.forwardedFor != "" {
			lines = strings.Split(c.forwardedFor, "|")
		}
		if got := trusted.client(netip.MustParseAddr(c.peer), lines); got.String() != c.want {
			t.Errorf("%s with %.60q is %v, want %s", c.peer, c.forwardedFor, got, c.want)
		}
	}
	if got := proxies(nil).client(netip.MustParseAddr("127.0.0.1"), []string{"192.0.2.1"}); got.String() != "127.0.0.1" {
		t.Errorf("%v is believed without any trusted proxy", got)
	}
}

func TestParseProxies(t *testing.T) {
	for s, want := range map[string]string{
		"10.1.2.3/8":             "10.0.0.0/8",
		"10.1.2.3":               "10.1.2.3/32",
		"2001:DB8::1, 10.0.0.1":  "2001:db8::1/128,10.0.0.1/32",
		"::ffff:10.0.0.0/104":    "10.0.0.0/8",
		"::ffff:10.0.0.1":        "10.0.0.1/32",
		"0.0.0.0/0,::/0":         "0.0.0.0/0,::/0",
		" 192.0.2.0/24 ,::1/128": "192.0.2.0/24,::1/128",
	} {
		var v proxiesValue
		if err := v.Set(s); err != nil || v.String() != want {
			t.Errorf("%q is %s, %v, want %s", s, v.String(), err, want)
		}
	}
	for _, s := range []string{"", "10.0.0.0/33", "10.0.0.0/8,", "localhost", "10.0.0", "::ffff:0:0/95", "fe80::1%eth0", "10.0.0.1:80"} {
		var v proxiesValue
		if err := v.Set(s); err == nil || !strings.Contains(err.Error(), "10.0.0.0/8") {
			t.Errorf("%q is %s, %v", s, v.String(), err)
		}
	}
}
