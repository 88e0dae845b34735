package operator_test

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// TestKey has in it what is told of keys, word for word.
func TestKey(t *testing.T) {
	one := operator.KeyLimit{Name: "1s", Holds: "10/s, burst 50", Tracked: true, Allowed: true, Limit: 50, Remaining: 4, ResetAfter: 4.6}
	refused := one
	refused.Refused = 1
	often := one
	often.Refused = 1200
	empty := one
	empty.Allowed, empty.Reason, empty.Remaining, empty.RetryAfter = false, "limited", 0, 0.1
	emptier := empty
	emptier.RetryAfter = 8 * 3600
	whole := one
	whole.Remaining, whole.ResetAfter = 50, 0
	unlimited := operator.KeyLimit{Name: "1s", Holds: "unlimited", Allowed: true, Limit: 1e15, Remaining: 1e15, Refused: 1}
	tests := map[string]struct {
		key  operator.Key
		want string
	}{
		"refused once": {
			operator.Key{RecentRefusals: 1, Limits: []operator.KeyLimit{refused}},
			`  refused once, which counts towards a lockout
  limit 1s: 10/s, burst 50
    4 of 50 remaining, all are back in 4.6 seconds
    one more would be allowed now
    refused once
`,
		},
		"refused often": {
			operator.Key{RecentRefusals: 3, Limits: []operator.KeyLimit{often}},
			`  refused 3 times, which counts towards a lockout
  limit 1s: 10/s, burst 50
    4 of 50 remaining, all are back in 4.6 seconds
    one more would be allowed now
    refused 1,200 times
`,
		},
		"whole": {
			operator.Key{Limits: []operator.KeyLimit{whole}},
			`  limit 1s: 10/s, burst 50
    50 of 50 remaining
    one more would be allowed now
`,
		},
		"unlimited": {
			operator.Key{Override: &operator.Override{Unlimited: true, For: 60, By: "anna", Reason: "launch"}, Limits: []operator.KeyLimit{unlimited}},
			`  overridden: unlimited, for another 1 minute, by anna: launch
  limit 1s: unlimited
    one more would be allowed now
    refused once
`,
		},
		"locked out with permits left": {
			operator.Key{LockedFor: 60, Limits: []operator.KeyLimit{one}},
			`  locked out for another 1 minute
  limit 1s: 10/s, burst 50
    4 of 50 remaining, all are back in 4.6 seconds
    one more would be allowed now, were it not locked out
`,
		},
		"locked out with no permit left": {
			operator.Key{LockedFor: 60, Limits: []operator.KeyLimit{empty}},
			`  locked out for another 1 minute
  limit 1s: 10/s, burst 50
    0 of 50 remaining, all are back in 4.6 seconds
    one more would be refused now: hard-lockout, retry after 1 minute
`,
		},
		"locked out for less than the limit refuses": {
			operator.Key{LockedFor: 60, Limits: []operator.KeyLimit{emptier}},
			`  locked out for another 1 minute
  limit 1s: 10/s, burst 50
    0 of 50 remaining, all are back in 4.6 seconds
    one more would be refused now: hard-lockout, retry after 8 hours
`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.key.Policy, test.key.Key = "p", "k"
			var b strings.Builder
			operator.WriteKey(&b, terminal.Output{}, &test.key)
			if want := "key \"k\" of policy p\n" + test.want; b.String() != want {
				t.Errorf("got\n%swant\n%s", b.String(), want)
			}
		})
	}
}

// TestUnseen tells of what keys nothing is kept.
func TestUnseen(t *testing.T) {
	seen := operator.Key{Limits: []operator.KeyLimit{{}, {Tracked: true}}}
	if !operator.Unseen(&operator.Key{Limits: []operator.KeyLimit{{}, {}}}) || operator.Unseen(&seen) ||
		operator.Unseen(&operator.Key{LockedFor: 1}) || operator.Unseen(&operator.Key{Override: &operator.Override{}}) {
		t.Error("a key is seen that has a limit that is tracked, a lockout or an override, and no other one")
	}
}

// TestConcurrencyLimitWithAllPermitsTaken: when the next one comes back is not known, and a reset does not bring it.
func TestConcurrencyLimitWithAllPermitsTaken(t *testing.T) {
	k := operator.Key{Named: true, Key: "ann", Limits: []operator.KeyLimit{
		{Name: "concurrency", Holds: "3 at once", Tracked: true, Reason: "limited", Limit: 3},
	}}
	var b strings.Builder
	operator.WriteAfterReset(&b, &k)
	if want := "one more would be refused now: what requests have taken comes back when they end\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	b.Reset()
	operator.WriteKeys(&b, terminal.Output{}, &[]operator.Key{k})
	if strings.Contains(b.String(), "0s") {
		t.Errorf("a time that is not known:\n%s", b.String())
	}
	k.Limits[0].Allowed, k.Limits[0].Remaining = true, 1
	b.Reset()
	operator.WriteAfterReset(&b, &k)
	if b.String() != "" {
		t.Errorf("%q", b.String())
	}
}
