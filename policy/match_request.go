package policy

import (
	"github.com/weirhq/weir/internal/keytext"
)

// variables is what a Request keeps of the rule that is looked at, and the clean forms of what was asked for, which are made once
// and needed by one rule after the other. Each match begins with none.
type variables struct {
	path, pathClean string
	host, hostClean string
	method          methodSet
	pattern         *pattern // that the path matches, nil if the rule has none with wildcards
	unbound         *matcher // of the rule whose pattern is still to be found
}

// pathValue answers what stands for a wildcard in the path.
func (r *Request) pathValue(name string) string {
	if m := r.path.unbound; m != nil {
		r.path.unbound = nil
		r.bind(m.pathPattern(r))
	}
	if r.path.pattern == nil || r.path.path != r.Path {
		return ""
	}
	return r.path.pattern.value(r.path.pathClean, name)
}

// cleanPath is the path without empty and dot segments.
func (r *Request) cleanPath() string {
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
