package proxy

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/clientip"
)

// TestClient has the rules of clientip in the proxy: it does not read the header in a way of its own.
func TestClient(t *testing.T) {
	trusted, wrong := parseProxies("127.0.0.1, 10.0.0.0/8,2001:db8:1::/48,::ffff:172.16.0.0/112")
	if wrong != nil {
		t.Fatal(wrong)
	}
	clients, err := clientip.New(clientip.Options{TrustedProxies: trusted})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ peer, forwardedFor, want string }{
		{"192.0.2.1:80", "192.0.2.2", "192.0.2.1"},
		{"127.0.0.1:80", "", "127.0.0.1"},
		{"127.0.0.1:80", "192.0.2.1, 192.0.2.2, 10.0.0.1,10.9.9.9", "192.0.2.2"},
		{"127.0.0.1:80", "10.0.0.1, 10.0.0.2", "10.0.0.1"},
		{"127.0.0.1:80", "192.0.2.1|10.0.0.1|10.0.0.2", "192.0.2.1"},
		{"127.0.0.1:80", "192.0.2.1, unknown, 10.0.0.1", "10.0.0.1"},
		{"127.0.0.1:80", strings.Repeat(",", 10_000), "127.0.0.1"},
		{"127.0.0.1:80", "192.0.2.1, 172.16.9.9", "192.0.2.1"},
		{"[2001:db8:1::9]:80", "192.0.2.2", "192.0.2.2"},
		{"[2001:db8:2::9]:80", "192.0.2.2", "2001:db8:2::9"},
	} {
		var lines []string
		if c.forwardedFor != "" {
			lines = strings.Split(c.forwardedFor, "|")
		}
		if got, ok := clients.Client(c.peer, lines); !ok || got.String() != c.want {
			t.Errorf("%s with %.60q is %v, want %s", c.peer, c.forwardedFor, got, c.want)
		}
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
