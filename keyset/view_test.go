package keyset_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
)

// TestLimitOfIsTheLimitThatAKeyIsHeldTo: that of the options, of the function or of an override, whether the key is tracked or
// not.
func TestLimitOfIsTheLimitThatAKeyIsHeldTo(t *testing.T) {
	usual, gold, other := weir.TokenBucket(weir.PerHour(10), 0), weir.TokenBucket(weir.PerHour(100), 0), weir.TokenBucket(weir.PerMinute(10), 0)
	k, err := weir.NewKeyedFunc(usual, weir.KeyedOptions{}, func(key string) weir.Limit {
		if key == "gold" {
			return gold
		}
		return weir.Limit{}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	held := func(key string, want weir.Limit) {
		t.Helper()
		if got := k.LimitOf(key); got != want {
			t.Errorf("%s is held to %v, want %v", key, got, want)
		}
	}
	for range 2 { // the second time they are tracked
		held("ann", usual)
		held("gold", gold)
		k.Allow("ann")
		k.Allow("gold")
	}
	for _, key := range []string{"ann", "gold", "new"} {
		if err := keyset.Of(k).Override(key, other, time.Hour); err != nil {
			t.Fatal(err)
		}
		held(key, other)
	}
	keyset.Of(k).Restore("gold")
	held("gold", gold)
	held("ann", other)
	held("ben", usual)
	if n := k.Stats().Keys; n != 3 {
		t.Errorf("%d keys are tracked, want 3", n)
	}
}
