package serve

import (
	"net/http"
	"slices"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/front/adminapi"
	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/front/forwardauth"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/internal/keytext"
)

// site gives each request of an HTTP server to the front that it is for.
type site struct {
	front http.Handler // of all others
	auth  http.Handler // nil if there are no rules
	// local is whether only this machine reaches the server, so that a page in a browser on it could be the caller: then front
	// serves an address, localhost and names alone. What proxies ask at auth is not looked at: it has the host of another
	// request, and only those of --trust-proxy are answered.
	local bool
	names []string
	// operators are the pages for them, nil if they are elsewhere.
	operators *operatorPages
	elsewhere string
}

// operatorPages are those of operators besides those of front.
type operatorPages struct{ admin, ui, metrics http.Handler }

// ServeHTTP implements http.Handler.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case s.auth != nil && forwardauth.Serves(path):
		s.auth.ServeHTTP(w, r)
	case s.operators != nil && path == "/" && wantsHTML(r):
		w.Header().Add("Vary", "Accept")
		http.Redirect(w, r, operator.UIPath, http.StatusFound)
	case !forOperators(path):
		if s.local && !s.knows(r.Host) {
			// A page whose name leads to this machine is of the same origin to its browser.
			answer.BadField(http.StatusForbidden, "Host", answer.Excerpt(r.Host),
				"must be an address, localhost or a name of --http-names").Write(w)
			return
		}
		s.front.ServeHTTP(w, r)
	case s.operators == nil:
		answer.PlainProblem(http.StatusNotFound, "%s is at %s", path, s.elsewhere).Write(w)
	default:
		s.operators.ServeHTTP(w, r)
	}
}

// knows reports whether the server serves a host on a loopback address.
func (s *site) knows(host string) bool {
	return adminguard.IsLocalHost(host) || slices.Contains(s.names, keytext.CleanHost(host))
}

// forOperators reports whether a page is one of operatorPages.
func forOperators(path string) bool {
	return adminapi.Serves(path) || path == operator.MetricsPath || path+"/" == operator.UIPath ||
		strings.HasPrefix(path, operator.UIPath)
}

// ServeHTTP implements http.Handler.
func (p *operatorPages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case adminapi.Serves(path):
		p.admin.ServeHTTP(w, r)
	case path == operator.MetricsPath:
		p.metrics.ServeHTTP(w, r)
	case path+"/" == operator.UIPath:
		http.Redirect(w, r, operator.UIPath, http.StatusFound)
	default:
		p.ui.ServeHTTP(w, r)
	}
}

// wantsHTML reports whether a browser asks for a page.
func wantsHTML(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && strings.Contains(r.Header.Get("Accept"), "text/html")
}
