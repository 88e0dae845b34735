package weir_test

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
)

// TestSixAMinute is shown by docs/testing.md.
func TestSixAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := weir.New(weir.TokenBucket(weir.PerMinute(6), 1), weir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if !limiter.Allow() || limiter.Allow() {
			t.Error("want one call, and no second one at once")
		}
		time.Sleep(10 * time.Second) // takes no time
		if !limiter.Allow() {
			t.Error("want another call after ten seconds")
		}
	})
}

// TestSixAMinuteByHand is shown by docs/testing.md.
func TestSixAMinuteByHand(t *testing.T) {
	clock := manualclock.New(0)
	limiter, err := weir.New(weir.TokenBucket(weir.PerMinute(6), 1), weir.Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	if !limiter.Allow() || limiter.Allow() {
		t.Error("want one call, and no second one at once")
	}
	clock.Advance(10 * time.Second)
	if !limiter.Allow() {
		t.Error("want another call after ten seconds")
	}
}

// TestTestingDocs holds docs/testing.md to the tests above.
func TestTestingDocs(t *testing.T) {
	page, err := os.ReadFile("docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("testing_example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	if len(blocks) != 2 {
		t.Errorf("docs/testing.md has %d blocks of Go", len(blocks))
	}
	for _, block := range blocks {
		if block, _, _ = strings.Cut(block, "```"); !strings.Contains(string(source), "\n"+block) {
			t.Errorf("this block of docs/testing.md is not in a test:\n%s", block)
		}
	}
}
