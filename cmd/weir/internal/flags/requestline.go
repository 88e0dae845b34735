package flags

import (
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/weirhq/weir/policy"
)

// RequestForm says what ParseRequest reads.
const RequestForm = `a method and a path or a URL, such as "GET /login" or "GET https://api.example.com/login"`

// ParseRequest sets the method, the host, the path and the query of r. The method is GET if it is left out, and otherwise as it
// is written: rules are asked about both "post" and "POST" for the first. The host stays as it is if the line has none.
// [ParseTarget] reads the target. An error says what must be there, and is a [*flags.Error].
func ParseRequest(line string, r *policy.Request) error {
	method, text, both := strings.Cut(strings.TrimSpace(line), " ")
	if !both {
		method, text = http.MethodGet, method
	}
	text = strings.TrimSpace(text)
	switch {
	case !IsMethod(method):
		return Errorf("%s is not a method: must be %s", Quote(method), RequestForm)
	case text == "" || strings.ContainsAny(text, " \t"):
		return Errorf("must be %s", RequestForm)
	}
	target, ok := ParseTarget(text)
	if !ok {
		return Errorf("%s is not the target of a request: must be %s", Quote(text), TargetForm)
	}
	target.Set(r)
	r.Method = method
	if target.Host != "" {
		r.Host = target.Host
	}
	return nil
}

// nameBytes are the bytes of methods and of names of header fields (RFC 9110, 5.6.2).
const nameBytes = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// IsMethod reports whether m can be a method.
func IsMethod(m string) bool { return m != "" && strings.Trim(m, nameBytes) == "" }

// IsHost reports whether every server reads a host alike: it has the bytes that HTTP/1.1 allows, and no percent sign, as a
// zone of an address and an encoded host have. Go's client sends other hosts in Punycode, or none in their place, and cuts a
// zone off; its server does not check those of HTTP/2. Services that make a URL of an encoded host decode it, and take
// letters beyond ASCII for others. Nor has it a comma: services that take the host from X-Forwarded-Host cut it there. The host
// of a request that has none is "".
func IsHost(h string) bool { return httpguts.ValidHostHeader(h) && !strings.ContainsAny(h, "%,") }

// AddHeader adds a field to the header of r, and sets the host if it is that.
func AddHeader(r *policy.Request, name, value string) error {
	if name == "" || strings.Trim(name, nameBytes) != "" {
		return Errorf("%s is not the name of a header field", Quote(name))
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
		return netip.Addr{}, Errorf("%s is not an address such as 192.0.2.1 or 2001:db8::1", Quote(s))
	}
	return address.WithZone("").Unmap(), nil
}

// TargetForm says what ParseTarget reads.
const TargetForm = "a path that begins with a slash, a URL or *, percent-encoded and without a fragment " +
	"or a zero byte, such as /search?q=weir"

// Target is what stands behind the method in the request line of HTTP.
type Target struct {
	// Host is that of a URL, "" for a path.
	Host string
	// Path and RawPath are those of [policy.Request].
	Path, RawPath string
	// Query is what follows the question mark, and HasQuery reports whether there is one.
	Query    string
	HasQuery bool
}

// ParseTarget reads the target of a request: a path with or without a query, "*", or a URL, of which the host and the path are
// taken. A path that begins with two slashes is a path. It is not ok for anything else: an empty text, a path without the slash
// at its beginning, broken percent-encoding, a control character. A fragment is in no target that a client may send: some servers
// cut it off and others take it for a part of the path, so a target with one is not ok either. Nor is one whose path has a zero
// byte, %00, where some services end it.
func ParseTarget(text string) (t Target, ok bool) {
	if text == "*" { // of OPTIONS
		return Target{Path: text}, true
	}
	u, err := url.ParseRequestURI(text)
	if err != nil || u.Opaque != "" || strings.IndexByte(text, '#') >= 0 || strings.IndexByte(u.Path, 0) >= 0 ||
		text[0] != '/' && u.Host == "" {
		return Target{}, false
	}
	t = Target{u.Host, u.Path, u.RawPath, u.RawQuery, u.ForceQuery || u.RawQuery != ""}
	if t.Path == "" {
		t.Path = "/"
	}
	return t, true
}

// Set sets the path and the query of r.
func (t *Target) Set(r *policy.Request) {
	r.Path, r.RawPath, r.Query = t.Path, t.RawPath, t.Query
}
