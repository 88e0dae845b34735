package policy

import (
	"github.com/weirhq/weir/internal/keytext"
)

// variables is what a Request keeps of the rule that is looked at, and the clean forms of what was asked for, which are made once
// and needed by one rule after the other. Each match begins with none.
type variables struct {
	path, pathClean string
	asked           bool // whether something has looked at the path
	host, hostClean string
	method          methodSet
	pattern         *pattern // that the path matches, nil if the rule has none with wildcards
	unbound         *matcher // of the rule whose pattern is still to be found
}

// pathValue returns what stands for a wildcard in the path.
func (r *Request) pathValue(name string) string {
	r.path.asked = true
	if m := r.path.unbound; m != nil {
		r.path.unbound = nil
		r.bind(m.pathPattern(r))
	}
	if r.path.pattern == nil || r.path.path != r.Path {
		return ""
	}
	return r.path.pattern.value(r.path.pathClean, name)
}

// readAs makes the path that of a reading. 0 is the usual one, and the others are those of readings, from 1 on.
func (r *Request) readAs(reading int, others []string) {
	r.path = variables{method: usualMethod(r.Method)} // what was noted of an earlier request is not trusted
	if reading > 0 {
		r.path.path, r.path.pathClean = r.Path, others[reading-1]
	}
}

// readings returns the other ways to read the path, nil for a path that all servers read alike or that nothing has looked at.
func (r *Request) readings() []string {
	switch p := &r.path; {
	case !p.asked:
		return nil
	case r.RawPath == "" && p.path == r.Path && p.pathClean == r.Path && // these are the same text at the same place
		!hasSeveralReadings(r.Path):
		return nil
	}
	return keytext.Readings(r.Path, r.RawPath)
}

// hasSeveralReadings reports whether a clean path has what servers read differently. Most paths are too short for two searches by
// [strings.IndexByte] to pay.
func hasSeveralReadings(path string) bool {
	for i := range len(path) {
		if c := path[i]; c == '%' || c == '\\' {
			return true
		}
	}
	return false
}

// cleanPath is the path without empty and dot segments, or that of the reading.
func (r *Request) cleanPath() string {
	r.path.asked = true
	if r.path.path != r.Path { // of the same text at the same place this is known without reading it
		r.path.path, r.path.pathClean, r.path.pattern = r.Path, keytext.CleanPath(r.Path), nil
	}
	return r.path.pathClean
}

// matchPath is the path that patterns are compared with: the clean one, and "/" for the empty path, which HTTP holds to be the
// same.
func (r *Request) matchPath() string {
	if r.Path == "" {
		return "/"
	}
	return r.cleanPath()
}

// bind remembers the pattern that the path matches, which can be nil.
func (r *Request) bind(p *pattern) {
	if p == nil {
		r.path.pattern = nil
		return
	}
	r.path.path, r.path.pathClean, r.path.pattern = r.Path, r.matchPath(), p
}

// cleanHost is the host in lower case and without port.
func (r *Request) cleanHost() string {
	if r.path.host != r.Host {
		r.path.host, r.path.hostClean = r.Host, keytext.CleanHost(r.Host)
	}
	return r.path.hostClean
}
