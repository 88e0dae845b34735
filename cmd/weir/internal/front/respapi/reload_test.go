package respapi_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/respapi"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/policy"
)

// TestRemovedPoliciesGrantNothing: a command whose policy is removed while it is answered is told so, and is never granted as if no limit
// held.
func TestRemovedPoliciesGrantNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	one := func(name string) policy.Policy {
		return policy.Policy{Name: name, Key: policy.NamedKey(), Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.Rate{Permits: 1, Period: 300 * 24 * time.Hour}, 10)}}}
	}
	write("0")
	limits, err := live.Load(live.Options{
		Path: path, Logger: slog.New(slog.DiscardHandler),
		Parse: func(f live.Files) (live.Parsed, error) {
			set := &policy.Set{Policies: []policy.Policy{one("stays")}}
			if strings.HasSuffix(string(f.File.Data), "0") {
				set.Policies = append(set.Policies, one("goes"))
			}
			return live.Parsed{Set: set}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limits.Engine().Close() })
	s := start(t, func(o *respapi.Options) { o.Limits = limits })
	done := make(chan struct{})
	var asking sync.WaitGroup
	for _, args := range [][]string{ // none of them can ever be granted
		{"WEIR.TAKE", "goes", "k", "11"},
		{"WEIR.PEEK", "goes", "k", "11"},
		{"WEIR.RESERVE", "goes", "k", "11"},
		{"WEIR.TAKEALL", "stays", "k", "1", "goes", "k", "11"},
	} {
		for range 2 {
			c := s.dial()
			asking.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					if got := c.ask(args...); !strings.HasPrefix(got, "*[:1 ") && !strings.HasPrefix(got, "-NOPOLICY ") {
						t.Errorf("%v: %s", args, got)
					}
				}
			})
		}
	}
	for i := range 200 {
		write(strconv.Itoa(i) + " " + strconv.Itoa(i%2))
		if _, err := limits.Reload("test"); err != nil {
			t.Error(err)
		}
	}
	close(done)
	asking.Wait()
}
