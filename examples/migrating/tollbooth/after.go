package tollbooth

import (
	"net/http"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
)

// After allows each client 10 requests a second of each route, 20 at once.
func After(mux *http.ServeMux) (func(http.Handler) http.Handler, error) {
	byClient, err := httplimit.ByClient(httplimit.ClientOptions{})
	if err != nil {
		return nil, err
	}
	clients, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(10), 20), weir.KeyedOptions{Name: "per-route"})
	if err != nil {
		return nil, err
	}
	return httplimit.New(httplimit.Options{Keyed: clients, Key: httplimit.ByAll(byClient, httplimit.ByPattern(mux))})
}
