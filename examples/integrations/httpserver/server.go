// Package httpserver limits the routes of a server of net/http, each client and route by itself.
package httpserver

import (
	"fmt"
	"net/http"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
)

// New returns a server that serves 2 requests at a time. Each client may send 3 requests at once to each route, and one every 10
// seconds for ever.
func New() (http.Handler, error) {
	perRoute, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerMinute(6), 3), weir.KeyedOptions{Name: "per-route"})
	if err != nil {
		return nil, err
	}
	slots, err := weir.NewConcurrency(2, weir.Options{Name: "slots"})
	if err != nil {
		return nil, err
	}
	byClient, err := httplimit.ByClient(httplimit.ClientOptions{})
	if err != nil {
		return nil, err
	}
	// A ServeMux has set the pattern of the route when it calls the handlers that are registered with it.
	byRoute := httplimit.ByAll(byClient, httplimit.ByPattern(nil))
	limit, err := httplimit.New(httplimit.Options{Keyed: perRoute, Key: byRoute})
	if err != nil {
		return nil, err
	}
	atATime, err := httplimit.New(httplimit.Options{Limiter: slots})
	if err != nil {
		return nil, err
	}
	limited := func(h http.HandlerFunc) http.Handler { return limit(atATime(served(h))) }

	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", limited(func(w http.ResponseWriter, r *http.Request) {
		answer(w, "item", r.PathValue("id"))
	}))
	mux.Handle("GET /search", limited(func(w http.ResponseWriter, r *http.Request) {
		answer(w, "results for", r.FormValue("q"))
	}))
	mux.Handle("GET /panic", limited(func(http.ResponseWriter, *http.Request) { panic("a mistake") }))
	mux.Handle("GET /admin/report", authorized(limited(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, "report")
	})))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, "ok") })
	return recovered(numbered(mux)), nil
}

// answer writes plain text, whatever is in it.
func answer(w http.ResponseWriter, text ...any) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	fmt.Fprintln(w, text...) //nolint:gosec // a browser does not read it as HTML
}

// numbered gives each request a number, those that are refused as well.
func numbered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-ID", r.RemoteAddr)
		next.ServeHTTP(w, r)
	})
}

// authorized lets requests with the token pass. What it refuses is not charged.
func authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Token") != "secret" {
			http.Error(w, "the token is missing", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// served marks the responses to requests that were allowed.
func served(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Served", "yes")
		next.ServeHTTP(w, r)
	})
}

// recovered returns panics.
func recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}
