// Package httprate moves from github.com/go-chi/httprate to weir.
package httprate

import (
	"net"
	"net/http"
	"time"

	"github.com/go-chi/httprate"
)

// Before allows each client 100 requests a minute.
func Before() func(http.Handler) http.Handler {
	return httprate.LimitBy(100, time.Minute, func(r *http.Request) (string, error) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		return httprate.CanonicalizeIP(host), err
	})
}
