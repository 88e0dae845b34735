package httplimit_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/overload"
)

// TestAdaptiveLimitLearnsFromDeadlines: a request whose context has run into its deadline is lost. One that was served in time is
// not, and one whose client has gone counts by its time.
func TestAdaptiveLimitLearnsFromDeadlines(t *testing.T) {
	for name, c := range map[string]struct {
		handle  func(ctx context.Context)
		timeout time.Duration // after which the client goes, if it is not 0
		lost    bool
	}{
		"late":   {func(ctx context.Context) { <-ctx.Done() }, 0, true},
		"served": {func(context.Context) { time.Sleep(time.Second) }, 0, false},
		"gone":   {func(ctx context.Context) { <-ctx.Done() }, time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			adaptive, err := overload.NewAdaptive(overload.AdaptiveOptions{WindowSamples: 10})
			if err != nil {
				t.Fatal(err)
			}
			h := limit(t, httplimit.Options{Limiter: adaptive})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				c.handle(r.Context())
			}))
			for range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				if c.timeout != 0 {
					time.AfterFunc(c.timeout, cancel)
				}
				r := from("192.0.2.1:1").WithContext(ctx)
				send(http.TimeoutHandler(h, time.Minute, ""), r)
				synctest.Wait()
				cancel()
			}
			e := adaptive.Estimate()
			if e.Windows == 0 || e.Dropped > 0 != c.lost || c.lost && e.Dropped != 1 || adaptive.Peek(0).Remaining != e.Limit {
				t.Errorf("%s: it has learned %+v, and %d remain", name, e, adaptive.Peek(0).Remaining)
			}
		})
	}
}
