package httplimit

import (
	"net/http"

	"github.com/weirhq/weir"
)

// PerClient returns a middleware that limits each client to rate, and to burst requests at once:
//
//	http.ListenAndServe(":8080", httplimit.PerClient(weir.PerSecond(10), 20)(mux))
//
// A client is the network address from which the connection comes: see [ByClient]. It is [New] with a [weir.TokenBucket] and
// otherwise the defaults, for programs whose limits are written in the code: it panics if rate or burst cannot be used.
func PerClient(rate weir.Rate, burst int64) func(http.Handler) http.Handler {
	keyed, err := weir.NewKeyed[string](weir.TokenBucket(rate, burst), weir.KeyedOptions{Name: "per-client"})
	if err != nil {
		panic(err)
	}
	limit, err := New(Options{Keyed: keyed})
	if err != nil {
		panic(err)
	}
	return limit
}
