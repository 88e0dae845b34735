package admintext_test

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/admin"
	"github.com/weirhq/weir/cmd/weir/internal/admintext"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// TestKey has in it what is told of keys, word for word.
func TestKey(t *testing.T) {
	one := admin.KeyLimit{Name: "1s", Holds: "10/s, burst 50", Tracked: true, Allowed: true, Limit: 50, Remaining: 4, ResetAfter: 4.6}
	refused := one
	refused.Refused = 1
	often := one
	often.Refused = 1200
	whole := one
	whole.Remaining, whole.ResetAfter = 50, 0
	unlimited := admin.KeyLimit{Name: "1s", Holds: "unlimited", Allowed: true, Limit: 1e15, Remaining: 1e15, Refused: 1}
	tests := map[string]struct {
		key  admin.Key
		want string
	}{
		"refused once": {
			admin.Key{RecentRefusals: 1, Limits: []admin.KeyLimit{refused}},
			`  refused once, which counts towards a lockout
  limit 1s: 10/s, burst 50
    4 of 50 remaining, all are back in 4.6 seconds
    one more would be allowed now
    refused once
`,
		},
		"refused often": {
			admin.Key{RecentRefusals: 3, Limits: []admin.KeyLimit{often}},
			`  refused 3 times, which counts towards a lockout
  limit 1s: 10/s, burst 50
    4 of 50 remaining, all are back in 4.6 seconds
    one more would be allowed now
    refused 1,200 times
`,
		},
		"whole": {
			admin.Key{Limits: []admin.KeyLimit{whole}},
			`  limit 1s: 10/s, burst 50
    50 of 50 remaining
    one more would be allowed now
`,
		},
		"unlimited": {
			admin.Key{Override: &admin.Override{Unlimited: true, For: 60, By: "anna", Reason: "launch"}, Limits: []admin.KeyLimit{unlimited}},
			`  overridden: unlimited, for another 1 minute, by anna: launch
  limit 1s: unlimited
    one more would be allowed now
    refused once
`,
		},
		"locked out with permits left": {
			admin.Key{LockedFor: 60, Limits: []admin.KeyLimit{one}},
			`  locked out for another 1 minute
  limit 1s: 10/s, burst 50
    4 of 50 remaining, all are back in 4.6 seconds
    one more would be allowed now, were it not locked out
`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.key.Policy, test.key.Key = "p", "k"
			var b strings.Builder
			admintext.Key(&b, terminal.Output{}, &test.key)
			if want := "key \"k\" of policy p\n" + test.want; b.String() != want {
				t.Errorf("got\n%swant\n%s", b.String(), want)
			}
		})
	}
}

// TestUnseen tells of what keys nothing is kept.
func TestUnseen(t *testing.T) {
	seen := admin.Key{Limits: []admin.KeyLimit{{}, {Tracked: true}}}
	if !admintext.Unseen(&admin.Key{Limits: []admin.KeyLimit{{}, {}}}) || admintext.Unseen(&seen) ||
		admintext.Unseen(&admin.Key{LockedFor: 1}) || admintext.Unseen(&admin.Key{Override: &admin.Override{}}) {
		t.Error("a key is seen that has a limit that is tracked, a lockout or an override, and no other one")
	}
}
