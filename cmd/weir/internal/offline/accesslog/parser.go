package accesslog

import "bytes"

// parser turns one line into a record. It holds what is worth keeping from one
// line to the next: caches and memory.
type parser struct {
	clock   clock
	scratch []byte // values whose escapes had to be undone; reset for each line
	members members
	fault   fault // why parse returned false
}

// parse fills rec, which must be zero but for its line number, from a line
// without line ending and surrounding blanks. When it returns false, fault says
// why.
func (p *parser) parse(line []byte, rec *Record) bool {
	p.scratch = p.scratch[:0]
	if line[0] == '{' {
		return p.parseJSON(line, rec)
	}
	return p.parseText(line, rec)
}

// refuse sets the reason for returning false, which it returns. The field and
// what was wanted must be constants and value a slice of the line, so that a
// stream of malformed lines costs no memory.
func (p *parser) refuse(field string, value []byte, want string) bool {
	p.fault = fault{field: field, value: value, want: want}
	return false
}

// present returns nil for the ways in which logs write that there is no value.
func present(b []byte) []byte {
	if len(b) == 0 || len(b) == 1 && b[0] == '-' {
		return nil
	}
	return b
}

// setRequestLine splits "METHOD target HTTP/x.y". The protocol may be missing
// and the target may hold spaces. What does not look like a request line leaves
// the record without method and path.
func setRequestLine(rec *Record, b []byte) {
	i := bytes.IndexByte(b, ' ')
	if i <= 0 || !isToken(b[:i]) {
		return
	}
	target := b[i+1:]
	if j := bytes.LastIndexByte(target, ' '); bytes.HasPrefix(target[j+1:], httpSlash) {
		target = target[:max(j, 0)]
	}
	if len(target) == 0 {
		return
	}
	rec.Method = b[:i]
	setTarget(rec, target)
}

var (
	httpSlash    = []byte("HTTP/")
	connectToken = []byte("CONNECT")
	schemes      = [][]byte{[]byte("http://"), []byte("https://")}
)

// setTarget splits a request target into path and query, and takes the host out
// of a target that has one.
func setTarget(rec *Record, b []byte) {
	if len(b) == 0 {
		return
	}
	rec.Path, rec.Query = nil, nil
	if b[0] != '/' {
		if bytes.Equal(rec.Method, connectToken) {
			setHost(rec, b)
			return
		}
		if i := schemeLength(b); i > 0 {
			authority := b[i:]
			b = nil
			if j := bytes.IndexAny(authority, "/?"); j >= 0 {
				authority, b = authority[:j], authority[j:]
			}
			setHost(rec, authority[bytes.LastIndexByte(authority, '@')+1:])
		}
	}
	if i := bytes.IndexByte(b, '?'); i >= 0 {
		rec.Query = b[i+1:]
		b = b[:i]
	}
	rec.Path = b
}

// schemeLength returns the length of the scheme and the slashes that an absolute
// request target begins with, or 0.
func schemeLength(b []byte) int {
	for _, scheme := range schemes {
		if len(b) >= len(scheme) && bytes.EqualFold(b[:len(scheme)], scheme) {
			return len(scheme)
		}
	}
	return 0
}

// setHost stores a host without its port and without the brackets of an IPv6
// address. The first host a record gets is kept.
func setHost(rec *Record, b []byte) {
	if rec.Host == nil && present(b) != nil {
		rec.Host = withoutPort(b)
	}
}

// isToken reports whether b could be a request method: a token as RFC 9110
// defines it.
func isToken(b []byte) bool {
	for _, c := range b {
		if !tokenBytes[c] {
			return false
		}
	}
	return len(b) > 0
}

var tokenBytes = func() (set [256]bool) {
	for c := '0'; c <= '9'; c++ {
		set[c] = true
	}
	for c := 'a'; c <= 'z'; c++ {
		set[c], set[c-'a'+'A'] = true, true
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		set[c] = true
	}
	return set
}()

// parseStatus reads a status code of three digits, or zeros or "-" for none.
func parseStatus(b []byte) (int, bool) {
	switch {
	case present(b) == nil, len(b) == 1 && b[0] == '0':
		return 0, true
	case len(b) != 3 || !isDigit(b[0]) || !isDigit(b[1]) || !isDigit(b[2]):
		return 0, false
	}
	n := int(b[0]-'0')*100 + int(b[1]-'0')*10 + int(b[2]-'0')
	return n, n == 0 || n >= 100
}

// parseSize reads a number of bytes, or "-" for none.
func parseSize(b []byte) (int64, bool) {
	if present(b) == nil {
		return 0, true
	}
	var n int64
	for _, c := range b {
		d := int64(c) - '0'
		if d < 0 || d > 9 || n > (1<<63-1-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

func isDigit(c byte) bool { return c-'0' <= 9 }

const (
	wantStatus = `want 100 to 999, or "-", 0 or 000 for none`
	wantSize   = `want a number of bytes from 0 to 9223372036854775807, or "-"`
)
