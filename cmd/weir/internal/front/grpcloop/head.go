package grpcloop

import (
	"bytes"
	"context"
	"encoding/base64"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// head is what the header of a call says.
type head struct {
	method  int           // its number, none if it is not one of the loop
	timeout time.Duration // none if there is no deadline
	length  int           // of all DATA, none if it is not said
	subtype string        // of the content type
	size    int           // of what is kept of it for as long as the call goes on
	refused *refusal      // the call is not made
}

// none is the number of a method that the loop does not know, and the timeout and the length of a call that has none.
const none = -1

// fits reports whether a call can have so many bytes of DATA in all.
func (h *head) fits(n int) bool { return h.length == none || h.length == n }

// refusal is the answer to a call by its header alone.
type refusal struct {
	reset http2.ErrCode // unless it is 0, there is no answer
	http  int
	err   error
}

// blocks decodes header blocks.
type blocks struct {
	calls   Calls
	decoder *hpack.Decoder
	fields  []hpack.HeaderField // of the block that was decoded last, unless it was known
	size    int                 // of the fields, as HTTP/2 counts it

	// Clients send the same block again and again. One that has changed no table means the same until another one does.
	known     []byte
	knownHead head
	tableSize uint64 // what the client said last
}

// usualTable is how long a table of HPACK is by default, and maxTable how long that of a decoder may be.
const (
	usualTable = 4096
	maxTable   = usualTable
)

// maxKnown is how long a block may be that is kept.
const maxKnown = 1 << 10

func newBlocks(calls Calls) *blocks {
	d := &blocks{calls: calls, tableSize: maxTable}
	d.decoder = hpack.NewDecoder(maxTable, func(f hpack.HeaderField) {
		if d.size += int(f.Size()); d.size <= maxHeader {
			d.fields = append(d.fields, f)
		}
	})
	d.decoder.SetMaxStringLength(maxHeader)
	return d
}

// read decodes a block. Its fields are needed for calls that the loop does not serve. It is false if the block cannot be decoded.
func (d *blocks) read(block []byte) (head, bool) {
	if len(d.known) > 0 && bytes.Equal(block, d.known) {
		return d.knownHead, true
	}
	if !d.decode(block) {
		return head{}, false
	}
	h := d.head()
	switch {
	case d.changesTable(block):
		d.known = d.known[:0]
	case h.method != none && h.refused == nil && len(block) <= maxKnown:
		d.known, d.knownHead = append(d.known[:0], block...), h
	}
	return h, true
}

// decode decodes a block into fields.
func (d *blocks) decode(block []byte) bool {
	d.forget()
	if _, err := d.decoder.Write(block); err != nil || d.decoder.Close() != nil {
		return false
	}
	// The decoder keeps what it was given last, with all of the buffer that it is in.
	d.decoder.SetEmitEnabled(false)
	_, err := d.decoder.Write(methodGet)
	d.decoder.SetEmitEnabled(true)
	return err == nil && d.decoder.Close() == nil
}

// methodGet is a block that changes nothing.
var methodGet = []byte{0x82}

// maxFields is for how many fields room is kept.
const maxFields = 64

// forget forgets the fields of a block, which a client must not have kept for it by sending no other.
func (d *blocks) forget() {
	clear(d.fields)
	d.fields, d.size = d.fields[:0], 0
	if cap(d.fields) > maxFields {
		d.fields = nil
	}
}

// changesTable reports whether a block, which could be decoded, has changed the table of the decoder.
func (d *blocks) changesTable(b []byte) (changed bool) {
	for len(b) > 0 {
		first := b[0]
		switch {
		case first&0x80 != 0: // a field of the table
			b = skipNumber(b, 7)
		case first&0x40 != 0: // a field that is added
			return true
		case first&0x20 != 0: // the size of the table, which some clients repeat in each block
			var size uint64
			size, b = number(b, 5)
			changed = changed || size != d.tableSize
			d.tableSize = size
		default:
			index := first & 0x0f
			if b = skipNumber(b, 4); index == 0 {
				b = skipString(b)
			}
			b = skipString(b)
		}
	}
	return changed
}

// skipNumber skips an integer with a prefix of so many bits.
func skipNumber(b []byte, bits int) []byte {
	_, b = number(b, bits)
	return b
}

func number(b []byte, bits int) (n uint64, rest []byte) {
	if len(b) == 0 {
		return 0, nil
	}
	most := uint64(1)<<bits - 1
	if n = uint64(b[0]) & most; n < most {
		return n, b[1:]
	}
	shift := 0
	for i, x := range b[1:] {
		n += uint64(x&0x7f) << shift
		if shift += 7; x&0x80 == 0 {
			return n, b[i+2:]
		}
	}
	return 0, nil
}

func skipString(b []byte) []byte {
	n, b := number(b, 7)
	return b[min(n, uint64(len(b))):]
}

// malformed is a header that cannot be one of a request of HTTP/2.
var malformed = head{method: none, timeout: none, refused: &refusal{reset: http2.ErrCodeProtocol}}

// headParts are the fields of a header that decide how it is answered.
type headParts struct {
	method, path, scheme, contentType, encoding string
	authorities, hosts                          int
	isGRPC                                      bool
	failed                                      error
}

// head makes out what the fields say. The rules, and their order, are those of grpc-go.
func (d *blocks) head() head {
	if d.size > maxHeader {
		return head{method: none, refused: &refusal{reset: http2.ErrCodeFrameSize}}
	}
	h, p := head{method: none, timeout: none, length: none}, headParts{}
	regular := false
	for i := range d.fields {
		f := &d.fields[i]
		if strings.HasPrefix(f.Name, ":") {
			if regular || !p.pseudo(f) {
				return malformed
			}
			continue
		}
		regular = true
		if !p.field(f, &h) {
			return malformed
		}
	}
	if p.method == "" || p.path == "" || p.scheme == "" {
		return malformed
	}
	if h.refused = p.refuse(); h.refused != nil {
		return h
	}
	if h.timeout == 0 {
		h.refused = &refusal{http: http.StatusOK, err: status.FromContextError(context.DeadlineExceeded).Err()}
		return h
	}
	h.size = d.size
	if n, ok := d.calls.Method(p.path); ok {
		h.method, h.size = n, len(h.subtype)
		if e := p.encoding; e != "" && e != "identity" && e != "gzip" {
			h.refused = &refusal{http: http.StatusOK, err: status.Errorf(codes.Unimplemented,
				"grpc: Decompressor is not installed for grpc-encoding %q", e)}
		}
	}
	return h
}

// refuse is the answer to a header that is not one of a call, nil if it is.
func (p *headParts) refuse() *refusal {
	switch {
	case p.authorities > 1 || p.hosts > 1:
		return &refusal{http: http.StatusBadRequest, err: status.Errorf(codes.Internal,
			"num values of :authority: %v, num values of host: %v, both must only have 1 value as per HTTP/2 spec",
			p.authorities, p.hosts)}
	case !p.isGRPC:
		return &refusal{http: http.StatusUnsupportedMediaType, err: status.Errorf(codes.InvalidArgument,
			"invalid gRPC request content-type %q", p.contentType)}
	case p.failed != nil:
		return &refusal{http: http.StatusBadRequest, err: p.failed}
	case p.authorities+p.hosts == 0:
		return &refusal{http: http.StatusBadRequest, err: status.Error(codes.Internal, "no host or :authority header present")}
	case p.method != http.MethodPost:
		return &refusal{http: http.StatusMethodNotAllowed, err: status.Errorf(codes.Internal,
			"Received a HEADERS frame with :method %q which should be POST", p.method)}
	}
	return nil
}

// pseudo notes a pseudo-header field. It is false if it must not be there.
func (p *headParts) pseudo(f *hpack.HeaderField) bool {
	if !httpguts.ValidHeaderFieldValue(f.Value) {
		return false
	}
	var to *string
	switch f.Name {
	case ":method":
		to = &p.method
	case ":path":
		to = &p.path
	case ":scheme":
		to = &p.scheme
	case ":authority":
		p.authorities++
		return p.authorities == 1
	default:
		return false
	}
	if *to != "" || f.Value == "" { // or a second one would not be noticed
		return false
	}
	*to = f.Value
	return true
}

// field notes any other field. It is false if the header is malformed.
func (p *headParts) field(f *hpack.HeaderField, h *head) bool {
	if !isFieldName(f.Name) || !httpguts.ValidHeaderFieldValue(f.Value) {
		return false
	}
	switch f.Name {
	case "content-type":
		if subtype, ok := subtypeOf(f.Value); ok {
			h.subtype, p.isGRPC = subtype, true
		} else {
			p.contentType = f.Value
		}
	case "grpc-encoding":
		p.encoding = f.Value
	case "grpc-timeout":
		var err error
		if h.timeout, err = timeoutOf(f.Value); err != nil {
			p.failed = status.Errorf(codes.Internal, "malformed grpc-timeout: %v", err)
		}
	case "content-length":
		n, err := strconv.ParseUint(f.Value, 10, strconv.IntSize-1)
		if err != nil || h.length != none && h.length != int(n) {
			return false
		}
		h.length = int(n)
	case "host":
		p.hosts++
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		return false
	case "te":
		return f.Value == "trailers"
	default:
		if strings.HasSuffix(f.Name, "-bin") && !isBinary(f.Value) {
			p.failed = status.Errorf(codes.Internal, "malformed binary metadata %q in header %q", f.Value, f.Name)
		}
	}
	return true
}

// areTrailers reports whether the fields of a block that was decoded can be trailers, which have no pseudo-header fields.
func (d *blocks) areTrailers() bool {
	return d.size <= maxHeader && !slices.ContainsFunc(d.fields, func(f hpack.HeaderField) bool {
		return !isFieldName(f.Name) || !httpguts.ValidHeaderFieldValue(f.Value)
	})
}

// isFieldName reports whether a name can be one of a field of HTTP/2, which has no capitals.
func isFieldName(name string) bool {
	for i := range len(name) {
		if c := name[i]; !httpguts.IsTokenRune(rune(c)) || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return name != ""
}

const grpcType = "application/grpc"

// subtypeOf is the codec that a content type names, "" if it names none. It is false for another type than that of gRPC.
func subtypeOf(contentType string) (subtype string, ok bool) {
	rest, ok := strings.CutPrefix(contentType, grpcType)
	switch {
	case !ok:
		return "", false
	case rest == "":
		return "", true
	case rest[0] == '+', rest[0] == ';':
		return rest[1:], true
	}
	return "", false
}

// isBinary reports whether the value of a field is in base64, with padding or without.
func isBinary(v string) bool {
	coding := base64.RawStdEncoding
	if len(v)%4 == 0 {
		coding = base64.StdEncoding
	}
	_, err := coding.DecodeString(v)
	return err == nil
}

var timeoutUnits = map[byte]time.Duration{
	'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
}

// timeoutOf is the timeout that a field says.
func timeoutOf(v string) (time.Duration, error) {
	const minLength, maxLength = 2, 9
	if len(v) < minLength || len(v) > maxLength {
		return 0, status.Errorf(codes.Internal, "%q: must have from 1 to 8 digits and a unit", v)
	}
	unit, ok := timeoutUnits[v[len(v)-1]]
	n, err := strconv.ParseUint(v[:len(v)-1], 10, 64)
	if !ok || err != nil {
		return 0, status.Errorf(codes.Internal, "%q: must have from 1 to 8 digits and a unit", v)
	}
	if n > math.MaxInt64/uint64(unit) {
		return math.MaxInt64, nil
	}
	return unit * time.Duration(n), nil
}
