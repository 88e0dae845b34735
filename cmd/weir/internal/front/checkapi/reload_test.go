package checkapi_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/front/checkapi"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/internal/race"
)

// TestPoliciesThatGoGrantNothing: a check whose policy is removed while it is answered is told so, and is never granted as if no
// limit held.
func TestPoliciesThatGoGrantNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	write := func(i int) {
		t.Helper()
		text := fmt.Sprintf("version: 1 # %d\npolicies:\n  stays: {limit: 10/h, key: client.ip}\n", i)
		if i%2 == 0 {
			text += "  goes: {limit: 10/h, key: client.ip}\n"
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(0)
	limits, err := live.Load(live.Options{
		Path: path, Logger: slog.New(slog.DiscardHandler),
		Parse: func(f live.Files) (live.Parsed, error) {
			file, err := config.Parse(f.File.Name, f.File.Data, config.Options{})
			if err != nil {
				return live.Parsed{}, err
			}
			return live.Parsed{Set: file.Set}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limits.Engine().Close() })
	h := checkapi.NewHandler(checkapi.Options{Limits: limits})
	done := make(chan struct{})
	var asking sync.WaitGroup
	const never = `{"policy":"goes","key":"k","cost":11}`
	for path, body := range map[string]string{ // none of them can ever be granted
		"/v1/check":   never,
		"/v1/reserve": never,
		"/v1/batch":   `{"checks":[{"policy":"stays","key":"k","cost":0},` + never + `]}`,
	} {
		asking.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if r := send(h, "POST", path, "application/json", body); r.Code != 429 && r.Code != 404 {
					t.Errorf("%s: %d %s", path, r.Code, r.Body)
				}
			}
		})
	}
	reloads := 200
	if race.Enabled {
		reloads = 50
	}
	for i := range reloads {
		write(i)
		if _, err := limits.Reload("test"); err != nil {
			t.Error(err)
		}
	}
	close(done)
	asking.Wait()
}
