package flags

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/cmd/weir/internal/offline/accesslog"
	"github.com/weirhq/weir/internal/keytext"
	"github.com/weirhq/weir/policy"
)

const (
	// keyNames are the words of --by as help lists them.
	keyNames = "client, client.ip, client.net, header:NAME, path, method, host, none"

	clientName    = "client"
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
	clientName: client, "client.ip": clientIP, clientNetName: clientNet, "path": path, "method": method, "host": host,
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
		return part{}, Errorf("none stands alone")
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
			return part{}, Errorf("%s is not the name of a header", Quote(name))
		}
	}
	canonical := http.CanonicalHeaderKey(name)
	switch canonical {
	case "":
		return part{}, Errorf("header: needs a name, such as header:X-Api-Key")
	case "Host":
		return part{}, Errorf("header:Host is written host")
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
		return part{}, Errorf("client.net:%s: must be the bits of an IPv4 network, 1 to 32, and of an IPv6 network, "+
			"1 to 128, such as client.net:24/64", strings.Trim(Quote(bits), `"`))
	}
	return part{attribute: clientNet, v4: int(v4), v6: int(v6)}, nil
}

func unknownPart(word string) error {
	known := strings.Split(keyNames, ", ")
	text := fmt.Sprintf("%s is none of %s, and several joined by commas", Quote(word), keyNames)
	if nearest, ok := Nearest(word, append(known, "header:")); ok {
		text += fmt.Sprintf("; did you mean %q?", nearest)
	}
	return Errorf("%s", text)
}

func (p part) String() string {
	switch p.attribute {
	case client:
		return clientName
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

// keyFlag is a flag value that stores into p what keys are made of.
func keyFlag(p *Key) *Value {
	v := Of("key", p, Key.String, ParseKey)
	v.words = []string{clientName, "client.ip", clientNetName, "header:", "path", "method", "host", noneName}
	return v
}

// appendClient appends a part that is made of the address of a client, or of its name where a log has no address.
func (p part) appendClient(b []byte, address netip.Addr, name []byte) []byte {
	if !address.IsValid() {
		if len(name) == 0 {
			return append(b, keytext.Missing...)
		}
		return keytext.AppendPart(b, name)
	}
	folded := clientip.Fold(address)
	if p.attribute == clientIP || p.attribute == client && folded.Is4() {
		return folded.AppendTo(b)
	}
	return clientip.Prefixes{IPv4: p.v4, IPv6: p.v6}.Mask(folded).AppendTo(b) // their default is that of client
}

// escape escapes the last part of b, which starts at start, if k has several.
func (k Key) escape(b []byte, start int) []byte {
	if len(k.parts) == 1 {
		return b
	}
	return keytext.Escape(b, start)
}

// Text is the key as a policy has it. The parts of a key are joined by commas; a comma or a backslash within one of several parts
// is escaped by a backslash, so that different parts never make the same key. Of a part longer than 128 bytes the first 60 and a
// SHA-256 hash stand for it: keys are bounded however long a header is. A zero address is "-".
func (k Key) Text() (policy.Text, error) { //nolint:ireturn // a policy wants the interface
	texts := make([]policy.Text, 0, len(k.parts))
	for _, p := range k.parts {
		text, err := p.text()
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	switch len(texts) {
	case 0:
		return policy.ConstantText(""), nil
	case 1:
		return texts[0], nil
	default:
		return policy.JoinText(texts...), nil
	}
}

func (p part) text() (policy.Text, error) { //nolint:ireturn // as Text
	switch p.attribute {
	case client:
		return policy.Client(), nil
	case clientIP:
		return policy.ClientIP(), nil
	case clientNet:
		return policy.ClientNet(p.v4, p.v6)
	case header:
		return policy.HeaderText(p.header), nil
	case path:
		return policy.PathText(), nil
	case method:
		return policy.MethodText(), nil
	default:
		return policy.HostText(), nil
	}
}

// Set is a configuration of one policy of that name, which holds for all requests.
func (l *Limit) Set(name string) (*policy.Set, error) {
	key, err := l.By.Text()
	if err != nil {
		return nil, err
	}
	return &policy.Set{
		Policies: []policy.Policy{{
			Name: name, Key: key, MaxKeys: l.MaxKeys,
			Limits: []policy.Limit{{Limit: weir.TokenBucket(l.EffectiveRate(), l.EffectiveBurst())}},
		}},
		Rules: []policy.Rule{{Name: name, Limits: []policy.Use{{Policy: name}}}},
	}, nil
}

// AppendRecord appends to b the key of a request in an access log: that which Text had when it was made, as far as the log tells.
// A client that is logged by its name instead of its address is known by the name. It allocates nothing if b has room, unless the
// path is percent-encoded or a part is long.
func (k Key) AppendRecord(b []byte, rec *accesslog.Record) []byte {
	for i, p := range k.parts {
		if i > 0 {
			b = append(b, keytext.Separator)
		}
		start := len(b)
		switch p.attribute {
		case client, clientIP, clientNet:
			b = p.appendClient(b, rec.Client, rec.ClientName)
		case path:
			b = appendPath(b, rec.Path)
		case method:
			b = keytext.AppendPart(b, rec.Method)
		case host:
			b = appendHost(b, rec.Host)
		case header:
			if p.header == "Referer" {
				b = keytext.AppendPart(b, rec.Referer)
			} else {
				b = keytext.AppendPart(b, rec.UserAgent)
			}
		}
		b = k.escape(b, start)
	}
	return b
}

// CheckRecords returns an error if k needs what access logs do not have: a header other than Referer and User-Agent.
func (k Key) CheckRecords() error {
	for _, p := range k.parts {
		if p.attribute == header && p.header != "Referer" && p.header != "User-Agent" {
			return BadValue("by", k.String(), "an access log has no header but header:Referer and header:User-Agent")
		}
	}
	return nil
}

func appendPath(b, logged []byte) []byte {
	if !slices.Contains(logged, '%') && keytext.IsCleanPath(logged) {
		return keytext.AppendPart(b, logged)
	}
	decoded, err := url.PathUnescape(string(logged))
	if err != nil { // net/http refuses such a path with 400; the log has it nevertheless
		decoded = string(logged)
	}
	return keytext.AppendPart(b, keytext.CleanPath(decoded))
}

func appendHost(b, logged []byte) []byte {
	for _, c := range logged {
		if c == ':' || c == '[' || c >= 'A' && c <= 'Z' {
			return keytext.AppendPart(b, keytext.CleanHost(string(logged)))
		}
	}
	if n := len(logged); n > 0 && logged[n-1] == '.' {
		logged = logged[:n-1]
	}
	return keytext.AppendPart(b, logged)
}
