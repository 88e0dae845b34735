package match

import (
	"net/http"
	"net/netip"

	"github.com/weirhq/weir/internal/keytext"
)

// View is what conditions see of one request. What is not known is left out. It keeps notes of what it was asked, so each
// request has a new View; its fields must not be changed once it is in use.
type View struct {
	notes

	// Protocol is what the request came by in lower case, such as "http" or "grpc".
	Protocol string
	// Method is the method of HTTP in upper case.
	Method string
	// Host is the host that was asked, with its port or without.
	Host string
	// Path is the path without the query, decoded.
	Path string
	// Route is the name that the server has for what is asked for.
	Route string
	// Header has the fields of the header; nil is an empty one.
	Header Header
	// Client is the address of the client. The zero Addr is that of a client that is not known.
	Client netip.Addr
	// Last is of what the last value counts, and not the first, and how odd parameters are read.
	Last Repeatable
	// Repeated is of what anything has looked at a first and a last value that differ, and the ways to read odd parameters that
	// differ for it from the usual one.
	Repeated Repeatable
}

// Repeatable is a set of what can come several times in a request, and of the ways in which services read odd parameters.
type Repeatable uint8

const (
	// Fields are those of the header.
	Fields Repeatable = 1 << iota
	// Parameters are those of the query.
	Parameters
	// Whole is a way to read parameters of the query that have a semicolon, or a percent sign without two hexadecimal digits:
	// both stand for themselves. As usual, such parameters are left out.
	Whole
	// Split is Whole, but for a semicolon, which separates parameters as "&" does.
	Split

	// Odd are the ways to read odd parameters, of which one at a time counts.
	Odd = Whole | Split
)

// notes are what a View keeps for one condition after the other.
type notes struct {
	path, host         string // in their clean forms, once they are needed
	pathRead, hostRead bool   // whether they have been
	pathAsked          bool   // whether anything has looked at the path
	method             methodSet
	pattern            *pattern    // that the path matches, nil if the rule has none with wildcards
	unbound            *Conditions // of the rule whose pattern is still to be found
}

// Header is a lookup of header fields: [net/http.Header] is one.
type Header interface {
	// Values are all values of the field with this name, in canonical form such as "X-Api-Key". It must not be changed.
	Values(name string) []string
}

// Value is the value of a field that counts, and whether there is one. The name is in canonical form. A nil Header is empty.
func (v *View) Value(h Header, name string) (string, bool) {
	if h == nil {
		return "", false
	}
	return v.valueOf(h.Values(name))
}

func (v *View) valueOf(values []string) (string, bool) {
	switch len(values) {
	case 0:
		return "", false
	case 1:
		return values[0], true
	}
	return v.OneOf(Fields, values[0], values[len(values)-1]), true
}

// OneOf returns which of the first and the last value of a field, or of a parameter, counts.
func (v *View) OneOf(of Repeatable, first, last string) string {
	if first != last {
		v.Repeated |= of
	}
	if v.Last&of != 0 {
		return last
	}
	return first
}

// field is Value for a name that is known to be in canonical form, which Values of [http.Header] would make sure of for each
// request.
func (v *View) field(name string) (string, bool) {
	if h, ok := v.Header.(http.Header); ok {
		return v.valueOf(h[name])
	}
	return v.Value(v.Header, name)
}

// CleanPath is the path without empty and dot segments, or that of the reading.
func (v *View) CleanPath() string {
	v.pathAsked = true
	if !v.pathRead {
		v.path, v.pathRead = keytext.CleanPath(v.Path), true
	}
	return v.path
}

// CleanHost is the host in lower case and without port.
func (v *View) CleanHost() string {
	if !v.hostRead {
		v.host, v.hostRead = keytext.CleanHost(v.Host), true
	}
	return v.host
}

// matchPath is the path that patterns are compared with: the clean one, and "/" for the empty path, which HTTP holds to be the
// same.
func (v *View) matchPath() string {
	if v.Path == "" {
		return "/"
	}
	return v.CleanPath()
}

// PathValue is the part of the path at a wildcard of the pattern of the rule that [Index.Bind] was called for, "" if there is
// none of this name.
func (v *View) PathValue(name string) string {
	v.pathAsked = true
	if c := v.unbound; c != nil {
		v.unbound, v.pattern = nil, c.pathPattern(v)
	}
	if v.pattern == nil {
		return ""
	}
	return v.pattern.value(v.matchPath(), name)
}

// BindPathValue makes v that of a path with a rule that finds this value for a wildcard, whatever the value is.
func (v *View) BindPathValue(name, value string) {
	v.Path = "/" + value
	v.notes = notes{path: v.Path, pathRead: true, pattern: &pattern{
		source: "/{" + name + "...}", segments: []segment{{restSegment, name}}, wild: true,
	}}
}

// Readings returns the other ways in which servers read the path. It returns nil for a path that all servers read alike or that
// nothing has looked at. The raw path is the one that was sent, still encoded, where Path does not show it, and "" otherwise.
func (v *View) Readings(raw string) []string {
	switch {
	case !v.pathAsked:
		return nil
	case raw == "" && v.pathRead && v.path == v.Path && !keytext.HasSeveralReadings(v.Path): // nothing was to be made clean
		return nil
	}
	return keytext.Readings(v.Path, raw)
}

// ReadHostAs makes the clean host another one.
func (v *View) ReadHostAs(host string) { v.host, v.hostRead = host, true }

// ReadAs makes the clean path one of the others that Readings has returned.
func (v *View) ReadAs(reading string) {
	v.path, v.pathRead, v.pattern, v.unbound = reading, true, nil, nil
}
