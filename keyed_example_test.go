package weir_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/keyset"
)

var errTooManyRequests = errors.New("too many requests")

// Give users the limit of their plan, which may change at any time.
func ExampleNewKeyedFunc() {
	plans := map[string]weir.Limit{
		"free": weir.TokenBucket(weir.PerDay(2), 0),
		"paid": weir.TokenBucket(weir.PerMinute(600), 100),
	}
	var planOf sync.Map
	planOf.Store("ann", "free")
	limiter, err := weir.NewKeyedFunc(weir.TokenBucket(weir.PerDay(1), 0), weir.KeyedOptions{}, func(user string) weir.Limit {
		plan, _ := planOf.Load(user)
		name, _ := plan.(string)
		return plans[name] // the limit of the options for users without a plan
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(limiter.Allow("ann"), limiter.Allow("ann"), limiter.Allow("ann"))
	planOf.Store("ann", "paid") // ann pays: what she has used stays used, and comes back faster
	fmt.Println(limiter.Peek("ann", 1).RetryAfter.Round(10 * time.Millisecond))
	fmt.Println(limiter.Allow("bob"), limiter.Allow("bob"))
	// Output:
	// true true false
	// 100ms
	// true false
}

// The functions below are the code of docs/keyed.md, line by line.

func docsKeyed(address string, body []byte) error {
	limiter, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(10), 20), weir.KeyedOptions{
		Name: "per-client", MaxKeys: 1_000_000,
	})
	if err != nil {
		return err
	}
	if !limiter.Allow(address) {
		return errTooManyRequests
	}
	d := limiter.Take(address, 5)
	if !d.Allowed {
		return fmt.Errorf("come back in %v", d.RetryAfter)
	}
	allowed := keyset.AllowBytes(limiter, body[:16]) // no copy of the key
	if !allowed {
		return errTooManyRequests
	}
	return nil
}

func docsKeyedCalendar(customer string) error {
	vienna, err := time.LoadLocation("Europe/Vienna")
	if err != nil {
		return err
	}
	month := algo.Calendar{Unit: algo.CalendarMonth, Zone: vienna, Day: 15, Hour: 8}
	quota, err := weir.NewKeyed[string](weir.CalendarWindow(1_000_000, month), weir.KeyedOptions{})
	if err != nil {
		return err
	}
	if !quota.Allow(customer) {
		return errTooManyRequests
	}
	return nil
}

func docsKeyedWait(ctx context.Context, tenant string, job func() error) error {
	slots, err := weir.NewKeyedConcurrency[string](4, weir.KeyedOptions{QueueLimit: 20})
	if err != nil {
		return err
	}
	return slots.Do(ctx, tenant, 1, job) // holds a permit of the tenant while job runs
}

func docsKeyedOperate(limiter *weir.Keyed[string]) error {
	if err := keyset.Of(limiter).Override("203.0.113.7", weir.TokenBucket(weir.PerMinute(1), 0), time.Hour); err != nil {
		return err
	}
	keyset.Of(limiter).Restore("203.0.113.7")
	limiter.Reset("198.51.100.1")
	for _, s := range keyset.Of(limiter).Top(20) {
		slog.Info("busy", "key", s.Key, "id", s.ID, "remaining", s.Remaining, "limit", s.Limit, "refused", s.Refused)
	}
	return nil
}

// TestKeyedDocs runs the code of docs/keyed.md, and holds the document to it.
func TestKeyedDocs(t *testing.T) {
	if err := docsKeyed("192.0.2.1", make([]byte, 16)); err != nil {
		t.Error(err)
	}
	if err := docsKeyedCalendar("ann"); err != nil {
		t.Error(err)
	}
	synctest.Test(t, func(t *testing.T) {
		if err := docsKeyedWait(t.Context(), "a", func() error { return nil }); err != nil {
			t.Error(err)
		}
	})
	limiter, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerMinute(10), 0), weir.KeyedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.Default()
	defer slog.SetDefault(log)
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if err = docsKeyedOperate(limiter); err != nil {
		t.Error(err)
	}
	page, err := os.ReadFile("docs/keyed.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("keyed_example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	code := lines(string(source))
	for _, block := range strings.Split(string(page), "```go\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for _, line := range lines(block) {
			if !slices.Contains(code, line) {
				t.Errorf("this line of docs/keyed.md is not in a test: %s", line)
			}
		}
	}
}

// lines are the lines of text without indentation.
func lines(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}

	return all
}
