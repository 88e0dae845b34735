// Package requestline reads requests as people write them: "GET /login", "GET https://api.example.com/login?next=/".
package requestline

import (
	"net/http"
	"net/netip"
	"net/textproto"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/misuse"
	"github.com/weirhq/weir/policy"
)

// Accepted says what Parse reads.
const Accepted = `a method and a path or a URL, such as "GET /login" or "GET https://api.example.com/login"`

// Parse sets the method, the host, the path and the query of r. The method is GET if it is left out; the host stays as it is if
// the line has none. [ParseTarget] reads the target. An error says what must be there, and is a [*misuse.Error].
func Parse(line string, r *policy.Request) error {
	method, text, both := strings.Cut(strings.TrimSpace(line), " ")
	if !both {
		method, text = http.MethodGet, method
	}
	text = strings.TrimSpace(text)
	switch {
	case method == "" || strings.Trim(method, nameBytes) != "":
		return misuse.Errorf("%s is not a method: must be %s", misuse.Quote(method), Accepted)
	case text == "" || strings.ContainsAny(text, " \t"):
		return misuse.Errorf("must be %s", Accepted)
	}
	target, ok := ParseTarget(text)
	if !ok {
		return misuse.Errorf("%s is not the target of a request: must be %s", misuse.Quote(text), AcceptedTarget)
	}
	target.Set(r)
	r.Method = strings.ToUpper(method)
	if target.Host != "" {
		r.Host = target.Host
	}
	return nil
}

// nameBytes are the bytes of methods and of names of header fields (RFC 9110, 5.6.2).
const nameBytes = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// AddHeader adds a field to the header of r, and sets the host if it is that.
func AddHeader(r *policy.Request, name, value string) error {
	if name == "" || strings.Trim(name, nameBytes) != "" {
		return misuse.Errorf("%s is not the name of a header field", misuse.Quote(name))
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	if name == "Host" {
		r.Host = value
		return nil
	}
	h, _ := r.Header.(http.Header)
	if h == nil {
		h = http.Header{}
		r.Header = h
	}
	h[name] = append(h[name], value)
	return nil
}

// ParseClient reads the address of a client.
func ParseClient(s string) (netip.Addr, error) {
	address, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, misuse.Errorf("%s is not an address such as 192.0.2.1 or 2001:db8::1", misuse.Quote(s))
	}
	return address.WithZone("").Unmap(), nil
}
