package httprate

import (
	"net/http"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
)

// After allows each client 100 requests a minute.
func After() (func(http.Handler) http.Handler, error) {
	clients, err := weir.NewKeyed[string](weir.SlidingWindow(weir.PerMinute(100), 0), weir.KeyedOptions{Name: "per-client"})
	if err != nil {
		return nil, err
	}
	return httplimit.New(httplimit.Options{Keyed: clients})
}
