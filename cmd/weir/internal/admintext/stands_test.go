package admintext_test

import (
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/admin"
	"github.com/weirhq/weir/cmd/weir/internal/admintext"
)

// TestStands expects that a lockout is told of first, then the limit that refuses for longest, and no limit that grants in a moment.
func TestStands(t *testing.T) {
	limits := func(waits ...float64) []admin.KeyLimit {
		all := make([]admin.KeyLimit, len(waits))
		for i, wait := range waits {
			all[i] = admin.KeyLimit{Name: string(rune('a' + i)), Allowed: wait == 0, Reason: "limited", RetryAfter: wait}
		}
		return all
	}
	for _, c := range []struct {
		key           admin.Key
		shut, refused string
	}{
		{admin.Key{LockedFor: 60, Limits: limits(30)}, "it is still locked out for another 1 minute", ""},
		{admin.Key{Limits: limits(0, 0.9)}, "", ""},
		{admin.Key{Limits: limits(2, 0, 60)}, "", "one more would be refused now by limit c: limited, retry after 1 minute"},
		{admin.Key{Limits: limits(2, -1, 60)}, "", "one more would be refused now by limit b: limited, and no wait helps"},
	} {
		if shut, refused := admintext.StillShut(&c.key), admintext.StillRefused(&c.key); shut != c.shut || refused != c.refused {
			t.Errorf("%+v: %q %q, want %q %q", c.key, shut, refused, c.shut, c.refused)
		}
	}
}
