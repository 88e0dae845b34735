package throttled

import (
	"net/http"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
)

// After allows each client 100 requests a minute, 20 at once. It tracks a million clients.
func After() func(http.Handler) http.Handler {
	return httplimit.PerClient(weir.PerMinute(100), 20)
}
