package replay

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"net/url"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/offline/accesslog"
	"github.com/weirhq/weir/policy"
)

// fields is what of a request the configurations look at: nothing else is kept.
type fields struct {
	query, header bool
	by            *flags.Key // if it is not nil, this key is all there is of a request
}

// appendRequest appends a request of a log to b, in a form that readRequest reads: its key if that is all, otherwise the
// address of the client, and then each text with its length before it.
func (f fields) appendRequest(b []byte, rec *accesslog.Record) []byte {
	if f.by != nil {
		return f.by.AppendRecord(b, rec)
	}
	switch {
	case rec.Client.Is4():
		address := rec.Client.As4()
		b = append(append(b, 4), address[:]...)
	case rec.Client.IsValid():
		address := rec.Client.As16()
		b = append(append(b, 16), address[:]...)
	default:
		b = append(b, 0)
	}
	b = appendText(b, rec.Method)
	b = appendText(b, rec.Host)
	b = appendPath(b, rec.Path)
	if f.query {
		b = appendText(b, rec.Query)
	}
	if f.header {
		b = appendText(b, rec.Referer)
		b = appendText(b, rec.UserAgent)
	}
	return b
}

func appendText[S string | []byte](b []byte, text S) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// appendPath appends a path without percent-encoding, and as it was sent if that differs. One that cannot be decoded, to which
// servers answer 400, stays as it is.
func appendPath(b, path []byte) []byte {
	if bytes.IndexByte(path, '%') >= 0 {
		if decoded, err := url.PathUnescape(string(path)); err == nil {
			return appendText(appendText(b, decoded), path)
		}
	}
	return appendText(appendText(b, path), "")
}

// readRequest sets r to the request in text, and h to its header.
func (f fields) readRequest(text string, r *policy.Request, h *logged) {
	if f.by != nil {
		r.Named.Key = append(r.Named.Key[:0], text...)
		return
	}
	size := int(text[0])
	switch size {
	case 4:
		r.Client = netip.AddrFrom4([4]byte([]byte(text[1:5])))
	case 16:
		r.Client = netip.AddrFrom16([16]byte([]byte(text[1:17])))
	default:
		r.Client = netip.Addr{}
	}
	text = text[1+size:]
	r.Method, text = readText(text)
	r.Host, text = readText(text)
	r.Path, text = readText(text)
	r.RawPath, text = readText(text)
	if f.query {
		r.Query, text = readText(text)
	}
	if f.header {
		h.referer[0], text = readText(text)
		h.userAgent[0], _ = readText(text)
	}
}

func readText(text string) (value, rest string) {
	length, shift := 0, 0
	for i := 0; ; i++ {
		c := text[i]
		length |= int(c&0x7f) << shift
		if c < 0x80 {
			return text[i+1 : i+1+length], text[i+1+length:]
		}
		shift += 7
	}
}

// logged is the header as far as access logs have it.
type logged struct{ referer, userAgent [1]string }

const (
	referer   = "Referer"
	userAgent = "User-Agent"
)

// Values returns the values of a field: see [policy.Request].Header. What is logged as "-" or not at all was not there.
func (h *logged) Values(name string) []string {
	var values []string
	switch name {
	case referer:
		values = h.referer[:]
	case userAgent:
		values = h.userAgent[:]
	}
	if len(values) > 0 && values[0] == "" {
		return nil
	}
	return values
}

// fieldsOf returns what the configurations look at.
func fieldsOf(configurations ...configuration) fields {
	var f fields
	for _, c := range configurations {
		if c.limit != nil {
			f.by = &c.limit.By
		}
		for _, text := range textsOf(c.set) {
			f.query = f.query || strings.Contains(text, "query") // request.query, queryParam
			f.header = f.header || strings.Contains(text, "headers")
		}
		for _, rule := range c.set.Rules {
			f.header = f.header || len(rule.Match.Headers) > 0
		}
	}
	return f
}
