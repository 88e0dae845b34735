package limitflags

import (
	"net/url"
	"slices"

	"github.com/weirhq/weir/cmd/weir/internal/accesslog"
	"github.com/weirhq/weir/cmd/weir/internal/misuse"
	"github.com/weirhq/weir/internal/keytext"
)

// FromRecord returns the key of a request in an access log: the one that FromRequest answered when it was made, as far
// as the log tells. A client that is logged by its name instead of its address is known by the name.
func (k Key) FromRecord(rec *accesslog.Record) string { return string(k.AppendRecord(nil, rec)) }

// AppendRecord appends to b what FromRecord answers. It allocates nothing if b has room, unless the path is percent-encoded
// or a part is long.
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
			return misuse.Flag("by", k.String(), "an access log has no header but header:Referer and header:User-Agent")
		}
	}
	return nil
}

func appendPath(b, logged []byte) []byte {
	if !slices.Contains(logged, '%') && keytext.IsCleanPath(logged) {
		return keytext.AppendPart(b, logged)
	}
	decoded, err := url.PathUnescape(string(logged))
	if err != nil { // net/http answers 400 to such a path; the log has it nevertheless
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
