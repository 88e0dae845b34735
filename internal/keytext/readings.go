package keytext

import (
	"slices"
	"strings"
)

// Readings returns the other ways in which servers read a path, beside CleanPath(decoded), which is not among them. It returns
// nil for a path that all servers read alike, as nearly all are, and allocates nothing then. decoded is the path with its
// percent-encoding resolved once. raw is the path as it was sent, or "" where decoded has one spelling only, as in [net/url.URL].
//
// The readings are all combinations of three questions: Is the path split into segments before it is decoded, once it is decoded,
// or once it is decoded until no encoding is left? Is a backslash a slash? Are empty and dot segments resolved (of a path that is
// split first: also those that are encoded), or left? A slash within a segment is written %2F. Two spellings that differ in
// nothing but percent-encoding that has no meaning have the same readings. Some servers take "//host/path" for a URL: "/path" is
// a reading of that as well; and of "///host/path", as the URL standard of browsers, which Node.js follows, skips all slashes
// before a host. Servers of Java drop what begins with a semicolon in a segment, its parameters. All readings of what is left are
// readings, too.
func Readings(decoded, raw string) []string {
	if raw == "" && IsCleanPath(decoded) && !strings.ContainsAny(decoded, `\;`) && !hasEscape(decoded) {
		return nil
	}
	if decoded == "" || decoded == "*" {
		return nil
	}
	r := readings{clean: CleanPath(decoded)}
	r.read(decoded, raw)
	if sent := withoutParameters(raw); sent != raw {
		r.add(CleanPath(decodeOnce(sent)))
		r.read(decodeOnce(sent), sent)
	}
	before := decoded
	for _, text := range [...]string{decoded, decodeAll(decoded)} {
		if bare := withoutParameters(text); bare != text && bare != before {
			r.add(CleanPath(bare))
			r.read(bare, "")
			before = bare
		}
	}
	return r.others
}

// withoutParameters is a path without what begins with a semicolon in each segment.
func withoutParameters(path string) string {
	if strings.IndexByte(path, ';') < 0 {
		return path
	}
	b := make([]byte, 0, len(path))
	dropped := false
	for i := range len(path) {
		switch path[i] {
		case ';':
			dropped = true
		case '/':
			dropped = false
		}
		if !dropped {
			b = append(b, path[i])
		}
	}
	return "/" + strings.TrimPrefix(string(b), "/")
}

// readings collects what differs.
type readings struct {
	clean  string
	others []string
}

// read adds the readings of a path whose parameters, if it has any, belong to its segments.
func (r *readings) read(decoded, raw string) {
	r.readBehind(decoded, raw, behindAuthority)
	r.readBehind(decoded, raw, behindHost)
	for _, backslash := range [...]bool{false, true} {
		r.split(decoded, raw, backslash)
		for _, text := range [...]string{decoded, decodeAll(decoded)} {
			if backslash {
				text = strings.ReplaceAll(text, `\`, "/")
			}
			r.add(CleanPath(text))
			r.add("/" + strings.TrimPrefix(text, "/"))
		}
	}
}

// readBehind adds the readings of what follows the authority, as behind finds it.
func (r *readings) readBehind(decoded, raw string, behind func(path string) (rest string, ok bool)) {
	path, ok := behind(decoded)
	if !ok {
		return
	}
	r.add(CleanPath(path))
	if path, ok = behind(raw); ok {
		r.split("", path, true)
	}
}

// behindAuthority returns what follows the authority of a path that begins with two slashes, as a URL without a scheme does.
func behindAuthority(path string) (rest string, ok bool) {
	if len(path) < 2 || !isSlash(path[0]) || !isSlash(path[1]) {
		return "", false
	}
	if i := strings.IndexAny(path[2:], `/\`); i >= 0 {
		return "/" + path[2+i+1:], true
	}
	return "/", true
}

// behindHost is behindAuthority of a path that begins with more than two slashes, if all of them are skipped.
func behindHost(path string) (rest string, ok bool) {
	slashes := len(path) - len(strings.TrimLeft(path, `/\`))
	if slashes < 3 {
		return "", false
	}
	return behindAuthority(path[slashes-2:])
}

func isSlash(c byte) bool { return c == '/' || c == '\\' }

// add adds a path. A * is none, but where it was sent.
func (r *readings) add(path string) {
	if path != "*" && path != r.clean && !slices.Contains(r.others, path) {
		r.others = append(r.others, path)
	}
}

// split adds the readings of a path that is split before it is decoded.
func (r *readings) split(decoded, raw string, backslash bool) {
	text := decoded
	if raw != "" {
		text = raw
	}
	if backslash {
		text = strings.ReplaceAll(text, `\`, "/")
	}
	sent := strings.Split(strings.TrimPrefix(text, "/"), "/")
	read := sent
	if raw != "" {
		read = make([]string, len(sent))
		for i, segment := range sent {
			read[i] = strings.ReplaceAll(decodeOnce(segment), "/", "%2F")
		}
	}
	r.add("/" + strings.Join(read, "/"))
	r.add(resolved(sent, read))
	r.add(resolved(read, read))
}

// resolved is the path of segments without those that are empty or dots as they stand in by.
func resolved(by, segments []string) string {
	var kept []string
	directory := false
	for i, segment := range by {
		directory = segment == "" || segment == "." || segment == ".."
		switch {
		case !directory:
			kept = append(kept, segments[i])
		case segment == "..":
			kept = kept[:max(len(kept)-1, 0)]
		}
	}
	if directory {
		kept = append(kept, "")
	}
	return "/" + strings.Join(kept, "/")
}

// hasEscape reports whether s has a percent sign and two hexadecimal digits.
func hasEscape(s string) bool {
	for i := strings.IndexByte(s, '%'); i >= 0 && i+2 < len(s); i++ {
		if s[i] == '%' && isHex(s[i+1]) && isHex(s[i+2]) {
			return true
		}
	}
	return false
}

// decodeOnce resolves percent-encoding. What is no encoding stays.
func decodeOnce(s string) string {
	if !hasEscape(s) {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
			b = append(b, hexByte(s[i+1], s[i+2]))
			i += 2
			continue
		}
		b = append(b, s[i])
	}
	return string(b)
}

// decodeAll resolves percent-encoding until there is none, in one pass.
func decodeAll(s string) string {
	if !hasEscape(s) {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := range len(s) {
		b = append(b, s[i])
		for n := len(b) - 3; n >= 0 && b[n] == '%' && isHex(b[n+1]) && isHex(b[n+2]); n = len(b) - 3 {
			b = append(b[:n], hexByte(b[n+1], b[n+2]))
		}
	}
	return string(b)
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

func hexByte(high, low byte) byte { return hexDigit(high)<<4 | hexDigit(low) }

func hexDigit(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}
