//go:build unix

package respapi

import (
	"testing"
)

// TestConnectionsWaitForThePollerInTheEnd has a connection always find that more has arrived once it let others go first: it does
// so a few times in a row only, as the others may wait for the poller. Once it was in vain, it does not for many reads.
func TestConnectionsWaitForThePollerInTheEnd(t *testing.T) {
	t.Parallel()
	s, c := new(socket), &conn{work: new(work)}
	for round := range 3 {
		for i := range mostYields {
			if !s.yield(c) {
				t.Fatalf("round %d: it yields %d times, want %d", round, i, mostYields)
			}
		}
		if s.yield(c) {
			t.Fatalf("round %d: it yields more than %d times", round, mostYields)
		}
	}
	s.yields = -mostPause
	for i := range mostPause {
		if s.yield(c) {
			t.Fatalf("it yields after %d reads, want %d", i, mostPause)
		}
	}
	if !s.yield(c) {
		t.Fatal("it never yields again")
	}
	c.w.OK()
	if s.yield(c) {
		t.Error("it yields while replies wait")
	}
	c.work = nil
	if s.yield(c) {
		t.Error("it yields after it has waited")
	}
}
