package operator_test

import (
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

// TestStands expects that a lockout is told of first, then the limit that refuses for longest, and no limit that grants in a
// moment.
func TestStands(t *testing.T) {
	limits := func(waits ...float64) []operator.KeyLimit {
		all := make([]operator.KeyLimit, len(waits))
		for i, wait := range waits {
			all[i] = operator.KeyLimit{Name: string(rune('a' + i)), Allowed: wait == 0, Reason: "limited", RetryAfter: wait}
		}
		return all
	}
	for _, c := range []struct {
		key           operator.Key
		shut, refused string
	}{
		{operator.Key{LockedFor: 60, Limits: limits(30)}, "it is still locked out for another 1 minute", ""},
		{operator.Key{Limits: limits(0, 0.9)}, "", ""},
		{operator.Key{Limits: limits(2, 0, 60)}, "", "one more would be refused now by limit c: limited, retry after 1 minute"},
		{operator.Key{Limits: limits(2, -1, 60)}, "", "one more would be refused now by limit b: limited, and no wait helps"},
	} {
		if shut, refused := operator.StillShut(&c.key), operator.StillRefused(&c.key); shut != c.shut || refused != c.refused {
			t.Errorf("%+v: %q %q, want %q %q", c.key, shut, refused, c.shut, c.refused)
		}
	}
}
