// Package tollbooth moves from github.com/didip/tollbooth to weir.
package tollbooth

import (
	"net/http"

	"github.com/didip/tollbooth/v8"
	"github.com/didip/tollbooth/v8/limiter"
)

// Before allows each client 10 requests a second of each path, 20 at once.
func Before() func(http.Handler) http.Handler {
	limit := tollbooth.NewLimiter(10, nil).SetBurst(20)
	limit.SetIPLookup(limiter.IPLookup{Name: "RemoteAddr"})
	return tollbooth.HTTPMiddleware(limit)
}
