//nolint:ireturn // texts are of several types, which callers need not know
package policy

import (
	"fmt"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/internal/keytext"
)

// native is a Text of this package. Its AppendTo never fails, and what it appends is bounded.
type native struct {
	spelling string
	appendTo func(b []byte, r *Request) []byte
	// put makes a request one of which the text is taken from a word. It is nil for a constant, and for what is taken from the
	// address of the client.
	put    func(r *Request, word string)
	client bool // the text is taken from the address of the client
}

func (t *native) AppendTo(b []byte, r *Request) ([]byte, error) { return t.appendTo(b, r), nil }
func (t *native) String() string                                { return t.spelling }

// appendText appends what t is of r, or what stands for it if it is long and t has not bounded it itself.
func appendText(b []byte, t Text, r *Request) ([]byte, error) {
	start := len(b)
	b, err := t.AppendTo(b, r)
	if err != nil {
		return b, err
	}
	switch t.(type) {
	case *native, *joined, *concatenated:
		return b, nil
	default:
		return keytext.Bound(b, start), nil
	}
}

// simple returns the text of a part that a request has as a string, and that put puts there.
func simple(spelling string, of func(r *Request) string, put func(r *Request, word string)) Text {
	return &native{
		spelling: spelling, put: put,
		appendTo: func(b []byte, r *Request) []byte { return keytext.AppendPart(b, of(r)) },
	}
}

// ofClient returns a text that is taken from the address of the client, "-" if that is not known.
func ofClient(spelling string, of func(b []byte, client netip.Addr) []byte) *native {
	return &native{spelling: spelling, client: true, appendTo: func(b []byte, r *Request) []byte {
		if !r.Client.IsValid() {
			return append(b, keytext.Missing...)
		}
		return of(b, r.Client)
	}}
}

var (
	clientIPText = ofClient("client.ip", func(b []byte, client netip.Addr) []byte { return clientip.Fold(client).AppendTo(b) })
	clientText   = ofClient("client", func(b []byte, client netip.Addr) []byte {
		if a := clientip.Fold(client); a.Is4() {
			return a.AppendTo(b)
		}
		return clientip.Prefixes{}.Mask(client).AppendTo(b)
	})
	methodText = simple("request.method",
		(*Request).CleanMethod, func(r *Request, word string) { r.Method = word })
	hostText  = simple("request.host", (*Request).CleanHost, func(r *Request, word string) { r.Host = word })
	pathText  = simple("request.path", (*Request).CleanPath, func(r *Request, word string) { r.Path = word })
	routeText = simple("request.route",
		func(r *Request) string { return r.Route }, func(r *Request, word string) { r.Route = word })
	protocolText = simple("request.protocol",
		func(r *Request) string { return r.Protocol }, func(r *Request, word string) { r.Protocol = word })
)

// Client is the client of a request: its IPv4 address, or the /64 network of its IPv6 address, such as "2001:db8::/64", as a
// client can use any address of that; "-" if it is not known. A mapped IPv4 address is the IPv4 address, and a zone is left out.
func Client() Text { return clientText }

// ClientIP is the address of the client, "-" if it is not known. A mapped IPv4 address is the IPv4 address, and a zone is left
// out. With IPv6 a client has as many addresses as it likes: see [Client].
func ClientIP() Text { return clientIPText }

// The sizes of networks that are usually assigned as a whole.
const usualNet4, usualNet6 = 24, 64

// ClientNet is the network of the client, such as "192.0.2.0/24", and "-" if the client is not known. The numbers are the bits of
// an IPv4 network, from 1 to 32, and of an IPv6 network, from 1 to 128. Usual are 24 and 64.
func ClientNet(v4, v6 int) (Text, error) {
	if v4 < 1 || v4 > 32 {
		return nil, &weir.OptionError{Option: "ClientNet: bits of IPv4", Value: strconv.Itoa(v4), Accepted: "from 1 to 32"}
	}
	if v6 < 1 || v6 > 128 {
		return nil, &weir.OptionError{Option: "ClientNet: bits of IPv6", Value: strconv.Itoa(v6), Accepted: "from 1 to 128"}
	}
	spelling := "client.net"
	if v4 != usualNet4 || v6 != usualNet6 {
		spelling = fmt.Sprintf("client.net(%d, %d)", v4, v6)
	}
	net := clientip.Prefixes{IPv4: v4, IPv6: v6}
	return ofClient(spelling, func(b []byte, client netip.Addr) []byte { return net.Mask(client).AppendTo(b) }), nil
}

// HeaderText is the first value of a field of the header, "" if there is none. Case of the name does not matter. The field
// Host is [HostText], as servers take it out of the header. A long value is bounded: see [JoinText].
func HeaderText(name string) Text {
	name = textproto.CanonicalMIMEHeaderKey(name)
	if name == "Host" {
		return hostText
	}
	return simple("request.headers["+strconv.Quote(strings.ToLower(name))+"]", func(r *Request) string {
		value, _ := r.HeaderValue(name)
		return value
	}, func(r *Request, word string) { r.Header = oneField{name, word} })
}

// MethodText is the method of the request. A long one is bounded: see [JoinText].
func MethodText() Text { return methodText }

// HostText is the host of the request, in lower case and without port, brackets and a dot at the end. A long one is bounded: see
// [JoinText].
func HostText() Text { return hostText }

// PathText is the path of the request. Empty and dot segments are resolved, so that the many ways to spell one path are one text;
// a slash at the end counts. A long one is bounded: see [JoinText].
func PathText() Text { return pathText }

// RouteText is the name of the route. A long one is bounded: see [JoinText].
func RouteText() Text { return routeText }

// ProtocolText is what the request came by. A long name is bounded: see [JoinText].
func ProtocolText() Text { return protocolText }

// PathValueText is the part of the path at a wildcard of the pattern of the current rule, "" if there is none of this name. A
// long one is bounded: see [JoinText].
func PathValueText(name string) Text {
	return simple("path["+strconv.Quote(name)+"]", func(r *Request) string { return r.PathValue(name) },
		func(r *Request, word string) { r.putPathValue(name, word) })
}

// AttributeText is an attribute of the request, "" if there is none of this name. A long one is bounded: see [JoinText].
func AttributeText(name string) Text {
	return simple("attributes["+strconv.Quote(name)+"]", func(r *Request) string { return r.Attributes[name] },
		func(r *Request, word string) { r.Attributes = map[string]string{name: word} })
}

// ConstantText is s. A long one is bounded: see [JoinText].
func ConstantText(s string) Text {
	part := keytext.AppendPart(nil, s)
	return &native{spelling: strconv.Quote(s), appendTo: func(b []byte, _ *Request) []byte { return append(b, part...) }}
}

// FixedNumber is n.
func FixedNumber(n int64) Number { return fixedNumber(n) }

type fixedNumber int64

func (n fixedNumber) Int(*Request) (int64, error) { return int64(n), nil }
func (n fixedNumber) String() string              { return strconv.FormatInt(int64(n), 10) }

// joined is JoinText.
type joined struct{ parts []Text }

// JoinText is the parts with a comma between each two of them. A comma or a backslash within one of several parts is escaped by a
// backslash, so that parts that differ never make the same text.
//
// Texts are bounded however long a header is: a part that is longer than 128 bytes is replaced by its first 60 bytes and a
// SHA-256. That is so for each text of this package that is taken from one place of a request, and for parts of other packages
// once they are joined. The texts of this package never fail; JoinText and [ConcatText] do if a part of another package does.
// They allocate nothing if the bytes that they append to have room, except for a part that is long and for a path or host with an
// unusual spelling.
func JoinText(parts ...Text) Text { return &joined{slices.Clone(parts)} }

func (t *joined) AppendTo(b []byte, r *Request) ([]byte, error) {
	for i, p := range t.parts {
		if i > 0 {
			b = append(b, keytext.Separator)
		}
		start := len(b)
		var err error
		if b, err = appendText(b, p, r); err != nil {
			return b, err
		}
		if len(t.parts) > 1 {
			b = keytext.Escape(b, start)
		}
	}
	return b, nil
}

func (t *joined) String() string { return "[" + spell(t.parts, ", ") + "]" }

// concatenated is ConcatText.
type concatenated struct{ parts []Text }

// ConcatText is the parts one after the other, with nothing in between: parts that differ can make the same text. Long parts are
// bounded, and it fails if a part fails: see [JoinText].
func ConcatText(parts ...Text) Text { return &concatenated{slices.Clone(parts)} }

func (t *concatenated) AppendTo(b []byte, r *Request) ([]byte, error) {
	for _, p := range t.parts {
		var err error
		if b, err = appendText(b, p, r); err != nil {
			return b, err
		}
	}
	return b, nil
}

func (t *concatenated) String() string {
	if len(t.parts) == 0 {
		return `""`
	}
	return spell(t.parts, " + ")
}

func spell(parts []Text, between string) string {
	words := make([]string, len(parts))
	for i, p := range parts {
		words[i] = p.String()
	}
	return strings.Join(words, between)
}

// textParts is what a Text is computed from.
type textParts struct {
	clients, values []*native // each once
	all             bool      // it is computed from these alone
}

// parted is a Text that says what it is computed from.
type parted interface {
	Parts() (parts []Text, all bool)
}

// partsOf is what a text is computed from.
func partsOf(t Text) textParts {
	p := textParts{all: true}
	p.add(t)
	return p
}

func (p *textParts) add(t Text) {
	var of []Text
	switch t := t.(type) {
	case *native:
		switch {
		case t.client:
			p.clients = addPart(p.clients, t)
		case t.put != nil:
			p.values = addPart(p.values, t)
		}
		return
	case *joined:
		of = t.parts
	case *concatenated:
		of = t.parts
	case parted:
		parts, all := t.Parts()
		of, p.all = parts, p.all && all
	default:
		p.all = false
	}
	for _, part := range of {
		p.add(part)
	}
}

func addPart(to []*native, t *native) []*native {
	if slices.ContainsFunc(to, func(other *native) bool { return other.spelling == t.spelling }) {
		return to
	}
	return append(to, t)
}

// clientForms are what the parts that are taken from a client are for an address.
func (p *textParts) clientForms(client netip.Addr) []string {
	forms := make([]string, 0, len(p.clients))
	for _, t := range p.clients {
		forms = append(forms, string(t.appendTo(nil, &Request{Client: client})))
	}
	return forms
}

// oneField is a header with one field.
type oneField struct{ name, value string }

// Values returns the value of the field.
func (f oneField) Values(name string) []string {
	if name != f.name {
		return nil
	}
	return []string{f.value}
}

// putPathValue makes r a request whose path has a value for a wildcard.
func (r *Request) putPathValue(name, value string) {
	r.view().BindPathValue(name, value)
	r.Path = r.seen.Path
}

// QueryText is [Request.QueryValue]. A long value is bounded: see [JoinText].
func QueryText(name string) Text {
	put := func(r *Request, word string) { r.Query = url.QueryEscape(name) + "=" + url.QueryEscape(word) }
	return &native{spelling: "queryParam(" + strconv.Quote(name) + ")", put: put, appendTo: func(b []byte, r *Request) []byte {
		start := len(b)
		return keytext.Bound(appendDecoded(b, r.sentQueryValue(name)), start)
	}}
}

// decodesTo reports whether s is an encoded form of want.
func decodesTo(s, want string) bool {
	for s != "" && want != "" {
		c, n, ok := decodeByte(s)
		if !ok || c != want[0] {
			return false
		}
		s, want = s[n:], want[1:]
	}
	return s == "" && want == ""
}

// isDecodable reports whether each percent sign has two hexadecimal digits.
func isDecodable(s string) bool {
	for i := strings.IndexByte(s, '%'); i >= 0; i = strings.IndexByte(s, '%') {
		if _, _, ok := decodeByte(s[i:]); !ok {
			return false
		}
		s = s[i+3:]
	}
	return true
}

// appendDecoded appends what is decodable.
func appendDecoded(b []byte, s string) []byte {
	for s != "" {
		c, n, _ := decodeByte(s)
		b, s = append(b, c), s[n:]
	}
	return b
}

// decodeByte returns the byte that s begins with, and how many bytes of s stand for it.
func decodeByte(s string) (c byte, n int, ok bool) {
	switch s[0] {
	case '+':
		return ' ', 1, true
	case '%':
		if len(s) < 3 {
			return 0, 0, false
		}
		high, ok1 := hexDigit(s[1])
		low, ok2 := hexDigit(s[2])
		return high<<4 | low, 3, ok1 && ok2
	default:
		return s[0], 1, true
	}
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	default:
		return 0, false
	}
}
