package accesslog

import "bytes"

// parseText reads a line of the common or combined log format.
func (p *parser) parseText(line []byte, rec *Record) bool {
	// The user may hold anything a client sends, in the escapes of the server, so
	// the fields before the request are found from its quote backwards: `] "`
	// cannot stand in an escaped value.
	quote := findRequest(line)
	if quote < 0 {
		return p.refuse("line", nil, `not the common or combined log format: no [time] "request"`)
	}
	bracket := bytes.LastIndexByte(line[:quote-2], '[')
	if bracket < 1 || !isBlank(line[bracket-1]) {
		return p.refuse("line", nil, "not the common or combined log format: no client before the [time]")
	}
	stamp := line[bracket+1 : quote-2]
	ns, refused := p.clock.parse(stamp)
	if refused != "" {
		return p.refuse("time", stamp, refused)
	}
	rec.Time = ns
	setOrigin(rec, line[:bracket])

	request, rest, ok := cutQuoted(line[quote:])
	if !ok {
		return p.refuse("request", line[quote+1:], "no closing quote")
	}
	value, rest := cutField(rest)
	if rec.Status, ok = parseStatus(value); !ok || len(value) == 0 {
		return p.refuse("status", value, wantStatus)
	}
	value, rest = cutField(rest)
	if rec.Bytes, ok = parseSize(value); !ok {
		return p.refuse("bytes", value, wantSize)
	}
	setRequestLine(rec, p.unescape(request))

	if rest = trimLine(rest); len(rest) > 0 && rest[0] == '"' {
		value, rest, _ = cutQuoted(rest)
		rec.Referer = present(p.unescape(value))
		if rest = trimLine(rest); len(rest) > 0 && rest[0] == '"' {
			value, _, _ = cutQuoted(rest)
			rec.UserAgent = present(p.unescape(value))
		}
	}
	return true
}

// findRequest returns the index of the quote before the request, which follows
// the bracket after the time, or -1.
func findRequest(line []byte) int {
	for i := 0; ; i++ {
		j := bytes.IndexByte(line[i:], '"')
		if j < 0 {
			return -1
		}
		if i += j; i >= 2 && line[i-1] == ' ' && line[i-2] == ']' {
			return i
		}
	}
}

// setOrigin reads the fields before the time: the client, and before it perhaps
// a virtual host.
func setOrigin(rec *Record, b []byte) {
	first, rest := cutField(b)
	if addr, ok := parseAddr(first); ok {
		rec.Client = addr
		return
	}
	second, rest := cutField(rest)
	if isVirtualHost(first, second, rest) {
		setHost(rec, first)
		first = second
	}
	setClient(rec, first)
}

// isVirtualHost reports whether a first field that is not an address is the
// host a request was made to, and the second one the client. No server logs an
// address as the identity of a user, so an address in second place is a client,
// unless the first field begins a list of forwarded addresses. A name is one
// when the first field has a port and two more fields, identity and user, follow.
func isVirtualHost(first, second, rest []byte) bool {
	if _, ok := parseAddr(second); ok {
		return bytes.IndexByte(first, ',') < 0
	}
	if present(second) == nil || len(withoutPort(first)) == len(first) {
		return false
	}
	_, rest = cutField(rest)
	user, _ := cutField(rest)
	return len(user) > 0
}

// cutField returns the first field of b, which blanks may precede, and what
// follows the field. The field is empty when b has none.
func cutField(b []byte) (field, rest []byte) {
	i := 0
	for i < len(b) && isBlank(b[i]) {
		i++
	}
	j := i
	for j < len(b) && !isBlank(b[j]) {
		j++
	}
	return b[i:j], b[j:]
}

// cutQuoted splits b, which starts with a quote, behind the closing quote: one
// that is not escaped and that a blank or the end of the line follows. Without
// one, the value is all of b and closed is false.
func cutQuoted(b []byte) (value, rest []byte, closed bool) {
	for i := 1; ; i++ {
		j := bytes.IndexByte(b[i:], '"')
		if j < 0 {
			return b[1:], nil, false
		}
		i += j
		if (i+1 == len(b) || isBlank(b[i+1])) && !isEscaped(b[1:i]) {
			return b[1:i], b[i+1:], true
		}
	}
}

// isEscaped reports whether the character behind b is escaped, that is, whether
// b ends in an odd number of backslashes.
func isEscaped(b []byte) bool {
	n := len(b)
	for n > 0 && b[n-1] == '\\' {
		n--
	}
	return (len(b)-n)%2 == 1
}

// unescape undoes the escapes of Apache and nginx.
func (p *parser) unescape(b []byte) []byte {
	i := bytes.IndexByte(b, '\\')
	if i < 0 {
		return b
	}
	start := len(p.scratch)
	for i >= 0 {
		p.scratch = append(p.scratch, b[:i]...)
		c, n := unescapeOne(b[i:])
		p.scratch = append(p.scratch, c)
		b = b[i+n:]
		i = bytes.IndexByte(b, '\\')
	}
	p.scratch = append(p.scratch, b...)
	return p.scratch[start:]
}

// unescapeOne returns the character that the escape at the start of b stands
// for, and the length of the escape.
func unescapeOne(b []byte) (c byte, length int) {
	if len(b) < 2 {
		return '\\', 1
	}
	switch b[1] {
	case '"', '\\':
		return b[1], 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'v':
		return '\v', 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'x':
		if len(b) < 4 {
			break
		}
		hi, ok1 := hexDigit(b[2])
		lo, ok2 := hexDigit(b[3])
		if ok1 && ok2 {
			return byte(hi<<4 | lo), 4
		}
	}
	return '\\', 1
}
