package golimiter

import (
	"net/http"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
)

// After allows each client 100 requests in each minute from the start of the server on.
func After() (func(http.Handler) http.Handler, error) {
	clients, err := weir.NewKeyed[string](weir.FixedWindow(weir.PerMinute(100)), weir.KeyedOptions{Name: "per-client"})
	if err != nil {
		return nil, err
	}
	return httplimit.New(httplimit.Options{Keyed: clients})
}
