// Package chiserver limits the routes of a server with the router chi, each client and route by itself.
package chiserver

import (
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

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
	limit, err := httplimit.New(httplimit.Options{Keyed: perRoute, Key: httplimit.ByAll(byClient, byRoute)})
	if err != nil {
		return nil, err
	}
	atATime, err := httplimit.New(httplimit.Options{Limiter: slots})
	if err != nil {
		return nil, err
	}

	r := chi.NewRouter()
	r.Use(middleware.Recoverer, numbered)
	r.Get("/healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, "ok") })
	r.Group(func(r chi.Router) { // whose middlewares run once the route is known
		r.Use(limit, atATime, served)
		r.Get("/items/{id}", func(w http.ResponseWriter, r *http.Request) { answer(w, "item", chi.URLParam(r, "id")) })
		r.Get("/search", func(w http.ResponseWriter, r *http.Request) { answer(w, "results for", r.FormValue("q")) })
		r.Get("/panic", func(http.ResponseWriter, *http.Request) { panic("a mistake") })
	})
	r.Route("/admin", func(r chi.Router) {
		r.Use(authorized)
		r.With(limit, atATime, served).Get("/report", func(w http.ResponseWriter, _ *http.Request) { answer(w, "report") })
	})
	return r, nil
}

// answer writes plain text, whatever is in it.
func answer(w http.ResponseWriter, text ...any) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	fmt.Fprintln(w, text...) //nolint:gosec // a browser does not read it as HTML
}

// byRoute keys requests by the pattern of their route, such as "/items/{id}". It is complete in the middlewares of a Group and
// those of With. A middleware of Use on a router that is not a Group runs before the routes below it are looked at.
func byRoute(r *http.Request) (string, error) {
	return r.Method + " " + chi.RouteContext(r.Context()).RoutePattern(), nil
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
