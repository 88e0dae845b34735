package clientip_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/clientip"
)

func resolver(tb testing.TB, o clientip.Options) *clientip.Resolver {
	tb.Helper()
	r, err := clientip.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func networks(all ...string) (p []netip.Prefix) {
	for _, s := range all {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

// none is how tests write that there is no address.
const none = "invalid IP"

func TestClient(t *testing.T) {
	alone := clientip.Options{}
	proxied := clientip.Options{TrustedProxies: networks("10.0.0.0/8", "2001:db8:ffff::/48", "::ffff:172.16.0.0/108")}
	unix := clientip.Options{TrustedProxies: proxied.TrustedProxies, TrustUnixSocket: true}
	one, two := clientip.Options{TrustedHops: 1}, clientip.Options{TrustedHops: 2}
	for _, c := range []struct {
		name      string
		options   clientip.Options
		remote    string
		forwarded []string
		want      string
	}{
		{"the peer", alone, "192.0.2.1:1234", nil, "192.0.2.1"},
		{"no port", alone, "192.0.2.1", nil, "192.0.2.1"},
		{"IPv6", alone, "[2001:db8::1]:1234", nil, "2001:db8::1"},
		{"a zone", alone, "[fe80::1%eth0]:80", nil, "fe80::1"},
		{"mapped", alone, "[::ffff:192.0.2.1]:80", nil, "192.0.2.1"},
		{"Unix socket", alone, "@", []string{"192.0.2.9"}, none},
		{"empty", alone, "", nil, none},
		{"nobody is trusted", alone, "10.0.0.1:1", []string{"192.0.2.9"}, "10.0.0.1"},

		{"the peer is not trusted", proxied, "192.0.2.1:1", []string{"198.51.100.7"}, "192.0.2.1"},
		{"one proxy", proxied, "10.0.0.1:1", []string{"192.0.2.9"}, "192.0.2.9"},
		{"a mapped proxy", proxied, "[::ffff:10.0.0.1]:1", []string{"192.0.2.9"}, "192.0.2.9"},
		{"a mapped network", proxied, "172.16.3.4:1", []string{"192.0.2.9"}, "192.0.2.9"},
		{"what the client claims", proxied, "10.0.0.1:1", []string{"198.51.100.7, 192.0.2.9"}, "192.0.2.9"},
		{"a claim of a proxy", proxied, "10.0.0.1:1", []string{"10.9.9.9, 192.0.2.9"}, "192.0.2.9"},
		{"two proxies", proxied, "10.0.0.1:1", []string{"198.51.100.7,192.0.2.9 ,\t10.0.0.2"}, "192.0.2.9"},
		{"two fields", proxied, "10.0.0.1:1", []string{"198.51.100.7", "192.0.2.9", "10.0.0.2"}, "192.0.2.9"},
		{"all are proxies", proxied, "10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"with a port", proxied, "10.0.0.1:1", []string{"192.0.2.9:4711"}, "192.0.2.9"},
		{"with brackets and a port", proxied, "10.0.0.1:1", []string{"[2001:db8::9]:4711"}, "2001:db8::9"},
		{"no field", proxied, "10.0.0.1:1", nil, "10.0.0.1"},
		{"an empty field", proxied, "10.0.0.1:1", []string{""}, "10.0.0.1"},
		{"garbage from the proxy", proxied, "10.0.0.1:1", []string{"192.0.2.9, unknown"}, "10.0.0.1"},
		{"garbage from the client", proxied, "10.0.0.1:1", []string{"<script>, 192.0.2.9"}, "192.0.2.9"},
		{"garbage between", proxied, "10.0.0.1:1", []string{"192.0.2.9, _hidden, 10.0.0.2"}, "10.0.0.2"},
		{"an empty entry", proxied, "10.0.0.1:1", []string{"192.0.2.9,,10.0.0.2"}, "10.0.0.2"},
		{"a zone from elsewhere", proxied, "10.0.0.1:1", []string{"fe80::1%eth0"}, "10.0.0.1"},
		{"leading zeros", proxied, "10.0.0.1:1", []string{"192.0.02.9"}, "10.0.0.1"},

		{"a Unix socket that is not trusted", proxied, "@", []string{"192.0.2.9"}, none},
		{"trusted Unix socket", unix, "@", []string{"198.51.100.7, 192.0.2.9"}, "192.0.2.9"},
		{"trusted Unix socket behind a proxy", unix, "@", []string{"198.51.100.7, 192.0.2.9, 10.0.0.2"}, "192.0.2.9"},
		{"trusted Unix socket, no field", unix, "@", nil, none},

		{"one hop", one, "203.0.113.1:1", []string{"198.51.100.7, 192.0.2.9"}, "192.0.2.9"},
		{"one hop, no field", one, "203.0.113.1:1", nil, "203.0.113.1"},
		{"one hop by a Unix socket", one, "@", []string{"198.51.100.7, 192.0.2.9"}, "192.0.2.9"},
		{"two hops", two, "203.0.113.1:1", []string{"198.51.100.7, 192.0.2.9, 203.0.113.2"}, "192.0.2.9"},
		{"two hops, two fields", two, "203.0.113.1:1", []string{"198.51.100.7, 192.0.2.9", "203.0.113.2"}, "192.0.2.9"},
		{"two hops, one entry", two, "203.0.113.1:1", []string{"192.0.2.9"}, "192.0.2.9"},
		{"two hops, garbage", two, "203.0.113.1:1", []string{"192.0.2.9, unknown"}, "203.0.113.1"},
		{"two hops, garbage in the second place", two, "203.0.113.1:1", []string{"unknown, 203.0.113.2"}, "203.0.113.2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := resolver(t, c.options)
			got, ok := r.Client(c.remote, c.forwarded)
			if got.String() != c.want || ok != got.IsValid() {
				t.Errorf("Client(%s, %q) = %v, %t, want %s", c.remote, c.forwarded, got, ok, c.want)
			}
		})
	}
}

func TestClientForwarded(t *testing.T) {
	r := resolver(t, clientip.Options{TrustedProxies: networks("10.0.0.0/8")})
	const proxy = "10.0.0.1:1"
	for _, c := range []struct {
		forwarded, want string
	}{
		{`for=192.0.2.9`, "192.0.2.9"},
		{`For="192.0.2.9:4711"`, "192.0.2.9"},
		{`FOR="[2001:db8::9]:4711"`, "2001:db8::9"},
		{`for="[2001:db8::9]"`, "2001:db8::9"},
		{`for="192.0.2.9:_port"`, "192.0.2.9"},
		{`by=203.0.113.43;for=192.0.2.9;proto=http;host=example.com`, "192.0.2.9"},
		{`proto=http ; for=192.0.2.9 ;`, "192.0.2.9"},
		{`for=198.51.100.7, for=192.0.2.9`, "192.0.2.9"},
		{`for=198.51.100.7,for=192.0.2.9 ,` + "\t" + `for=10.0.0.2`, "192.0.2.9"},
		{`for=10.0.0.3, for=10.0.0.2`, "10.0.0.3"},
		{`for=192.0.2.9;host="a,b;for=198.51.100.7"`, "192.0.2.9"},
		{`for=192.0.2.9;host="a\",for=198.51.100.7\\"`, "192.0.2.9"},
		// A client cannot swallow, or take part in, what comes after it.
		{`for=", for=192.0.2.9`, "192.0.2.9"},
		{`for="\, for=192.0.2.9`, "192.0.2.9"},
		{`for="198.51.100.7, for="192.0.2.9"`, "192.0.2.9"},
		{`host=", for=192.0.2.9;host="x"`, "192.0.2.9"},
		{`for=198.51.100.7;, for=192.0.2.9`, "192.0.2.9"},
		// What ends what is known.
		{``, "10.0.0.1"},
		{`for=192.0.2.9, `, "10.0.0.1"},
		{`for=192.0.2.9, proto=http`, "10.0.0.1"},
		{`for=192.0.2.9, for=unknown`, "10.0.0.1"},
		{`for=192.0.2.9, for=_hidden, for=10.0.0.2`, "10.0.0.2"},
		{`for=192.0.2.9;for=192.0.2.9`, "10.0.0.1"},
		{`for=192.0.2.9;bare`, "10.0.0.1"},
		{`for="192.0.2.9`, "10.0.0.1"},
		{`for="`, "10.0.0.1"},
		{`for="\192.0.2.9"`, "10.0.0.1"},
		{`for="[fe80::1%eth0]"`, "10.0.0.1"},
		{`for="192.0.2.9:_"`, "10.0.0.1"},
		{`for="192.0.2.9:_$"`, "10.0.0.1"},
		{`192.0.2.9`, "10.0.0.1"},
	} {
		if got, ok := r.ClientForwarded(proxy, []string{c.forwarded}); !ok || got.String() != c.want {
			t.Errorf("%s: client %v, %t, want %s", c.forwarded, got, ok, c.want)
		}
	}
	if got, ok := r.ClientForwarded(proxy, []string{`for=198.51.100.7`, `for=192.0.2.9`, `for=10.0.0.2`}); !ok || got.String() != "192.0.2.9" {
		t.Errorf("three fields: client %v, %t", got, ok)
	}
	if got, ok := r.ClientForwarded("192.0.2.1:1", []string{`for=198.51.100.7`}); !ok || got.String() != "192.0.2.1" {
		t.Errorf("a peer that is not trusted: client %v, %t", got, ok)
	}
	hops := resolver(t, clientip.Options{TrustedHops: 2})
	if got, ok := hops.ClientForwarded("192.0.2.1:1", []string{`for=198.51.100.7,for=192.0.2.9,for=192.0.2.2`}); !ok || got.String() != "192.0.2.9" {
		t.Errorf("two hops: client %v, %t", got, ok)
	}
}

func TestTrusts(t *testing.T) {
	var (
		proxied = resolver(t, clientip.Options{TrustedProxies: networks("10.0.0.0/8")})
		hops    = resolver(t, clientip.Options{TrustedHops: 1})
		unix    = resolver(t, clientip.Options{TrustUnixSocket: true})
	)
	for _, c := range []struct {
		name string
		r    *clientip.Resolver
		addr netip.Addr
		want bool
	}{
		{"in a network", proxied, netip.MustParseAddr("10.1.2.3"), true},
		{"mapped", proxied, netip.MustParseAddr("::ffff:10.1.2.3"), true},
		{"in none", proxied, netip.MustParseAddr("192.0.2.1"), false},
		{"without an address", proxied, netip.Addr{}, false},
		{"all", hops, netip.MustParseAddr("192.0.2.1"), true},
		{"all, also without an address", hops, netip.Addr{}, true},
		{"a Unix socket", unix, netip.Addr{}, true},
		{"only the Unix socket", unix, netip.MustParseAddr("192.0.2.1"), false},
	} {
		if got := c.r.Trusts(c.addr); got != c.want {
			t.Errorf("%s: Trusts(%v) = %t", c.name, c.addr, got)
		}
	}
}

func TestOptions(t *testing.T) {
	for want, o := range map[string]clientip.Options{
		"clientip.Prefixes.IPv4 is 33":                             {Prefixes: clientip.Prefixes{IPv4: 33}},
		"clientip.Prefixes.IPv6 is -1":                             {Prefixes: clientip.Prefixes{IPv6: -1}},
		"clientip.Options.TrustedHops is -1: must be from 0 to":    {TrustedHops: -1},
		"clientip.Options.TrustedHops is 101: must be from 0 to":   {TrustedHops: 101},
		"clientip.Options.TrustedHops is 2: must be 0 beside":      {TrustedHops: 2, TrustedProxies: networks("10.0.0.0/8")},
		"clientip.Options.TrustedHops is 1: must be 0 beside":      {TrustedHops: 1, TrustUnixSocket: true},
		"clientip.Options.TrustedProxies[1] is invalid Prefix: mu": {TrustedProxies: append(networks("10.0.0.0/8"), netip.Prefix{})},
		"clientip.Options.TrustedProxies[0] is ::ffff:10.0.0.0/8":  {TrustedProxies: networks("::ffff:10.0.0.0/8")},
	} {
		_, err := clientip.New(o)
		if _, ok := errors.AsType[*clientip.OptionError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("New(%+v): %v, want one about %s", o, err, want)
		}
	}
	r := resolver(t, clientip.Options{Prefixes: clientip.Prefixes{IPv6: 56}})
	if got := r.Key(netip.MustParseAddr("2001:db8:1:2ff::1")); got != "2001:db8:1:200::/56" || r.Prefixes().IPv6 != 56 {
		t.Errorf("key %q, prefixes %+v", got, r.Prefixes())
	}
}

// FuzzClient looks for a client that can choose who it is: what stands left of an address that is not trusted must not
// matter, and a peer that is not trusted is the client.
func FuzzClient(f *testing.F) {
	for _, seed := range [][2]string{
		{"192.0.2.1:1234", ""},
		{"10.0.0.1:1", "198.51.100.7, 192.0.2.9"},
		{"10.0.0.1:1", "10.0.0.3\n10.0.0.2"},
		{"[::ffff:10.0.0.1]:1", "[2001:db8::9]:4711, 10.0.0.2"},
		{"10.0.0.1:1", `for="`},
		{"10.0.0.1:1", `for="\", for=\`},
		{"10.0.0.1:1", `host="a,b";for="[::1]:_x"`},
		{"@", "192.0.2.9"},
	} {
		f.Add(seed[0], seed[1])
	}
	r := resolver(f, clientip.Options{TrustedProxies: networks("10.0.0.0/8")})
	hops := resolver(f, clientip.Options{TrustedHops: 1})
	f.Fuzz(func(t *testing.T, remote, text string) {
		lines := strings.Split(text, "\n")
		peer, isAddr := clientip.Parse(remote)
		for name, form := range map[string]struct {
			client func(*clientip.Resolver, []string) (netip.Addr, bool)
			entry  string
		}{
			"X-Forwarded-For": {
				func(r *clientip.Resolver, l []string) (netip.Addr, bool) { return r.Client(remote, l) }, "192.0.2.99",
			},
			"Forwarded": {
				func(r *clientip.Resolver, l []string) (netip.Addr, bool) { return r.ClientForwarded(remote, l) },
				`for="192.0.2.99";host="a,\"b"`,
			},
		} {
			got, ok := form.client(r, lines)
			if ok != got.IsValid() || got != clientip.Fold(got) {
				t.Errorf("%s: %v, %t", name, got, ok)
			}
			if !r.Trusts(peer) {
				if got != peer || ok != isAddr {
					t.Errorf("%s: the peer %v is not trusted, but the client is %v", name, peer, got)
				}
				continue
			}
			// What a client writes in front does not matter once an address that is not trusted has been read.
			again, _ := form.client(r, append([]string{"198.51.100.7", "for=198.51.100.7"}, lines...))
			if !r.Trusts(got) && again != got {
				t.Errorf("%s: the client is %v, and with another entry in front %v", name, got, again)
			}
			// What the proxy appends to the line of the client counts, whatever that is.
			for _, all := range [][]string{
				{text + ", " + form.entry}, slices.Concat(lines, []string{form.entry}),
			} {
				for which, r := range map[string]*clientip.Resolver{"networks": r, "hops": hops} {
					if again, ok := form.client(r, all); !ok || again.String() != "192.0.2.99" {
						t.Errorf("%s, %s: the last of %q is 192.0.2.99, but the client is %v", name, which, all, again)
					}
				}
			}
		}
	})
}
