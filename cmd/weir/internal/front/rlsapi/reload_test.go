package rlsapi_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlsapi"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/policy"
)

// TestReloadsNeverLeaveUnlimited: while one configuration takes the place of another, a descriptor that both limit, by policies with other
// names, is limited.
func TestReloadsNeverLeaveUnlimited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "edge.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const (
		first  = "domain: edge\ndescriptors:\n  - key: user\n    rate_limit: {unit: year, requests_per_unit: 0}\n"
		second = "domain: edge\ndescriptors:\n  - key: user\n    value: u\n    rate_limit: {unit: year, requests_per_unit: 0}\n"
	)
	write(first)
	limits, err := live.Load(live.Options{
		More: path, Logger: slog.New(slog.DiscardHandler),
		Parse: func(f live.Files) (live.Parsed, error) {
			config, err := ratelimitconfig.Parse(f.More, ratelimitconfig.Options{})
			if err != nil {
				return live.Parsed{}, err
			}
			return live.Parsed{Set: &policy.Set{Policies: config.Policies}, Extra: config}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, conn := serve(t, rlsapi.Options{Limits: limits, Tree: func() *ratelimitconfig.Config {
		config, _ := limits.Extra().(*ratelimitconfig.Config)
		return config
	}})
	done := make(chan struct{})
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				r, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), request("edge", []string{"user", "u"}))
				if err != nil {
					t.Error(err)
				} else if r.GetOverallCode() != over {
					t.Error("a request that nothing allows has passed")
				}
			}
		})
	}
	reloads := 400
	if race.Enabled {
		reloads = 100
	}
	for i := range reloads {
		text := first
		if i%2 == 0 {
			text = second
		}
		write(text + "# " + strconv.Itoa(i) + "\n")
		if _, err := limits.Reload("test"); err != nil {
			t.Error(err)
		}
	}
	close(done)
	asking.Wait()
}
