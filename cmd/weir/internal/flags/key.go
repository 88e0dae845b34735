package flags

import (
	"bytes"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

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

// part is a part of a request.
type part struct {
	word string // of --by
	text policy.Text
	// record appends what an access log has of it, nil if it has nothing.
	record func(b []byte, rec *accesslog.Record) []byte
}

// parts are those that are a word alone. The first is the usual key.
var parts = []part{
	{clientName, policy.Client(), ofClient(func(b []byte, client netip.Addr) []byte {
		if client.Is4() {
			return client.AppendTo(b)
		}
		return clientip.Prefixes{}.Mask(client).AppendTo(b) // their default is that of client
	})},
	{"client.ip", policy.ClientIP(), ofClient(func(b []byte, client netip.Addr) []byte { return client.AppendTo(b) })},
	{"path", policy.PathText(), func(b []byte, rec *accesslog.Record) []byte { return appendPath(b, rec.Path) }},
	{"method", policy.MethodText(), func(b []byte, rec *accesslog.Record) []byte {
		method := rec.Method
		if bytes.ContainsFunc(method, unicode.IsLower) {
			method = bytes.ToUpper(method)
		}
		return keytext.AppendPart(b, method)
	}},
	{"host", policy.HostText(), func(b []byte, rec *accesslog.Record) []byte { return appendHost(b, rec.Host) }},
}

// ofClient appends what is made of the address of a client, or its name where a log has no address.
func ofClient(of func(b []byte, client netip.Addr) []byte) func(b []byte, rec *accesslog.Record) []byte {
	return func(b []byte, rec *accesslog.Record) []byte {
		switch {
		case rec.Client.IsValid():
			return of(b, clientip.Fold(rec.Client))
		case len(rec.ClientName) == 0:
			return append(b, keytext.Missing...)
		}
		return keytext.AppendPart(b, rec.ClientName)
	}
}

// The sizes of networks that are usually assigned as a whole.
const defaultV4Bits, defaultV6Bits = 24, 64

// Client is the key client.
func Client() Key { return Key{parts[:1:1]} }

// ParseKey reads what --by accepts: none, or one or several of these, joined by commas.
//
//   - client: the IPv4 address of the client, or the /64 network of its IPv6 address.
//   - client.ip: the address of the client, of which it has many with IPv6.
//   - client.net, client.net:24/64: the network of the client; the numbers are the bits of an IPv4 and of an IPv6
//     network, 24 and 64 by default.
//   - header:NAME: the first value of a header of the request. Requests without it share a key.
//   - path: the path without the query. Percent-encoding, empty and dot segments are resolved, so that the many ways to
//     spell one path share a key.
//   - method: GET, POST and so on, in upper case.
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
		if slices.ContainsFunc(k.parts, func(other part) bool { return other.word == p.word }) {
			return Key{}, fmt.Errorf("%s stands there twice", p.word)
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
	case word == clientNetName:
		return networkPart(word, defaultV4Bits, defaultV6Bits)
	case name == clientNetName && hasArgument:
		return parseNet(argument)
	case word == noneName:
		return part{}, Errorf("none stands alone")
	}
	if i := slices.IndexFunc(parts, func(p part) bool { return p.word == word }); i >= 0 {
		return parts[i], nil
	}
	return part{}, unknownPart(word)
}

func parseHeader(name string) (part, error) {
	if strings.Trim(name, nameBytes) != "" {
		return part{}, Errorf("%s is not the name of a header", Quote(name))
	}
	canonical := http.CanonicalHeaderKey(name)
	switch canonical {
	case "":
		return part{}, Errorf("header: needs a name, such as header:X-Api-Key")
	case "Host":
		return part{}, Errorf("header:Host is written host")
	}
	p := part{word: "header:" + canonical, text: policy.HeaderText(canonical)}
	switch canonical {
	case "Referer":
		p.record = func(b []byte, rec *accesslog.Record) []byte { return keytext.AppendPart(b, rec.Referer) }
	case "User-Agent":
		p.record = func(b []byte, rec *accesslog.Record) []byte { return keytext.AppendPart(b, rec.UserAgent) }
	}
	return p, nil
}

func parseNet(bits string) (part, error) {
	first, second, ok := strings.Cut(bits, "/")
	v4, err4 := strconv.ParseUint(first, 10, 8)
	v6, err6 := strconv.ParseUint(second, 10, 8)
	if !ok || err4 != nil || err6 != nil || v4 < 1 || v4 > 32 || v6 < 1 || v6 > 128 {
		return part{}, Errorf("client.net:%s: must be the bits of an IPv4 network, 1 to 32, and of an IPv6 network, "+
			"1 to 128, such as client.net:24/64", strings.Trim(Quote(bits), `"`))
	}
	word := clientNetName
	if v4 != defaultV4Bits || v6 != defaultV6Bits {
		word += fmt.Sprintf(":%d/%d", v4, v6)
	}
	return networkPart(word, int(v4), int(v6))
}

// networkPart is the network of a client.
func networkPart(word string, v4, v6 int) (part, error) {
	text, err := policy.ClientNet(v4, v6)
	return part{word, text, ofClient(func(b []byte, client netip.Addr) []byte {
		return clientip.Prefixes{IPv4: v4, IPv6: v6}.Mask(client).AppendTo(b)
	})}, err
}

// addressWords are names of other programs for the address of a client.
var addressWords = []string{"ip", "remote_addr", "remote_ip", "client_ip", "request.ip", "$remote_addr", "$binary_remote_addr"}

func unknownPart(word string) error {
	known := strings.Split(keyNames, ", ")
	text := fmt.Sprintf("%s is none of %s, and several joined by commas", Quote(word), keyNames)
	if meant := expressionMeant(word); meant != "" {
		return Errorf("%s; expressions are for files of --config: did you mean %q?", text, meant)
	}
	switch nearest, ok := Nearest(word, append(known, "header:")); {
	case slices.Contains(addressWords, strings.ToLower(word)):
		text += fmt.Sprintf("; did you mean %q?", "client.ip")
	case ok:
		text += fmt.Sprintf("; did you mean %q?", nearest)
	}
	return Errorf("%s", text)
}

var headersExpression = regexp.MustCompile(`^request\.headers\[["']([^"']+)["']\]$`)

// expressionMeant is the word that means the same as an expression of a configuration file, "" if there is none.
func expressionMeant(text string) string {
	if found := headersExpression.FindStringSubmatch(text); len(found) > 1 && strings.Trim(found[1], nameBytes) == "" {
		return "header:" + http.CanonicalHeaderKey(found[1])
	}
	word, ok := strings.CutPrefix(text, "request.")
	if ok && slices.ContainsFunc(parts, func(p part) bool { return p.word == word }) {
		return word
	}
	return ""
}

// String is what [ParseKey] reads back to the same Key.
func (k Key) String() string {
	if len(k.parts) == 0 {
		return noneName
	}
	words := make([]string, len(k.parts))
	for i, p := range k.parts {
		words[i] = p.word
	}
	return strings.Join(words, ",")
}

// keyFlag is a flag value that stores into p what keys are made of.
func keyFlag(p *Key) *Value {
	v := Of("key", p, Key.String, ParseKey)
	v.words = []string{clientName, "client.ip", clientNetName, "header:", "path", "method", "host", noneName}
	return v
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
func (k Key) Text() policy.Text { //nolint:ireturn // a policy wants the interface
	switch len(k.parts) {
	case 0:
		return policy.ConstantText("")
	case 1:
		return k.parts[0].text
	}
	texts := make([]policy.Text, len(k.parts))
	for i, p := range k.parts {
		texts[i] = p.text
	}
	return policy.JoinText(texts...)
}

// Set is a configuration of one policy of that name, which applies to all requests.
func (l *Limit) Set(name string) *policy.Set {
	return &policy.Set{
		Policies: []policy.Policy{{
			Name: name, Key: l.By.Text(), MaxKeys: l.MaxKeys,
			Limits: []policy.Limit{{Limit: weir.TokenBucket(l.EffectiveRate(), l.EffectiveBurst())}},
		}},
		Rules: []policy.Rule{{Name: name, Limits: []policy.Use{{Policy: name}}}},
	}
}

// AppendRecord appends to b the key of a request in an access log: that which Text had when it was made, as far as the log tells.
// A client that is logged by its name instead of its address is known by the name. It allocates nothing if b has room, unless the
// path is percent-encoded, the method is not in upper case or a part is long. CheckRecords must have returned nil.
func (k Key) AppendRecord(b []byte, rec *accesslog.Record) []byte {
	for i, p := range k.parts {
		if i > 0 {
			b = append(b, keytext.Separator)
		}
		start := len(b)
		b = p.record(b, rec)
		b = k.escape(b, start)
	}
	return b
}

// CheckRecords returns an error if k needs what access logs do not have: a header other than Referer and User-Agent.
func (k Key) CheckRecords() error {
	for _, p := range k.parts {
		if p.record == nil {
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
		if c == ':' || c == '[' || c == '%' || c >= 'A' && c <= 'Z' {
			return keytext.AppendPart(b, keytext.CleanHost(string(logged)))
		}
	}
	if n := len(logged); n > 0 && logged[n-1] == '.' {
		logged = logged[:n-1]
	}
	return keytext.AppendPart(b, logged)
}
