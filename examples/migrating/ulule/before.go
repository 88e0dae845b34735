// Package ulule moves from github.com/ulule/limiter to weir.
package ulule

import (
	"net/http"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"
)

// Before allows each client 100 requests in each minute from its first one on.
func Before() (func(http.Handler) http.Handler, error) {
	rate, err := limiter.NewRateFromFormatted("100-M")
	if err != nil {
		return nil, err
	}
	return stdlib.NewMiddleware(limiter.New(memory.NewStore(), rate)).Handler, nil
}
