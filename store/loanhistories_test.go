//go:build !race

package store_test

import (
	"math/rand/v2"
	"testing"
)

// TestReturnNeverMints makes random histories of takes, loans, debits, returns and changes of limits, and compares the store
// after every return with one in which what was returned had never been lent: there must be at least as many permits, at
// least as soon, and everything that was granted is granted there as well.
func TestReturnNeverMints(t *testing.T) {
	t.Parallel()
	for name, limits := range loanLimits() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			histories := 250
			if testing.Short() {
				histories = 40
			}
			seed, returned := rand.Uint64(), int64(0)
			for i := range histories {
				events, given := loanHistory(t, rand.New(rand.NewPCG(seed, uint64(i))), limits)
				if t.Failed() {
					t.Fatalf("seed %d, history %d:\n%s", seed, i, listed(events))
				}
				returned += given
				if len(limits) == 1 {
					if err := exceeded(limits[0], events); err != nil {
						t.Fatalf("seed %d, history %d: %v\n%s", seed, i, err, listed(events))
					}
				}
			}
			if returned < int64(histories) {
				t.Errorf("only %d permits were returned in %d histories", returned, histories)
			}
		})
	}
}
