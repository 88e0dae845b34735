package httplimit_test

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/httplimit"
)

func byClient(tb testing.TB, o httplimit.ClientOptions) httplimit.KeyFunc {
	tb.Helper()
	key, err := httplimit.ByClient(o)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func prefixes(all ...string) (p []netip.Prefix) {
	for _, s := range all {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

func TestClient(t *testing.T) {
	proxied := httplimit.ClientOptions{TrustedProxies: prefixes("10.0.0.0/8", "2001:db8:ffff::/48")}
	unix := httplimit.ClientOptions{TrustedProxies: proxied.TrustedProxies, TrustUnixSocket: true}
	for _, c := range []struct {
		name      string
		options   httplimit.ClientOptions
		remote    string
		forwarded []string
		want      string
	}{
		{"IPv4", httplimit.ClientOptions{}, "192.0.2.1:1234", nil, "192.0.2.1"},
		{"another port", httplimit.ClientOptions{}, "192.0.2.1:9", nil, "192.0.2.1"},
		{"no port", httplimit.ClientOptions{}, "192.0.2.1", nil, "192.0.2.1"},
		{"IPv6", httplimit.ClientOptions{}, "[2001:db8:1:2:3:4:5:6]:1234", nil, "2001:db8:1:2::/64"},
		{"IPv6 without a port", httplimit.ClientOptions{}, "2001:db8:1:2:3:4:5:6", nil, "2001:db8:1:2::/64"},
		{"a zone", httplimit.ClientOptions{}, "[fe80::1%eth0]:80", nil, "fe80::/64"},
		{"mapped", httplimit.ClientOptions{}, "[::ffff:192.0.2.1]:80", nil, "192.0.2.1"},
		{"mapped, in hexadecimal", httplimit.ClientOptions{}, "[::ffff:c000:201]:80", nil, "192.0.2.1"},
		{"mapped, without a port", httplimit.ClientOptions{}, "::ffff:192.0.2.1", nil, "192.0.2.1"},
		{"/56", httplimit.ClientOptions{IPv6Prefix: 56}, "[2001:db8:1:2ff::1]:1", nil, "2001:db8:1:200::/56"},
		{"/128", httplimit.ClientOptions{IPv6Prefix: 128}, "[2001:DB8::1]:1", nil, "2001:db8::1"},
		{"/24", httplimit.ClientOptions{IPv4Prefix: 24}, "192.0.2.77:1", nil, "192.0.2.0/24"},
		{"mapped, /24", httplimit.ClientOptions{IPv4Prefix: 24}, "[::ffff:192.0.2.77]:1", nil, "192.0.2.0/24"},
		{"Unix socket", httplimit.ClientOptions{}, "@", nil, "@"},
		{"empty", httplimit.ClientOptions{}, "", nil, ""},
		{"not an address", httplimit.ClientOptions{}, "pipe", []string{"192.0.2.9"}, "pipe"},

		{"nobody is trusted", httplimit.ClientOptions{}, "10.0.0.1:1", []string{"192.0.2.9"}, "10.0.0.1"},
		{"the peer is not trusted", proxied, "192.0.2.1:1", []string{"198.51.100.7"}, "192.0.2.1"},
		{"one proxy", proxied, "10.0.0.1:1", []string{"192.0.2.9"}, "192.0.2.9"},
		{"a mapped proxy", proxied, "[::ffff:10.0.0.1]:1", []string{"192.0.2.9"}, "192.0.2.9"},
		{"what the client claims", proxied, "10.0.0.1:1", []string{"198.51.100.7, 192.0.2.9"}, "192.0.2.9"},
		{"a claim of a proxy", proxied, "10.0.0.1:1", []string{"10.9.9.9, 192.0.2.9"}, "192.0.2.9"},
		{"two proxies", proxied, "10.0.0.1:1", []string{"198.51.100.7,192.0.2.9 ,\t10.0.0.2"}, "192.0.2.9"},
		{"two fields", proxied, "10.0.0.1:1", []string{"198.51.100.7", "192.0.2.9", "10.0.0.2"}, "192.0.2.9"},
		{"IPv6 proxy", proxied, "[2001:db8:ffff::1]:1", []string{"2001:db8:1:2::9"}, "2001:db8:1:2::/64"},
		{"all are proxies", proxied, "10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"with a port", proxied, "10.0.0.1:1", []string{"192.0.2.9:4711"}, "192.0.2.9"},
		{"with brackets and a port", proxied, "10.0.0.1:1", []string{"[2001:db8::9]:4711"}, "2001:db8::/64"},
		{"with brackets", proxied, "10.0.0.1:1", []string{"[2001:db8::9]"}, "2001:db8::/64"},
		{"mapped client", proxied, "10.0.0.1:1", []string{"::ffff:192.0.2.9"}, "192.0.2.9"},
		{"no field", proxied, "10.0.0.1:1", nil, "10.0.0.1"},
		{"an empty field", proxied, "10.0.0.1:1", []string{""}, "10.0.0.1"},
		{"garbage from the proxy", proxied, "10.0.0.1:1", []string{"192.0.2.9, unknown"}, "10.0.0.1"},
		{"garbage from the client", proxied, "10.0.0.1:1", []string{"<script>, 192.0.2.9"}, "192.0.2.9"},
		{"garbage between", proxied, "10.0.0.1:1", []string{"192.0.2.9, _hidden, 10.0.0.2"}, "10.0.0.2"},
		{"an empty entry", proxied, "10.0.0.1:1", []string{"192.0.2.9,,10.0.0.2"}, "10.0.0.2"},
		{"a zone from elsewhere", proxied, "10.0.0.1:1", []string{"fe80::1%eth0"}, "10.0.0.1"},
		{"leading zeros", proxied, "10.0.0.1:1", []string{"192.0.02.9"}, "10.0.0.1"},

		{"trusted Unix socket", unix, "@", []string{"198.51.100.7, 192.0.2.9"}, "192.0.2.9"},
		{"trusted Unix socket behind a proxy", unix, "@", []string{"198.51.100.7, 192.0.2.9, 10.0.0.2"}, "192.0.2.9"},
		{"trusted Unix socket, no field", unix, "@", nil, "@"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &http.Request{RemoteAddr: c.remote, Header: http.Header{"X-Forwarded-For": c.forwarded}}
			got, err := byClient(t, c.options)(r)
			if err != nil || got != c.want {
				t.Errorf("key of %s, %q = %q, %v; want %q", c.remote, c.forwarded, got, err, c.want)
			}
		})
	}
}

func TestTrustedNetworksOfMappedAddresses(t *testing.T) {
	key := byClient(t, httplimit.ClientOptions{TrustedProxies: prefixes("::ffff:10.0.0.0/104")})
	r := &http.Request{RemoteAddr: "10.1.2.3:1", Header: http.Header{"X-Forwarded-For": {"192.0.2.9"}}}
	if got, err := key(r); err != nil || got != "192.0.2.9" {
		t.Errorf("key = %q, %v", got, err)
	}
}

func TestClientOptions(t *testing.T) {
	for want, o := range map[string]httplimit.ClientOptions{
		"ClientOptions.IPv4Prefix is 33":                        {IPv4Prefix: 33},
		"ClientOptions.IPv4Prefix is -1":                        {IPv4Prefix: -1},
		"ClientOptions.IPv6Prefix is 129":                       {IPv6Prefix: 129},
		"ClientOptions.IPv6Prefix is -1":                        {IPv6Prefix: -1},
		"ClientOptions.TrustedProxies[1] is invalid Prefix":     {TrustedProxies: append(prefixes("10.0.0.0/8"), netip.Prefix{})},
		"ClientOptions.TrustedProxies[0] is invalid Prefix: mu": {TrustedProxies: []netip.Prefix{{}}},
	} {
		if _, err := httplimit.ByClient(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ByClient(%+v): %v, want one about %s", o, err, want)
		}
	}
}

func TestKeyOfAnIPv4PeerDoesNotAllocate(t *testing.T) {
	key := byClient(t, httplimit.ClientOptions{})
	r := &http.Request{RemoteAddr: "192.0.2.1:1234"}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := key(r); err != nil {
			t.Error(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzClient looks for an address or a field that makes a key which is not the canonical form of an address, or one that
// a client can choose without the help of a trusted proxy.
func FuzzClient(f *testing.F) {
	for _, seed := range [][2]string{
		{"192.0.2.1:1234", ""},
		{"[2001:db8::1]:80", "192.0.2.9"},
		{"10.0.0.1:1", "198.51.100.7, 192.0.2.9"},
		{"10.0.0.1:1", "10.0.0.3\n10.0.0.2"},
		{"[::ffff:10.0.0.1]:1", "[2001:db8::9]:4711, 10.0.0.2"},
		{"10.0.0.1:1", "fe80::1%eth0"},
		{"10.0.0.1:1", ",,,"},
		{"10.0.0.1:1", "192.0.02.9"},
		{"@", "192.0.2.9"},
		{"10.0.0.1", "::ffff:c000:201"},
		{"[fe80::1%eth0]:80", "[::]"},
		{":80", "[]:80"},
		{"0.0.0.0/0", ""},
	} {
		f.Add(seed[0], seed[1])
	}
	trusted := prefixes("10.0.0.0/8")
	alone := byClient(f, httplimit.ClientOptions{})
	proxied := byClient(f, httplimit.ClientOptions{TrustedProxies: trusted})
	f.Fuzz(func(t *testing.T, remote, forwarded string) {
		fields := strings.Split(forwarded, "\n")
		r := &http.Request{RemoteAddr: remote, Header: http.Header{"X-Forwarded-For": fields}}
		peer, err := alone(r)
		if err != nil {
			t.Fatal(err)
		}
		key, err := proxied(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range []string{peer, key} {
			addr, addrErr := netip.ParseAddr(k)
			prefix, prefixErr := netip.ParsePrefix(k)
			switch {
			case addrErr != nil && k == remote: // a peer without an address
			case addrErr == nil && (k != addr.String() || !addr.Is4()):
				t.Errorf("%q is the key of one address, not in its canonical form", k)
			case addrErr == nil:
			case prefixErr != nil || k != prefix.Masked().String() || prefix.Bits() != 64 || prefix.Addr().Is4In6():
				t.Errorf("%q is neither an address, nor a masked network of 64 bits, nor the peer %q", k, remote)
			}
		}
		isTrusted := func(k string) bool {
			a, err := netip.ParseAddr(k)
			return err == nil && trusted[0].Contains(a)
		}
		switch {
		case !isTrusted(peer):
			if key != peer {
				t.Errorf("the peer %q is not trusted, but the key is %q", peer, key)
			}
		case key == peer:
		default:
			// What the client writes in front must not matter once an address that is not trusted has been read.
			r.Header["X-Forwarded-For"] = append([]string{"198.51.100.7"}, fields...)
			again, err := proxied(r)
			if err != nil {
				t.Fatal(err)
			}
			if again != key && !isTrusted(key) {
				t.Errorf("the key is %q, and with another entry in front %q", key, again)
			}
			r.Header["X-Forwarded-For"] = slices.Concat(fields, []string{"192.0.2.99"})
			if again, err = proxied(r); err != nil || again != "192.0.2.99" {
				t.Errorf("the last entry is 192.0.2.99, but the key is %q, %v", again, err)
			}
		}
	})
}
