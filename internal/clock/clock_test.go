package clock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/internal/clock"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if !clock.Sleep(ctx, time.Second) || time.Since(begin) != time.Second {
			t.Errorf("not a second, but %v", time.Since(begin))
		}
		if clock.Sleep(ctx, time.Hour) || time.Since(begin) != 2*time.Second {
			t.Errorf("the context ended after 2s, and the sleep after %v", time.Since(begin))
		}
	})
}
