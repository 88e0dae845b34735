// Package golimiter moves from github.com/sethvargo/go-limiter to weir.
package golimiter

import (
	"net/http"
	"time"

	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
)

// Before allows each client 100 requests in each minute from its first one on.
func Before() (func(http.Handler) http.Handler, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: 100, Interval: time.Minute})
	if err != nil {
		return nil, err
	}
	middleware, err := httplimit.NewMiddleware(store, httplimit.IPKeyFunc())
	if err != nil {
		return nil, err
	}
	return middleware.Handle, nil
}
