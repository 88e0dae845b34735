package load

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
)

// httpCodec asks POST /v1/check over HTTP/1.1, one request at a time on a connection that stays open. It reads of an answer what
// tells where it ends, and its status: net/http costs many times as much, and would be measured instead of the server.
type httpCodec struct {
	template template
	order    order
}

// newHTTPCodec returns the codec for a policy. The key is the prefix and a number, neither of which needs escapes.
func newHTTPCodec(o *options) *httpCodec {
	policy, _ := json.Marshal(o.policy) //nolint:errchkjson // a text can be
	return &httpCodec{template: template{encode: func(key string) []byte {
		body := fmt.Sprintf(`{"policy":%s,"key":%s,"cost":%d}`, policy, `"`+key+`"`, o.cost)
		return fmt.Appendf(nil, "POST /v1/check HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
			"Content-Length: %d\r\n\r\n%s", o.address, len(body), body)
	}}}
}

func (c *httpCodec) open(net.Conn) ([]byte, error) {
	c.order.reset()
	return nil, nil
}

func (*httpCodec) room() int       { return unlimited }
func (*httpCodec) control() []byte { return nil }

func (c *httpCodec) request(b, key []byte, slot uint32) []byte {
	c.order.push(slot)
	return c.template.append(b, key)
}

func (c *httpCodec) replies(b []byte, to []reply) (int, []reply, error) {
	read := 0
	for read < len(b) {
		n, r, err := scanResponse(b[read:])
		if err != nil || n == 0 {
			return read, to, err
		}
		if c.order.empty() {
			return read, to, &protocolError{"a response without a request"}
		}
		read += n
		r.slot = c.order.pop()
		to = append(to, r)
	}
	return read, to, nil
}

const (
	longestHead = 64 << 10
	longestBody = 64 << 20
)

var (
	errNotHTTP    = &protocolError{"the answer is not HTTP/1.1"}
	headEnd       = []byte("\r\n\r\n")
	lineEnd       = []byte("\r\n")
	contentLength = []byte("content-length")
	encoding      = []byte("transfer-encoding")
	chunked       = []byte("chunked")
)

// scanResponse looks for the end of the response at the start of b. n is 0 if it is not there yet.
func scanResponse(b []byte) (n int, r reply, err error) {
	const statusLine = "HTTP/1.1 200"
	if len(b) >= len(statusLine) && string(b[:7]) != "HTTP/1." {
		return 0, r, errNotHTTP
	}
	end := bytes.Index(b, headEnd)
	if end < 0 {
		if len(b) > longestHead {
			return 0, r, errNotHTTP
		}
		return 0, r, nil
	}
	status, err := strconv.Atoi(string(b[min(9, end):min(12, end)]))
	if err != nil {
		return 0, r, errNotHTTP
	}
	length, isChunked, err := framing(b[:end])
	if err != nil {
		return 0, r, err
	}
	n = end + len(headEnd)
	switch {
	case isChunked:
		if length = chunks(b[n:]); length < 0 {
			return 0, r, errNotHTTP
		}
		if length == 0 {
			return 0, r, nil
		}
	case len(b) < n+length:
		return 0, r, nil
	}
	return n + length, responseMeaning(status, b[:n+length]), nil
}

// responseMeaning is what a response says that is there as a whole.
func responseMeaning(status int, response []byte) reply {
	switch status {
	case http.StatusOK:
		return reply{outcome: allowed}
	case http.StatusTooManyRequests:
		return reply{outcome: refused}
	}
	kind := "status " + strconv.Itoa(status)
	var problem struct {
		Detail string `json:"detail"`
	}
	if r, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(response)), nil); err == nil {
		_ = json.NewDecoder(r.Body).Decode(&problem) // if there is none, the status has to do
		_ = r.Body.Close()
	}
	if problem.Detail == "" {
		problem.Detail = http.StatusText(status)
	}
	return reply{outcome: failed, fault: &fault{kind, kind + ": " + problem.Detail}}
}

// framing returns how long the body is, or that it comes in chunks. A response that says neither would end with the connection,
// and is not kept alive.
func framing(head []byte) (length int, isChunked bool, err error) {
	length = -1
	_, fields, _ := bytes.Cut(head, lineEnd)
	for len(fields) > 0 {
		var line []byte
		line, fields, _ = bytes.Cut(fields, lineEnd)
		colon := bytes.IndexByte(line, ':')
		if colon != len(contentLength) && colon != len(encoding) {
			continue
		}
		name, value := line[:colon], bytes.TrimSpace(line[colon+1:])
		switch {
		case bytes.EqualFold(name, contentLength):
			n, err := strconv.ParseUint(string(value), 10, 32)
			if err != nil || n > longestBody {
				return 0, false, errNotHTTP
			}
			length = int(n)
		case bytes.EqualFold(name, encoding) && bytes.EqualFold(value, chunked):
			isChunked = true
		}
	}
	if length < 0 && !isChunked {
		return 0, false, &protocolError{"the answer has no Content-Length, and is not chunked"}
	}
	return length, isChunked, nil
}

// chunks returns how long a body in chunks is with all that belongs to it: 0 if its end is not there yet, less if it is not one.
func chunks(b []byte) int {
	at := 0
	for {
		end := bytes.Index(b[at:], lineEnd)
		if end < 0 {
			return 0
		}
		size, _, _ := bytes.Cut(b[at:at+end], []byte{';'})
		n, err := strconv.ParseUint(string(bytes.TrimSpace(size)), 16, 32)
		if err != nil || n > longestBody {
			return -1
		}
		at += end + len(lineEnd) + int(n)
		if n == 0 {
			break
		}
		if at += len(lineEnd); at > len(b) {
			return 0
		}
	}
	// What is left are trailers, up to an empty line.
	for {
		end := bytes.Index(b[min(at, len(b)):], lineEnd)
		if end < 0 {
			return 0
		}
		if at += end + len(lineEnd); end == 0 {
			return at
		}
	}
}
