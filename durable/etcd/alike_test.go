package etcd

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestCompareAsksAgain has nodes that do not answer, or cannot tell at first, beside others that can: a node must not leave a
// cluster because one that has died was asked first, or because another was dropping old revisions.
func TestCompareAsksAgain(t *testing.T) {
	never := []likeness(nil)
	for _, c := range []struct {
		name   string
		others [][]likeness // what each says, one after the other; the last one again and again
		want   string
		after  time.Duration
	}{
		{"a node that has died", [][]likeness{never, {alike}}, "", 0},
		{"a node that cannot tell yet", [][]likeness{never, {notKnown, notKnown, alike}}, "", 2 * compareFor / 100},
		{"two of five", [][]likeness{{different}, never, {notKnown, alike}, {alike}}, "", compareFor / 100},
		{"no other", nil, "of 1 nodes 0 have the same records as this one, and 0 others", 0},
		{"both differ", [][]likeness{{different}, {different}}, "of 3 nodes 0 have the same records as this one, and 2 others", 0},
		{"nobody tells", [][]likeness{never, {notKnown}}, "of 3 nodes 0 have the same records as this one, and 0 others", compareFor},
		{"one differs", [][]likeness{never, {different}}, "of 3 nodes 0 have the same records as this one, and 1 others", compareFor},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), compareFor)
				defer cancel()
				asked := make([]int, len(c.others))
				others := make([]int, len(c.others))
				for i := range others {
					others[i] = i
				}
				began := time.Now()
				err := compare(ctx, others, func(ctx context.Context, i int) likeness {
					says := c.others[i]
					if says == nil {
						<-ctx.Done()
						return notKnown
					}
					asked[i]++
					return says[min(asked[i], len(says))-1]
				})
				got := ""
				if err != nil {
					got = err.Error()
				}
				if took := time.Since(began); got != c.want || took != c.after {
					t.Errorf("%q after %v, want %q after %v", got, took, c.want, c.after)
				}
			})
		})
	}
}
