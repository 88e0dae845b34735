package accesslog

import "math/bits"

// members holds the values of one JSON line that have a known name.
type members struct {
	seen   [quantities]uint16 // bit r is set when value[r] is of this line
	values [quantities][maxNames]value
}

// value is a scalar of a JSON line.
type value struct {
	raw     []byte // a number, or a string without its quotes
	escaped bool
}

// parseJSON reads a line that is a JSON object.
func (p *parser) parseJSON(line []byte, rec *Record) bool {
	p.members.seen = [quantities]uint16{}
	s := scanner{data: line}
	if !p.scanObject(&s, topLevel, 1) {
		return p.refuseJSON(s.pos, s.refused)
	}
	s.skipSpace()
	if s.pos < len(line) {
		return p.refuseJSON(s.pos, wantEnd)
	}
	return p.setMembers(rec)
}

// refuseJSON sets the reason for returning false, which it returns: a place in
// the line where it is not JSON.
func (p *parser) refuseJSON(pos int, want string) bool {
	p.fault = fault{field: "JSON", at: pos + 1, want: want}
	return false
}

// unknown is an object of which no name is known.
var unknown object

// scanObject reads the object at the scanner's position and keeps the values of
// known names.
func (p *parser) scanObject(s *scanner, known *object, depth int) bool {
	if depth > maxDepth {
		return s.fail(wantDepth)
	}
	s.pos++ // the brace
	if s.skipSpace(); s.take('}') {
		return true
	}
	for {
		key, escaped, ok := s.scanString()
		if !ok {
			return false
		}
		if escaped {
			key = p.unescapeJSON(key)
		}
		n := known.names[string(key)]
		if s.skipSpace(); !s.take(':') {
			return s.fail(wantColon)
		}
		s.skipSpace()
		if !p.scanMember(s, n, depth) {
			return false
		}
		s.skipSpace()
		if s.take('}') {
			return true
		}
		if !s.take(',') {
			return s.fail(wantComma)
		}
		s.skipSpace()
	}
}

// scanMember reads one value, which replaces all that the same name held
// before.
func (p *parser) scanMember(s *scanner, n name, depth int) bool {
	if n.object != nil {
		for q, mask := range n.object.below {
			p.members.seen[q] &^= mask
		}
		if s.at('{') {
			if n.holds {
				p.members.seen[n.quantity] &^= 1 << n.rank
			}
			return p.scanObject(s, n.object, depth+1)
		}
	}
	if !n.holds {
		return p.skipValue(s, depth)
	}
	p.members.seen[n.quantity] &^= 1 << n.rank
	if !s.at('[') {
		return p.scanScalar(s, n, depth)
	}
	if depth+1 > maxDepth {
		return s.fail(wantDepth)
	}
	s.pos++
	if s.skipSpace(); s.take(']') {
		return true
	}
	if !p.scanScalar(s, n, depth+1) {
		return false
	}
	return p.skipElements(s, depth+1)
}

// scanScalar reads a value and keeps it for n if it is of a fitting type.
func (p *parser) scanScalar(s *scanner, n name, depth int) bool {
	v := value{}
	switch {
	case s.at('"'):
		var ok bool
		if v.raw, v.escaped, ok = s.scanString(); !ok {
			return false
		}
	case s.atNumber() && acceptsNumber[n.quantity]:
		var ok bool
		if v.raw, ok = s.scanNumber(); !ok {
			return false
		}
	default:
		return p.skipValue(s, depth)
	}
	p.members.values[n.quantity][n.rank] = v
	p.members.seen[n.quantity] |= 1 << n.rank
	return true
}

// next returns the value of the most preferred name in *seen that has one, and
// removes from *seen that name and those before it. It returns nil when there
// is none.
func (p *parser) next(q quantity, seen *uint16) []byte {
	for *seen != 0 {
		v := p.members.values[q][bits.TrailingZeros16(*seen)]
		*seen &= *seen - 1
		if v.escaped {
			v.raw = p.unescapeJSON(v.raw)
		}
		if b := present(v.raw); b != nil {
			return b
		}
	}
	return nil
}

func (p *parser) first(q quantity) []byte {
	seen := p.members.seen[q]
	return p.next(q, &seen)
}

// setMembers turns the values found in a line into a record.
func (p *parser) setMembers(rec *Record) bool {
	if !p.setTime(rec) {
		return false
	}
	setClient(rec, p.first(clientField))
	rec.Method = p.first(methodField)
	setHost(rec, p.first(hostField))
	p.setPath(rec)
	if !rec.Client.IsValid() && len(rec.ClientName) == 0 && len(rec.Method) == 0 && len(rec.Path) == 0 {
		return p.refuse("line", nil, "a JSON object without client, method and path is not a request")
	}

	rec.Status = firstValid(p, statusField, parseStatus)
	rec.Bytes = firstValid(p, sizeField, parseSize)
	rec.Referer = p.first(refererField)
	rec.UserAgent = p.first(userAgentField)
	return true
}

// firstValid returns the first valid value of a quantity in order of preference,
// or 0. A record is not refused for these: unlike the fields of a text line,
// whose meaning is their place, a JSON member may have a listed name and be
// something else.
func firstValid[T int | int64](p *parser, q quantity, parse func([]byte) (T, bool)) T {
	for seen := p.members.seen[q]; ; {
		b := p.next(q, &seen)
		if b == nil {
			return 0
		}
		if n, ok := parse(b); ok {
			return n
		}
	}
}

// setTime takes the first valid time. Some logs use a name of the list for
// something else, such as "time" for a duration.
func (p *parser) setTime(rec *Record) bool {
	seen := p.members.seen[timeField]
	stamp := p.next(timeField, &seen)
	if stamp == nil {
		return p.refuse("time", nil, "no member of the JSON object has it")
	}
	firstStamp, firstRefused := stamp, ""
	for ; stamp != nil; stamp = p.next(timeField, &seen) {
		ns, refused := p.clock.parse(stamp)
		if refused == "" {
			rec.Time = ns
			return true
		}
		if firstRefused == "" {
			firstRefused = refused
		}
	}
	return p.refuse("time", firstStamp, firstRefused)
}

// setPath prefers the request line, which is what the client sent: nginx's uri
// is the path after rewriting.
func (p *parser) setPath(rec *Record) {
	if b := p.first(requestField); b != nil {
		line := Record{Host: rec.Host}
		if b[0] == '/' {
			setTarget(&line, b)
		} else {
			setRequestLine(&line, b)
		}
		if len(rec.Method) == 0 {
			rec.Method = line.Method
		}
		rec.Host, rec.Path, rec.Query = line.Host, line.Path, line.Query
	}
	if len(rec.Path) == 0 {
		setTarget(rec, p.first(targetField))
	}
	if len(rec.Query) == 0 {
		rec.Query = p.first(queryField)
		if len(rec.Query) > 0 && rec.Query[0] == '?' {
			rec.Query = rec.Query[1:]
		}
	}
}
