package redis_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/store"
	"github.com/weirhq/weir/store/redis"
)

// TestNilIsToldAtTheCall: a constructor or function that needs what it is not given says so at once, by an error or a panic that
// names it, and not by a nil dereference, now or later.
func TestNilIsToldAtTheCall(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func() error{
		"Open": func() error { _, err := redis.Open(redis.Options{}); return err },
	} {
		if got := toldOf(call); !strings.HasPrefix(got, "weir: ") || strings.Contains(got, "invalid memory address") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestZeroStoreSaysHowItIsMade at each call.
func TestZeroStoreSaysHowItIsMade(t *testing.T) {
	t.Parallel()
	s := new(redis.Store)
	for name, call := range map[string]func() error{
		"Do":     func() error { _, err := s.Do(t.Context(), store.Ask{}, nil, nil); return err },
		"Settle": func() error { return s.Settle(t.Context(), store.Hold{}, nil) },
		"Close":  s.Close,
	} {
		if got := toldOf(call); got != "weir: redis: zero Store: make it by Open" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// toldOf is the error of a call, or what it panics with.
func toldOf(call func() error) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprint(v)
		}
	}()
	if err := call(); err != nil {
		return err.Error()
	}
	return ""
}
