package adminapi

import (
	"testing"

	"github.com/weirhq/weir/policy"
)

// TestSinceWaitsForWhatIsBeingNoted: a refusal that has its number, and is noted a moment later, is not stepped over.
func TestSinceWaitsForWhatIsBeingNoted(t *testing.T) {
	l, err := NewRefusals(nil)
	if err != nil {
		t.Fatal(err)
	}
	v := new(policy.Verdict)
	l.Refused(nil, v)
	slow := l.number.Add(1) // as Refused begins
	l.Refused(nil, v)
	all, last := l.Since(0, 10)
	if len(all) != 1 || last != slow-1 {
		t.Fatalf("%d refusals up to %d, want 1 up to %d", len(all), last, slow-1)
	}
	s := &l.slots[slow%MostRefusals] // as Refused ends
	s.entry = l.room()
	s.entry.fill(slow, nil, v)
	if all, last = l.Since(last, 10); len(all) != 2 || last != slow+1 {
		t.Fatalf("%d refusals up to %d, want 2 up to %d", len(all), last, slow+1)
	}
}
