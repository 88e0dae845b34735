package ulule

import (
	"net/http"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/ratelimitfields"
)

// After allows each client 100 requests in each minute from the start of the server on, and writes the fields that clients know.
func After() (func(http.Handler) http.Handler, error) {
	limit, err := weir.ParseLimit("fixed-window 100/min")
	if err != nil {
		return nil, err
	}
	clients, err := weir.NewKeyed[string](limit, weir.KeyedOptions{Name: "per-client"})
	if err != nil {
		return nil, err
	}
	fields := ratelimitfields.Headers{Fields: ratelimitfields.RateLimit11 | ratelimitfields.XRateLimitUnix}
	return httplimit.New(httplimit.Options{Keyed: clients, Headers: fields})
}
