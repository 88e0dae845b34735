package clientip_test

import (
	"fmt"
	"net/netip"

	"github.com/weirhq/weir/clientip"
)

// A peer has many names, and is one client.
func ExampleParse() {
	for _, endpoint := range []string{"192.0.2.1:4711", "[::ffff:192.0.2.1]:80", "192.0.2.1", "localhost:80"} {
		fmt.Println(clientip.Parse(endpoint))
	}
	// Output:
	// 192.0.2.1 true
	// 192.0.2.1 true
	// 192.0.2.1 true
	// invalid IP false
}

func ExamplePrefixes_Key() {
	p := clientip.Prefixes{IPv4: 24, IPv6: 56}
	fmt.Println(p.Key(netip.MustParseAddr("192.0.2.77")))
	fmt.Println(p.Key(netip.MustParseAddr("2001:db8:1:2ff::1")))
	// Output:
	// 192.0.2.0/24
	// 2001:db8:1:200::/56
}

// The server stands behind load balancers in 10.0.0.0/8. The client wrote an address of its own into the field, which
// is not believed.
func ExampleResolver_Client() {
	r, err := clientip.New(clientip.Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if err != nil {
		panic(err)
	}
	client, ok := r.Client("10.0.0.1:4711", []string{"198.51.100.7, 2001:db8:1:2::9, 10.0.0.2"})
	fmt.Println(client, ok, r.Key(client))
	// Output: 2001:db8:1:2::9 true 2001:db8:1:2::/64
}

// The addresses of the two proxies in front of the server are not known, but every request comes through them.
func ExampleResolver_ClientForwarded() {
	r, err := clientip.New(clientip.Options{TrustedHops: 2})
	if err != nil {
		panic(err)
	}
	fmt.Println(r.ClientForwarded("203.0.113.1:4711", []string{`for=198.51.100.7, for="[2001:db8::9]:80", for=203.0.113.2`}))
	// Output: 2001:db8::9 true
}
