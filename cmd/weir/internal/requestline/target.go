package requestline

import (
	"net/url"
	"strings"

	"github.com/weirhq/weir/policy"
)

// AcceptedTarget says what ParseTarget reads.
const AcceptedTarget = "a path that begins with a slash, a URL or *, percent-encoded and without a fragment, " +
	"such as /search?q=weir"

// Target is what stands behind the method in the request line of HTTP.
type Target struct {
	// Host is that of a URL, "" for a path.
	Host string
	// Path and RawPath are those of [policy.Request].
	Path, RawPath string
	// Query is what follows the question mark, and HasQuery reports whether there is one.
	Query    string
	HasQuery bool
}

// ParseTarget reads the target of a request: a path with or without a query, "*", or a URL, of which the host and the path are
// taken. A path that begins with two slashes is a path. It is not ok for anything else: an empty text, a path without the slash
// at its beginning, broken percent-encoding, a control character. A fragment is in no target that a client may send: some servers
// cut it off and others take it for a part of the path, so a target with one is not ok either.
func ParseTarget(text string) (t Target, ok bool) {
	if text == "*" { // of OPTIONS
		return Target{Path: text}, true
	}
	u, err := url.ParseRequestURI(text)
	if err != nil || u.Opaque != "" || strings.IndexByte(text, '#') >= 0 || text[0] != '/' && u.Host == "" {
		return Target{}, false
	}
	t = Target{u.Host, u.Path, u.RawPath, u.RawQuery, u.ForceQuery || u.RawQuery != ""}
	if t.Path == "" {
		t.Path = "/"
	}
	return t, true
}

// Set sets the path and the query of r.
func (t *Target) Set(r *policy.Request) {
	r.Path, r.RawPath, r.Query = t.Path, t.RawPath, t.Query
}
