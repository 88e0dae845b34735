package limitflags

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/misuse"
)

const (
	// keyNames are the words of --by as help lists them.
	keyNames = "client, client.ip, client.net, header:NAME, path, method, host, none"

	clientNetName = "client.net"
	noneName      = "none"
)

// Key says which parts of a request make up its key. The zero Key is none: all requests share one key.
type Key struct{ parts []part }

type part struct {
	attribute attribute
	header    string // canonical name
	v4, v6    int    // bits of a client.net
}

type attribute uint8

const (
	client attribute = iota
	clientIP
	clientNet
	header
	path
	method
	host
)

var attributes = map[string]attribute{
	"client": client, "client.ip": clientIP, clientNetName: clientNet, "path": path, "method": method, "host": host,
}

// The sizes of networks that are usually assigned as a whole.
const defaultV4Bits, defaultV6Bits = 24, 64

// Client is the key client.
func Client() Key { return Key{[]part{{attribute: client}}} }

// ParseKey reads what --by accepts: none, or one or several of these, joined by commas.
//
//   - client: the IPv4 address of the client, or the /64 network of its IPv6 address.
//   - client.ip: the address of the client, of which it has many with IPv6.
//   - client.net, client.net:24/64: the network of the client; the numbers are the bits of an IPv4 and of an IPv6
//     network, 24 and 64 by default.
//   - header:NAME: the first value of a header of the request. Requests without it share a key.
//   - path: the path without the query. Percent-encoding, empty and dot segments are resolved, so that the many ways to
//     spell one path share a key.
//   - method: GET, POST and so on.
//   - host: the host the request is made to, in lower case and without port.
func ParseKey(s string) (Key, error) {
	if s == noneName {
		return Key{}, nil
	}
	var k Key
	for word := range strings.SplitSeq(s, ",") {
		p, err := parsePart(strings.TrimSpace(word))
		if err != nil {
			return Key{}, err
		}
		if slices.Contains(k.parts, p) {
			return Key{}, fmt.Errorf("%s stands there twice", p)
		}
		k.parts = append(k.parts, p)
	}
	return k, nil
}

func parsePart(word string) (part, error) {
	name, argument, hasArgument := strings.Cut(word, ":")
	switch {
	case name == "header":
		return parseHeader(argument)
	case name == clientNetName && hasArgument:
		return parseNet(argument)
	case word == noneName:
		return part{}, misuse.Errorf("none stands alone")
	}
	a, ok := attributes[word]
	if !ok {
		return part{}, unknownPart(word)
	}
	p := part{attribute: a}
	if a == clientNet {
		p.v4, p.v6 = defaultV4Bits, defaultV6Bits
	}
	return p, nil
}

func parseHeader(name string) (part, error) {
	for i := range len(name) {
		if c := name[i]; !isToken(c) {
			return part{}, misuse.Errorf("%s is not the name of a header", misuse.Quote(name))
		}
	}
	canonical := http.CanonicalHeaderKey(name)
	switch canonical {
	case "":
		return part{}, misuse.Errorf("header: needs a name, such as header:X-Api-Key")
	case "Host":
		return part{}, misuse.Errorf("header:Host is written host")
	}
	return part{attribute: header, header: canonical}, nil
}

// isToken reports whether c may stand in the name of a header (RFC 9110, 5.6.2).
func isToken(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

func parseNet(bits string) (part, error) {
	first, second, ok := strings.Cut(bits, "/")
	v4, err4 := strconv.ParseUint(first, 10, 8)
	v6, err6 := strconv.ParseUint(second, 10, 8)
	if !ok || err4 != nil || err6 != nil || v4 < 1 || v4 > 32 || v6 < 1 || v6 > 128 {
		return part{}, misuse.Errorf("client.net:%s: must be the bits of an IPv4 network, 1 to 32, and of an IPv6 network, "+
			"1 to 128, such as client.net:24/64", strings.Trim(misuse.Quote(bits), `"`))
	}
	return part{attribute: clientNet, v4: int(v4), v6: int(v6)}, nil
}

func unknownPart(word string) error {
	known := strings.Split(keyNames, ", ")
	text := fmt.Sprintf("%s is none of %s, and several joined by commas", misuse.Quote(word), keyNames)
	if nearest, ok := misuse.Nearest(word, append(known, "header:")); ok {
		text += fmt.Sprintf("; did you mean %q?", nearest)
	}
	return misuse.Errorf("%s", text)
}

func (p part) String() string {
	switch p.attribute {
	case client:
		return "client"
	case clientIP:
		return "client.ip"
	case clientNet:
		if p.v4 == defaultV4Bits && p.v6 == defaultV6Bits {
			return clientNetName
		}
		return fmt.Sprintf("client.net:%d/%d", p.v4, p.v6)
	case header:
		return "header:" + p.header
	case path:
		return "path"
	case method:
		return "method"
	default:
		return "host"
	}
}

// String is what [ParseKey] reads back to the same Key.
func (k Key) String() string {
	if len(k.parts) == 0 {
		return noneName
	}
	words := make([]string, len(k.parts))
	for i, p := range k.parts {
		words[i] = p.String()
	}
	return strings.Join(words, ",")
}

// keyValue is a flag value that holds a Key.
type keyValue struct{ key *Key }

func (v keyValue) String() string {
	if v.key == nil {
		return ""
	}
	return v.key.String()
}

func (v keyValue) Set(s string) error {
	parsed, err := ParseKey(s)
	if err == nil {
		*v.key = parsed
	}
	return err
}

func (keyValue) Type() string { return "key" }

// Words are all values but combinations, for shells to complete.
func (keyValue) Words() []string {
	return []string{"client", "client.ip", clientNetName, "header:", "path", "method", "host", noneName}
}
